"""Definitions and baselines from papers that the portal's rounds do not need."""
