"""Policies: pure functions from a snapshot to a decision, one file per paper."""
