"""Tenants, their members, and the GPUs and credits that they may use."""
