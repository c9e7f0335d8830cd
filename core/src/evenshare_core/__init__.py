"""Evenshare's core: policies, fairness, money and the simulator, without Django, clock or I/O."""
