"""Astraea-online live: the value of jobs decides which of them borrow, and use sets the price."""
