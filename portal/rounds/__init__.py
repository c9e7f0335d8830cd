"""Pages of rounds, with their certificates."""
