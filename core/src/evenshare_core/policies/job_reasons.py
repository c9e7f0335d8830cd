"""Reasons why a single job waits, from a decision that groups jobs by reason.

Ten thousand jobs may wait in a round. So a decision keeps a reason's numbers for only one job of
each group, the smallest or the first. For other jobs, this module computes the numbers from the
snapshot and the decision. Numbers that cannot be computed are left out.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from evenshare_core.domain.decision import Decision, Skip
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.gpu_time import job_received
from evenshare_core.money.fixed_point import worst_case_micro
from evenshare_core.policies.options import OptionError
from evenshare_core.policies.registry import POLICIES

# Reasons that show the numbers of the group's first job, except the numbers in `OF_EACH`.
OF_THE_FIRST = frozenset({Reason.PLANNED_LATER, Reason.PRICE_ABOVE_VALUE})
Turns = Mapping[tuple[int, str], Mapping[str, Any]]  # numbers by (tenant, GPU type)
OF_EACH = frozenset({"gpu_type", "needed", "other_types"})


class OwnReason(NamedTuple):
    """The reason why a job waits, with the job's own numbers. `jobs` is the size of its group."""

    reason: Reason
    numbers: dict[str, Any]
    jobs: int


def reason_of(snapshot: Snapshot, decision: Decision, job_id: int) -> OwnReason | None:
    """Return why a job still waits after a round, or None if it does not wait or is unknown."""
    skip = next((row for row in decision.skips if job_id in row.jobs), None)
    job = next((row for row in snapshot.jobs if row.id == job_id), None)
    if skip is None:
        return None
    if job is None:  # a held job, whose reason is the whole group's
        return OwnReason(skip.reason, dict(skip.numbers), len(skip.jobs))
    is_turn = skip.reason is Reason.LEASE_TURN
    turns = turns_of(snapshot, decision) if is_turn else {}
    numbers = {**group_numbers(skip, turns), **_own(snapshot, decision, skip, job)}
    known = {name: value for name, value in numbers.items() if value is not None}
    return OwnReason(skip.reason, known, len(skip.jobs))


def turns_of(snapshot: Snapshot, decision: Decision) -> Turns:
    """Return the numbers by which a round ranked its tenants, by (tenant, GPU type).

    The result is empty if the policy does not rank by numbers, or if another version of the policy
    decided the round.
    """
    policy = POLICIES.get(snapshot.policy)
    if policy is None or not policy.decides_as(snapshot.policy_version):
        return {}  # the memory of another version may have other fields
    try:
        chosen = policy.options_of(snapshot)
    except OptionError:
        return {}
    return policy.turn_numbers(chosen, snapshot.lease_us, decision)


def group_numbers(skip: Skip, turns: Turns) -> dict[str, Any]:
    """Return the known numbers of a group; for `LEASE_TURN`, also the tenant's turn numbers."""
    numbers = {name: value for name, value in skip.numbers.items() if value is not None}
    if skip.reason is not Reason.LEASE_TURN:
        return numbers
    return {**numbers, **turns.get((skip.tenant, numbers.get("gpu_type", "")), {})}


def _own(snapshot: Snapshot, decision: Decision, skip: Skip, job: Job) -> dict[str, Any]:
    """Return the numbers that differ for this job. The value of an unknown number is None."""
    numbers = skip.numbers
    own: dict[str, Any] = {}
    if skip.reason in OF_THE_FIRST and job.id != skip.jobs[0]:
        own |= dict.fromkeys(set(numbers) - OF_EACH)
    if "needed" in numbers or skip.reason is Reason.LEASE_TURN:
        own["needed"] = job.gpus
    if "max_price_micro" in numbers:
        own["max_price_micro"] = job.max_price_micro
        posted = {row.gpu_type: row.price_micro for row in snapshot.prices}
        is_posted = numbers.get("price_micro") == posted.get(numbers.get("gpu_type", ""))
        if not is_posted and job.id != skip.jobs[0]:
            own["price_micro"] = None  # this price comes from the plan of the group's first job
    if "needed_micro" in numbers:
        own["needed_micro"] = _term_cost(snapshot, decision, skip, job)
    if skip.reason is Reason.CPUS_OR_MEMORY:
        needs = next((row for row in snapshot.job_resources if row.id == job.id), None)
        if needs is not None:
            own |= {"cpus": needs.cpus, "memory_mb": needs.memory_mb}
    if skip.reason is Reason.LEASE_TURN:
        sums = next((row for row in decision.service.jobs if row.job == job.id), None)
        own["attained_gpu_us"] = None if sums is None else job_received(sums, decision.at_us)
    return own


def _term_cost(snapshot: Snapshot, decision: Decision, skip: Skip, job: Job) -> int | None:
    """Return the maximum cost of the job's term; None if the stored cost is not reproducible.

    The tenant would borrow the GPUs that exceed its quota, given its use after the round. The
    stored cost is that of one job of the group.
    """
    gpu_type = skip.numbers.get("gpu_type", "")
    stored = skip.numbers["needed_micro"]
    price = next((row.price_micro for row in snapshot.prices if row.gpu_type == gpu_type), 0)
    share = next(
        (row for row in decision.shares if (row.tenant, row.gpu_type) == (job.tenant, gpu_type)),
        None,
    )
    left = 0 if share is None else max(0, share.quota - share.own)
    gpus = {row.id: row.gpus for row in snapshot.jobs}
    for sample in sorted({gpus[one] for one in skip.jobs if one in gpus}):
        if worst_case_micro(max(0, sample - left), price, snapshot.lease_us) == stored:
            return worst_case_micro(max(0, job.gpus - left), price, snapshot.lease_us)
    return stored if job.id == skip.jobs[0] and len(skip.jobs) == 1 else None
