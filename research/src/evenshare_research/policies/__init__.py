"""Baseline policies from papers, available to operators."""
