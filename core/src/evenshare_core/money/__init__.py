"""Money: fixed point, posted prices, and splits of income."""
