"""Pools: present use, settings, executors."""
