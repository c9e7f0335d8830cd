"""Requests: one struct per resource, which defines its fields for all interfaces."""
