"""Build consecutive rounds as the engine would read them, for tests of `following`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Change, ChangeKind, Snapshot
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import options
from evenshare_core.units import SECOND_US
from evenshare_core.verification.following_ids import StoredRound
from tests.unit.core.snapshots import job, snapshot

STEP_US = 10 * SECOND_US
LEASE_US = 20 * SECOND_US


def first_round(policy: str = "ltgf", **fields: Any) -> Snapshot:
    """Return a round with two tenants and four jobs, two of which get GPUs; ids are 10, 11, ..."""
    jobs = (job(11, 2), job(12, 2, tenant=2), job(13, 4, tenant=2), job(14, 1))
    rest: dict[str, Any] = {"policy": policy, "lease_us": LEASE_US, "price_micro": 3}
    return snapshot(
        jobs,
        nodes={5: 4},
        quotas=(Entitlement(1, "v100", 2), Entitlement(2, "v100", 2)),
        **(rest | fields),
    )


def next_round(
    before: Snapshot,
    decision: Decision,
    changes: Sequence[Change] = (),
    *,
    gone: Sequence[int] = (),
    new: Sequence[Job] = (),
) -> Snapshot:
    """Return the round after it: every granted lease has started a second after its grant.

    `gone` has the jobs that are missing because their process is being stopped or has ended. `new`
    has the jobs that arrived.
    """
    since_us = before.at_us + SECOND_US
    grants = sorted(decision.grants, key=lambda grant: grant.job)
    renewed = {row.lease: row for row in decision.renewals}
    ended = {row.lease for row in decision.ends}
    leases = []
    for lease in before.leases:
        if lease.id in ended or lease.job in gone:
            continue
        if lease.id in renewed:
            term = renewed[lease.id]
            leases.append(
                replace(
                    lease, term=lease.term + 1, expires_us=before.at_us + before.lease_us,
                    own=term.own, borrowed=term.borrowed, price_micro=term.price_micro,
                )
            )  # fmt: skip
        else:
            leases.append(lease)
    starts = []
    protected_us = options(before.policy, before.options).min_runtime_us
    first = max((lease.id for lease in before.leases), default=100) + 1
    for id_, row in enumerate((row for row in grants if row.job not in gone), first):
        leases.append(
            Lease(
                id_, row.job, row.tenant, row.gpu_type, row.placement, since_us,
                before.at_us + before.lease_us, 1, row.own, row.borrowed, row.price_micro,
                since_us + protected_us if protected_us else 0,
            )
        )  # fmt: skip
        hold = Change(
            since_us, ChangeKind.HOLD, row.tenant, row.job, row.own + row.borrowed, ("v100",)
        )
        starts.append(hold)
    terms = {row.job for row in grants} | {row.job for row in decision.renewals}
    jobs = [
        replace(row, terms=row.terms + (row.id in terms))
        for row in (*before.jobs, *new)
        if row.id not in gone
    ]
    timed = sorted((*starts, *changes), key=lambda change: change.at_us)
    prices = tuple(replace(row, base_micro=77) for row in decision.prices)
    return replace(
        before, number=before.number + 1, at_us=before.at_us + STEP_US, jobs=tuple(jobs),
        leases=tuple(sorted(leases, key=lambda lease: lease.id)), prices=prices,
        changes=tuple(timed), service=decision.service, memory=decision.memory,
    )  # fmt: skip


def history(policy: str = "ltgf") -> list[StoredRound]:
    """Return four rounds: jobs start, one arrives, one ends, a lease is renewed, others start."""
    one = first_round(policy)
    decided = decide_round(one)
    at_us = one.at_us + 3 * SECOND_US
    came = [Change(at_us, ChangeKind.ACTIVE, 1, 15, 1, ("v100",))]
    two = next_round(one, decided, came, new=[job(15, 1, gpu_types=("v100",))])
    decided_two = decide_round(two)
    at_us = two.at_us + 4 * SECOND_US
    over = [
        Change(at_us, ChangeKind.RELEASE, 1, 11),
        Change(at_us, ChangeKind.INACTIVE, 1, 11),
    ]
    three = next_round(two, decided_two, over, gone=[11])
    decided_three = decide_round(three)
    four = next_round(three, decided_three)
    return [
        StoredRound(one, decided, ()),
        StoredRound(two, decided_two, ()),
        StoredRound(three, decided_three, ()),
        StoredRound(four, decide_round(four), ()),
    ]
