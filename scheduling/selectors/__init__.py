"""Reads for pages and commands. Nothing here writes."""
