"""The speeds of job types on GPU types."""
