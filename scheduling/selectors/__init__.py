"""Reads for pages, REST and commands. No selector writes."""
