"""Gandiva_fair: gang-aware split stride, tickets and trading of GPU types."""
