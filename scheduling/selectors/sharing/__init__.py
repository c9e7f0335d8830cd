"""Lending, borrowing and trades of tenants."""
