"""Rounds: stored bytes, certificates, shares, seals, replay."""
