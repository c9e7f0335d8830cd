"""A tenant's quota, use, and possible starts of jobs."""
