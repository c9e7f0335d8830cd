"""Placement of gangs: pure rules over free GPUs."""
