"""Billing: posted prices, usage lines and a double-entry ledger with one writer."""
