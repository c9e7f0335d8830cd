"""Hypothesis judges nothing by how fast a machine is. A plugin of pytest's, for every run.

Where CI is set, examples are not drawn by chance.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")
