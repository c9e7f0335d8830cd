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
are constraints, and are not part of X_equal:

- A job type gets at most the GPUs that its jobs can use.
- Option `time_fractions` (default): the time fractions of a job sum to at most 1, as in Gavel's
  program and in expression (3) of OEF. Both papers have one job per row. So a job type counts as
  one job, and gets at most the GPUs of its largest gang. Step 5 of a round offers the rest.

Departures, each with its test:

- Gavel turns X into time fractions and serves jobs by priority. Here, shares become leases as in
  every sharing policy (tests/papers/test_oef_rounds.py).
- Without `time_fractions`, a job type represents all its jobs. Its cap is the sum of their caps;
  Gavel has one per job (tests/papers/test_gavel.py::TestCap).

A job type limited by its cap is raised with the fastest GPUs that it can use, at the cost of the
others. So the sharing incentive is promised only for rounds in which no cap binds.

Rounds that version 5 decided have no time fractions
(tests/papers/test_gavel.py::TestTimeFractions).
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated

import numpy as np
from msgspec import Meta

from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Property
from evenshare_core.fairness.measure import Measured
from evenshare_core.formulations.problems import ShareProblem, ShareRule, ShareSolution
from evenshare_core.policies.options import Options
from evenshare_core.policies.sharing.base import SharingOptions, SharingPolicy, is_former
from evenshare_core.policies.sharing.job_types import (
    JobType,
    read_job_types,
)

# Shares are in whole micro-GPUs, so a share at its cap may be this much below it.
SLACK = 1e-5


class GavelOptions(SharingOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    time_fractions: Annotated[
        bool,
        Meta(
            description="A job type counts as one job, as published: its share is at most the GPUs"
            " of its largest gang. Off: at most the GPUs of all its jobs."
        ),
    ] = True


class Gavel(SharingPolicy):
    name = "gavel"
    title = "Gavel"
    promise = "The tenant that gains least over an equal split gains as much as possible."
    suits = "Mixed GPU types, for the tenant that gains least; to compare with oef."
    promised = frozenset({Property.SHARING_INCENTIVE})
    options_type = GavelOptions
    program = ShareRule.GAVEL

    share_options = MappingProxyType(
        {"time_fractions": ("true", "false"), **SharingPolicy.share_options}
    )

    def share(self, problem: ShareProblem, chosen: Mapping[str, str]) -> ShareSolution:
        """Solve a problem. With time fractions, as published, the limit is 1 GPU per tenant."""
        if chosen.get("time_fractions") == "true":
            ones = np.minimum(problem.cap, 1.0)
            problem = ShareProblem(problem.speedups, problem.capacity, problem.pi, ones)
        return super().share(
            problem, {key: value for key, value in chosen.items() if key != "time_fractions"}
        )

    def most_gpus(self, snapshot: Snapshot, options: SharingOptions) -> Callable[[JobType], int]:
        """Return the function that gives the most GPUs, by the version of the round."""
        return attrgetter("largest" if _is_one_job(snapshot, options) else "most")

    def promises(self, options: Options, measured: Measured | None = None) -> frozenset[Property]:
        """Return the promised properties, without the sharing incentive if a cap binds."""
        promised = super().promises(options, measured)
        if measured is None:
            return promised
        capped = measured.judged.capped.any()
        assert isinstance(options, SharingOptions)  # noqa: S101 - narrows; of `options_type`
        if capped or (_is_one_job(measured.snapshot, options) and _limits_bind(measured)):
            promised -= {Property.SHARING_INCENTIVE}
        return promised


def _is_one_job(snapshot: Snapshot, options: SharingOptions) -> bool:
    """Return whether a job type counts as one job. Version 5 had no such option."""
    assert isinstance(options, GavelOptions)  # noqa: S101 - narrows; of `options_type`
    return options.time_fractions and not is_former(snapshot)


def _limits_bind(measured: Measured) -> bool:
    """Return whether a job type's share is as large as its largest gang."""
    _, job_types = read_job_types(measured.snapshot, by_starvation=False)
    largest = {one.key: one.largest for one in job_types}
    shares = measured.judged.shares.sum(axis=1)
    return any(
        share >= largest[row] - SLACK
        for row, share in zip(measured.judged.rows, shares, strict=True)
    )


POLICY = Gavel()
