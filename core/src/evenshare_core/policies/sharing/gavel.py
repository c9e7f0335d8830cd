"""Gavel: the least normalised throughput is raised as far as it goes.

Source: OEF (Middleware 2024), 2.4 and 6.1.3, of Gavel (OSDI 2020): max over X of the least
w_l . x_l relative to what an equal split would give the tenant, then of the next. Simplification:
Gavel turns X into time fractions and serves jobs by priority; here shares become leases as in every
sharing policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from evenshare_core.fairness.certificate import Property
from evenshare_core.formulations.shares import ShareProblem, ShareRule, ShareSolution
from evenshare_core.policies.sharing.base import SharingOptions, SharingPolicy


class Gavel(SharingPolicy):
    """The policy; see the module's docstring."""

    name = "gavel"
    title = "Gavel"
    promise = "The tenant that gains least over an equal split gains as much as possible."
    promised = frozenset({Property.SHARING_INCENTIVE})

    share_options = MappingProxyType(
        {"time_fractions": ("true", "false"), **SharingPolicy.share_options}
    )

    def share(self, problem: ShareProblem, chosen: Mapping[str, str]) -> ShareSolution:
        """Solve a problem; with time fractions, as published, nobody has more than 1 GPU."""
        if chosen.get("time_fractions") == "true":
            ones = np.minimum(problem.cap, 1.0)
            problem = ShareProblem(problem.speedups, problem.capacity, problem.pi, ones)
        return super().share(problem, chosen)

    def rule(self, options: SharingOptions) -> ShareRule:  # noqa: ARG002 - it has one rule
        """The program whose optimum is shared."""
        return ShareRule.GAVEL


POLICY = Gavel()
