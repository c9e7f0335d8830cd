"""The API of money: prices, usage, costs of jobs, income from lending."""
