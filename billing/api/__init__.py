"""The API of money: prices, usage, what jobs cost, what lending earned."""
