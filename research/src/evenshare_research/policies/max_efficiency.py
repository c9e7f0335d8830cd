"""Max efficiency: the largest total throughput, without fairness.

Source: OEF (Middleware 2024), eq. (4): the upper bound for fair policies. Tenants that gain little
from every type may get only leftovers.
"""

from evenshare_core.fairness.certificate import Property
from evenshare_core.formulations.problems import ShareRule
from evenshare_core.policies.sharing.base import SharingPolicy


class MaxEfficiency(SharingPolicy):
    name = "max_efficiency"
    title = "Max efficiency"
    promise = "Maximum total throughput; no promise to a single tenant."
    suits = "Maximum throughput without fairness; to compare with other policies."
    promised = frozenset({Property.PARETO})
    program = ShareRule.MAX_EFFICIENCY


POLICY = MaxEfficiency()
