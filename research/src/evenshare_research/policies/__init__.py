"""Baselines of papers, as policies that an operator may choose."""
