"""Traces and, later, the simulator: pure, driven by given instants."""
