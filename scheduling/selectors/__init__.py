"""Reads for pages, REST and commands. Nothing here writes."""
