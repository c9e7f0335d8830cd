"""The console in words."""
