"""Policies: pure functions from a snapshot to a decision, a package per policy or family."""
