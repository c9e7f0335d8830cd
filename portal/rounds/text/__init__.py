"""Texts of rounds and their certificates."""
