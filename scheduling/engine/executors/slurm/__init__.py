"""Slurm as an executor: its tools, its options, and leases as its jobs."""
