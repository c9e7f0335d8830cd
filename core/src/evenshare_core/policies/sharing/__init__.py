"""Policies that share mixed GPU types by a program: oef, and the base of similar policies."""
