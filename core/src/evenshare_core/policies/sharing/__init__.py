"""Policies that divide mixed GPU types by an optimisation program: oef, and the common base."""
