"""Reproduction of the papers' claims on public data, by one command: `make reproduce`."""
