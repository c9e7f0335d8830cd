"""Formats by language that replace Django's."""
