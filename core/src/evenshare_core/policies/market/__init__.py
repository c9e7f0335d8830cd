"""Astraea-online in live rounds: the value of jobs decides which borrow, and use sets prices."""
