"""Signing in and out, and one's own account."""
