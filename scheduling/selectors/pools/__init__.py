"""Pools: what each does now, its settings, its executor."""
