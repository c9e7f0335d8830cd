"""Policies that share mixed GPU types by an optimisation program: oef, and their common base."""
