"""Baseline policies of papers, available to operators."""
