"""Gain-as-you-contribute: pure functions from lease events to terms, charges and lenders.

`idle` sums parts of lendable idle quota and splits a charge by them. `terms` processes lease events
in order and closes terms with their charges and their lenders' weights. `records` has the records
of both. `factors` gives the intervals whose sum is a weight.
"""
