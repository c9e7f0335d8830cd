"""Gavel: the lowest normalised throughput is raised as far as possible.

Source: Gavel (OSDI 2020), 4.1, max-min fairness; OEF (Middleware 2024), 2.4 and 6.1.3.

| paper | here | unit |
|---|---|---|
| m, jobs | `sharing.job_types.JobType`: (tenant, profile), all its jobs | |
| T_mj, throughput | `Profile.speedups` relative to the slowest type | ratio |
| w_m, weight | quotas over all types, divided by priorities | GPUs |
| X_mj, time fractions x GPUs per job | `JobType.ideal`, `Decision.ideals` | micro-GPUs, GPUs |
| X_equal | `formulations.shares.equal_split_rates` | GPUs |

Maximise over X the lowest T_m . X_m / (w_m T_m . X_equal), then the next lowest. X_equal is the
capacity of each type divided by the number of jobs, scaled down to at most one GPU per job. Caps
are the GPUs that the jobs of a job type can use. They are constraints, and are not part of X_equal.

Departures, each with its test:

- Gavel turns X into time fractions and serves jobs by priority. Here, shares become leases as in
  every sharing policy (tests/papers/test_oef_rounds.py).
- A job type represents all its jobs: its cap is the sum of their caps, where Gavel has one per
  job (tests/papers/test_gavel.py::TestCap).

A job type limited by its cap is raised with the fastest GPUs that it can use, at the cost of the
others. So the sharing incentive is promised only for rounds in which no cap binds.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from evenshare_core.fairness.certificate import Property
from evenshare_core.fairness.measure import Measured
from evenshare_core.formulations.problems import ShareProblem, ShareRule, ShareSolution
from evenshare_core.policies.options import Options
from evenshare_core.policies.sharing.base import SharingPolicy


class Gavel(SharingPolicy):
    name = "gavel"
    title = "Gavel"
    promise = "The tenant that gains least over an equal split gains as much as possible."
    suits = "Mixed GPU types, for the tenant that gains least; to compare with oef."
    promised = frozenset({Property.SHARING_INCENTIVE})
    program = ShareRule.GAVEL

    share_options = MappingProxyType(
        {"time_fractions": ("true", "false"), **SharingPolicy.share_options}
    )

    def share(self, problem: ShareProblem, chosen: Mapping[str, str]) -> ShareSolution:
        """Solve a problem. With time fractions, as published, the limit is 1 GPU per tenant."""
        if chosen.get("time_fractions") == "true":
            ones = np.minimum(problem.cap, 1.0)
            problem = ShareProblem(problem.speedups, problem.capacity, problem.pi, ones)
        return super().share(problem, chosen)

    def promises(self, options: Options, measured: Measured | None = None) -> frozenset[Property]:
        """Return the promised properties, without the sharing incentive if a cap binds."""
        promised = super().promises(options, measured)
        if measured is not None and measured.judged.capped.any():
            promised -= {Property.SHARING_INCENTIVE}
        return promised


POLICY = Gavel()
