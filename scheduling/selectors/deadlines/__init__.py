"""Deadlines: what rounds answered, what they plan."""
