"""Optimisation programs of baselines, and alternative solvers for the core's programs."""
