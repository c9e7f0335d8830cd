"""Money: fixed point, posted prices, budgets, and splits of income."""
