"""The SDK: jobs, pools, quotas and prices from Python. `from evenshare import Client` loads it."""
