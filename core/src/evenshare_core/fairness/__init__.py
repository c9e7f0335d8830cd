"""Fairness as numbers: GPU-time sums and ratios, computed in the same way for every policy."""
