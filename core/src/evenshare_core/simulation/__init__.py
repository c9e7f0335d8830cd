"""Traces and drawn workloads on a simulated pool: pure, driven by given instants."""
