"""Max efficiency: the largest total throughput, without fairness.

Source: OEF (Middleware 2024), eq. (4): the upper bound for fair policies. Tenants that gain little
from every type may get only leftovers.
"""

from __future__ import annotations

from evenshare_core.fairness.certificate import Property
from evenshare_core.formulations.shares import ShareRule
from evenshare_core.policies.sharing.base import SharingPolicy


class MaxEfficiency(SharingPolicy):
    name = "max_efficiency"
    title = "Max efficiency"
    promise = "All tenants together get the most work done; a single tenant has no guarantee."
    suits = "The most possible throughput, without fairness; to compare with others."
    promised = frozenset({Property.PARETO})
    program = ShareRule.MAX_EFFICIENCY


POLICY = MaxEfficiency()
