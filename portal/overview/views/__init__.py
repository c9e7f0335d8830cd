"""A function per page of a tenant."""
