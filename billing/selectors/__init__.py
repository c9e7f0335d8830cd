"""Read-only queries for the meter, the checks and the pages.

`tests/integration/test_ledger_selectors.py` pins the number of queries that pages make.
"""
