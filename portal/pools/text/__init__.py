"""Texts and charts of pools."""
