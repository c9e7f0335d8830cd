"""Verification by a tenant, on its own machine, of rounds that a portal decided."""
