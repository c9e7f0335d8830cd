"""Simulation of a pool: recorded or drawn workloads, reports and trace formats, without a clock."""
