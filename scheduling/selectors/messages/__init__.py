"""Subscriptions of a person, and the deliveries to them."""
