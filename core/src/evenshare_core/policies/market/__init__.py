"""Astraea-online in live rounds: job values decide which jobs borrow, and use sets the prices."""
