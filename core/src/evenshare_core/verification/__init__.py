"""What a tenant recomputes on its own machine of rounds that others decided."""
