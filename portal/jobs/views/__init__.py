"""A function per page of jobs."""
