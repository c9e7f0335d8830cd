"""Money: fixed-point amounts, posted prices, budgets and splits of income."""
