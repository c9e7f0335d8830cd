"""A view function per page of a tenant."""
