"""What a tenant has, uses and could get."""
