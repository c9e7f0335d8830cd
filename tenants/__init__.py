"""Tenants: who they are, who belongs to them, and how much they may use."""
