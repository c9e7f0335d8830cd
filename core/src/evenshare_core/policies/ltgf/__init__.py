"""Long-term GPU-time fairness (LTGF), the policy of the first paper."""
