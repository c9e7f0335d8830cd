"""Redaction of a snapshot: data that its round did not read is left out of the disclosed round.

Data of jobs is left out if the policy does not read it (`Policy.reads`). Limits that cannot bind in
the round are left out, too: maximum prices above all its posted prices, and credit that covers all
possible borrowing. Of the ranks of a tenant's jobs, only the resulting order remains. The decision
and the certificate do not change (tests/unit/core/test_redaction.py).

Some data stays although it may be sensitive. Profiles stay because certificates use them under any
policy. Limits that might bind stay, whether or not they did. Maximum prices stay if a policy uses
jobs' values, because it reads them as bids.
"""

from typing import Any

from msgspec.structs import replace

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Snapshot, with_schema
from evenshare_core.money.fixed_point import worst_case_micro
from evenshare_core.policies import registry
from evenshare_core.policies.policy import Private
from evenshare_core.policies.shared.places import disclosed_ranks

_OF_JOBS = (Private.ESTIMATE, Private.DEADLINE)


def redacted(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without data that its round did not read.

    Raises:
        UnknownPolicyError: the pool's policy does not exist.
        OptionError: the pool's options are invalid.
    """
    options = registry.options_of(snapshot)
    policy = registry.policy(snapshot.policy)
    reads = policy.reads(options)
    unread = [part for part in Private if part not in reads]
    changes: dict[str, Any] = {part.value: () for part in unread if part not in _OF_JOBS}
    of_jobs = [part.value for part in unread if part in _OF_JOBS]
    prices = None if policy.value_rule(options) else _Prices(snapshot)
    new = replace(
        snapshot,
        **changes,
        jobs=tuple(_job(job, of_jobs, prices) for job in snapshot.jobs),
        tenants=_tenants(snapshot),
        ranks=disclosed_ranks(snapshot),
    )
    return with_schema(new)


class _Prices:
    """The posted prices that may apply to a job in a round."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._prices = {row.gpu_type: row.price_micro for row in snapshot.prices}
        self._dearest_micro = max(self._prices.values(), default=0)
        # Included, because a job may have restricted its accepted types after it got these.
        self._held = {row.job: row.gpu_type for row in snapshot.leases}
        self._claimed = {row.job: row.gpu_type for row in snapshot.service.jobs}

    def may_exceed(self, job: Job, most_micro: int) -> bool:
        """Return whether a term of the job may cost more than its maximum price."""
        if self._dearest_micro <= most_micro:
            return False
        if not job.gpu_types:
            return True
        types = (*job.gpu_types, self._held.get(job.id, ""), self._claimed.get(job.id, ""))
        return any(self._prices.get(name, 0) > most_micro for name in types)


def _job(job: Job, unread: list[str], prices: _Prices | None) -> Job:
    """Return a redacted job; `prices` is None if the policy uses the maximum price as a bid."""
    changes = dict.fromkeys(name for name in unread if getattr(job, name) is not None)
    most_micro = job.max_price_micro
    if prices is not None and most_micro is not None and not prices.may_exceed(job, most_micro):
        changes["max_price_micro"] = None
    return replace(job, **changes) if changes else job


def _tenants(snapshot: Snapshot) -> tuple[Any, ...]:
    """Return the tenants, without credit that covers everything they could borrow."""
    if all(row.spendable_micro is None for row in snapshot.tenants):
        return snapshot.tenants
    dearest_micro = max((row.price_micro for row in snapshot.prices), default=0)
    asked: dict[int, int] = {}
    for job in snapshot.jobs:
        cost_micro = worst_case_micro(job.gpus, dearest_micro, snapshot.longest_us)
        # The cost of a queued job is rounded up for each of its GPUs.
        asked[job.tenant] = asked.get(job.tenant, 0) + cost_micro + job.gpus
    largest = max((job.gpus for job in snapshot.jobs), default=0)
    most_micro = None
    if not snapshot.surcharges:
        gpus = sum(capacity_by_type(snapshot.nodes).values()) + largest
        most_micro = worst_case_micro(gpus, dearest_micro, snapshot.longest_us) + gpus
    return tuple(
        replace(row, spendable_micro=None)
        if row.spendable_micro is not None
        and row.spendable_micro
        >= min(
            asked.get(row.id, 0),
            asked.get(row.id, 0) if most_micro is None else most_micro,
        )
        else row
        for row in snapshot.tenants
    )
