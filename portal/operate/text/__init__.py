"""Texts of the console."""
