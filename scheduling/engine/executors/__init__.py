"""Executors: the engines that run jobs, behind one protocol."""
