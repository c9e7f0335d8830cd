"""Policies that share mixed GPU types by a program: oef, gavel, max_min, max_efficiency."""
