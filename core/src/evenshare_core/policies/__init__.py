"""Policies: pure functions from a snapshot to a decision; one package per policy or family."""
