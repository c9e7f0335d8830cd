"""Policies that place jobs in a fixed order."""
