"""Astraea-online live: what a job is worth decides who borrows, and the pool's use the price."""
