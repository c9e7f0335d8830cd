"""Fairness as numbers: GPU-time sums and ratios, computed equally for every policy."""
