"""Texts and charts of a tenant's pages."""
