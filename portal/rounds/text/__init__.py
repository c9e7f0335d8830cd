"""Rounds and their certificates in words."""
