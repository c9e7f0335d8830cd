"""Fairness as numbers: GPU-time sums and ratios, advanced for every policy alike."""
