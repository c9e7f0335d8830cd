"""Policies that are an order of jobs."""
