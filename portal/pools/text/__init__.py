"""Pools in words and charts."""
