"""Optimisation programs of baselines, and alternative solvers of the core's programs."""
