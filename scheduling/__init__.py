"""Scheduling: the pure core (domain, fairness, placement, policies) and the engine around it."""
