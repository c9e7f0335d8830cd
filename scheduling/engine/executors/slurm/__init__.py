"""Slurm as an executor: its tools, its options, and leases as Slurm jobs."""
