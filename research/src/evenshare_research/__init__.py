"""Definitions and baselines of papers that the portal's rounds do not need."""
