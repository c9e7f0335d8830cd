"""Runs of the same jobs under several policies: figures of the pool and of each tenant.

| figure | of which jobs, leases and terms |
|---|---|
| waits, completion times, sharing loss | jobs that ended, without cancelled ones |
| deadlines | jobs with a deadline, without cancelled ones; met: in time for any of their points |
| preemptions, GPU-time | all leases |
| charges, income | all terms; income of a pool is that of its tenants, without the operator's |

Formulas: docs/metrics.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from evenshare_core.policies.registry import options as policy_options
from evenshare_core.policies.registry import policy as policy_named
from evenshare_core.simulation.books import LeaseRecord
from evenshare_core.simulation.deadline_figures import PREEMPTED, values_lost
from evenshare_core.simulation.figures import Figures, figures_of
from evenshare_core.simulation.scenario import Scenario, run_policy
from evenshare_core.simulation.simulator import SimulationResult
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import SimJob

WAIT_PERCENTILE = 95
NO_TENANT = 0  # the operator, in the books


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Figures of the jobs of a pool or a tenant in a run; None without data.

    `jobs` were submitted, `ended` of them ended without being cancelled, and `never_ending` can
    never end. Times are in seconds, shares from 0 to 1, `charged_micro` and `earned_micro` in
    micro-credits.
    """

    jobs: int
    ended: int
    never_ending: int
    avg_queue_s: float | None
    p95_queue_s: float | None
    avg_jct_s: float | None
    deadlines: int
    deadlines_met: int
    sharing_loss_jobs: float | None
    tenant_unfair_intervals: float | None
    tenant_deficit: float | None
    preemptions: int
    gpu_us: int
    charged_micro: int
    earned_micro: int


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """A run under a policy: its rules, its hash, and the figures of the pool and its tenants.

    `options` are complete. `sha256` is that of `Books.sha256`. `tenants` are by their numbers.
    """

    policy: str
    version: str
    options: Mapping[str, Any]
    rounds: int
    sha256: str
    pool: RunFigures
    tenants: Mapping[int, RunFigures]


def stated_rules(rules: Rules) -> tuple[str, str, dict[str, Any]]:
    """Return a policy's name, its version and all its options, as hashes of runs state them."""
    chosen = policy_options(rules.policy, dict(rules.options))
    return rules.policy, policy_named(rules.policy).version, msgspec.to_builtins(chosen)


def run_rules(
    scenario: Scenario, rules: Rules, *, progress: Callable[[int], None] | None = None
) -> PolicyRun:
    """Run a scenario under a policy, and return its figures. `progress`: as `run_policy`.

    Raises:
        ConservationError, InvariantViolation: as `simulate`.
    """
    outcome = run_policy(scenario, rules, progress=progress)
    figures = figures_of(scenario.cluster, scenario.workload.jobs, outcome.books)
    parts = {tenant: _PartOfRun() for tenant in scenario.workload.tenants}
    whole = _PartOfRun()
    for one in scenario.workload.jobs:
        whole.jobs[one.id] = parts[one.tenant].jobs[one.id] = one
    for lease in outcome.books.leases:
        whole.leases.append(lease)
        parts[whole.jobs[lease.job].tenant].leases.append(lease)
    for job, lost in values_lost(scenario.workload.jobs, outcome.books).items():
        whole.lost.append(lost)
        parts[whole.jobs[job].tenant].lost.append(lost)
    tenants = {
        tenant: _figures(outcome, figures.of_tenant(tenant), part, tenant)
        for tenant, part in parts.items()
    }
    return PolicyRun(
        *stated_rules(rules), outcome.rounds, outcome.books.sha256(),
        _figures(outcome, figures, whole), tenants,
    )  # fmt: skip # rows of what belongs together


@dataclass(slots=True)
class _PartOfRun:
    """The jobs by id, the leases, and the lost values of deadlines, of a tenant or of the pool."""

    jobs: dict[int, SimJob] = field(default_factory=dict)
    leases: list[LeaseRecord] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)


def _figures(
    outcome: SimulationResult, figures: Figures, part: _PartOfRun, tenant: int | None = None
) -> RunFigures:
    """Return the figures of a tenant, or of the pool; `figures` and `part` are of the same."""
    return RunFigures(
        jobs=len(part.jobs),
        ended=len(figures.jobs),
        never_ending=sum(job in part.jobs for job in outcome.stranded),
        avg_queue_s=figures.mean("queue_s"),
        p95_queue_s=figures.percentile("queue_s", WAIT_PERCENTILE),
        avg_jct_s=figures.mean("jct_s"),
        deadlines=len(part.lost),
        deadlines_met=sum(lost < 1 for lost in part.lost),
        sharing_loss_jobs=figures.sharing_loss,
        tenant_unfair_intervals=figures.unfair_intervals,
        tenant_deficit=figures.deficit,
        preemptions=sum(row.reason in PREEMPTED for row in part.leases),
        gpu_us=sum((row.end_us - row.start_us) * part.jobs[row.job].gpus for row in part.leases),
        charged_micro=_sum(outcome.books.charged, tenant),
        earned_micro=_sum(outcome.books.earned, tenant),
    )


def _sum(amounts: Mapping[int, int], tenant: int | None) -> int:
    """Return the amount of a tenant, or of all tenants without the operator."""
    if tenant is not None:
        return amounts.get(tenant, 0)
    return sum(amount for holder, amount in amounts.items() if holder != NO_TENANT)
