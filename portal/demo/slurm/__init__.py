"""A Slurm cluster of five nodes with fake GPUs on this host, for the demo and for tests."""
