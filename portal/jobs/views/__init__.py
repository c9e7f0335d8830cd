"""A view function per page of jobs."""
