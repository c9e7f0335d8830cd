"""What needs an operator."""
