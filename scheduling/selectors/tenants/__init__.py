"""A tenant's quota, use and prospects."""
