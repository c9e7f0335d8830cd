"""Texts of the ledger's pages."""
