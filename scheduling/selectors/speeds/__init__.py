"""How fast job types run on GPU types."""
