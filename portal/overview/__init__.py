"""The overview of a tenant."""
