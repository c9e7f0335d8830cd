"""Deadlines: the answers and plans of rounds."""
