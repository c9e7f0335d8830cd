"""The shared state of the steps in a round's transaction, and rows that several steps write.

`apply` and `grants` use it to write the `RoundPlan` of `scheduling.engine.rounds` under the pool's
fence.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.backends.utils import CursorWrapper

from evenshare_core.domain.decision import Decision, Grant, Renew
from evenshare_core.domain.instants import from_us
from evenshare_core.domain.reasons import SupersededReason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Certificate
from evenshare_core.money.fixed_point import to_credits, to_text, worst_case_micro
from evenshare_core.money.revenue.records import LATE_ROUNDS
from evenshare_core.policies import registry
from scheduling.engine.bulk import insert_rows
from scheduling.engine.events import EventLog
from scheduling.models import Intent, LeaseEvent, PoolFence
from scheduling.selectors.rounds.states import LeftState

Kind = LeaseEvent.Kind


@dataclass(frozen=True)
class RoundPlan:
    """A decided round, ready to be applied at its fencing token.

    `grace_s`: pool seconds that a process has to save its state after a request to stop. `left`:
    the state that the previous round left, which the snapshot contains.
    """

    snapshot: Snapshot
    left: LeftState
    decision: Decision
    certificate: Certificate
    token: int
    wall_at: datetime
    book: str
    scale: int
    grace_s: int
    snapshot_us: int
    decide_us: int


@dataclass
class RoundWrite:
    """The shared state of the steps in one round's transaction.

    `unfunded_jobs`, `unfunded_leases`: those whose next term the tenant's credit no longer covers,
    with the reasons. `spared`: jobs whose lease continues although the decision ends it, with the
    reasons. `preempted`: the number of leases ended before their expiry, by rule. `entitled`: the
    quotas that billing knows after the round.
    """

    plan: RoundPlan
    fence: PoolFence
    cursor: CursorWrapper
    at: datetime
    events: EventLog
    superseded: list[dict[str, Any]] = field(default_factory=list)
    reserved: dict[int, int] = field(default_factory=dict)
    spared: dict[int, SupersededReason] = field(default_factory=dict)
    preempted: Counter[str] = field(default_factory=Counter)
    unfunded_jobs: dict[int, SupersededReason] = field(default_factory=dict)
    unfunded_leases: dict[int, SupersededReason] = field(default_factory=dict)
    entitled: dict[str, Any] = field(default_factory=dict)
    _lengths_us: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self._lengths_us = {row.job: row.lease_us for row in self.plan.decision.lengths}

    def lease_us(self, item: Grant | Renew) -> int:
        """Return the length of a term: from the policy, or else the pool's lease length."""
        return self._lengths_us.get(item.job, self.plan.snapshot.lease_us)

    def expires_at(self, item: Grant | Renew) -> datetime:
        """Return when a term expires, in pool time."""
        return from_us(self.plan.snapshot.at_us + self.lease_us(item))

    @property
    def protected_us(self) -> int:
        """The minimum runtime of new leases from their start; 0 if they are not protected."""
        snapshot = self.plan.snapshot
        return registry.options_of(snapshot).min_runtime_us

    def supersede(self, item: str, id_: int, why: SupersededReason, *, ends: bool = False) -> None:
        """Record that a part of the decision could no longer be applied.

        `ends`: the lease of this part ends for this reason, although the decision did not end it.
        """
        row = {"item": item, "id": id_, "why": why.value}
        self.superseded.append(row | ({"ends": True} if ends else {}))

    def worst_micro(self, item: Grant | Renew) -> int:
        """Return the highest possible cost of a term, in micro-credits."""
        return worst_case_micro(item.borrowed, item.price_micro, self.lease_us(item))

    def reserve(self, item: Grant | Renew) -> None:
        """Reserve the term's highest possible cost in its tenant's budget."""
        worst = self.worst_micro(item)
        self.reserved[item.tenant] = self.reserved.get(item.tenant, 0) + worst


def write_terms(
    write: RoundWrite, items: Sequence[tuple[int, int, Grant | Renew]], kind: LeaseEvent.Kind
) -> None:
    """Record terms (lease, term number, decided figures), their events and reservations."""
    snapshot = write.plan.snapshot
    # Stored at the grant, to decide later whether rounds were late for this term.
    lateness = {"late_us": LATE_ROUNDS * snapshot.round_us}
    if kind is Kind.GRANTED and write.protected_us:
        lateness["protected_us"] = write.protected_us
    insert_rows(
        "scheduling_leaseterm",
        ("lease_id", "number", "round", "starts_at", "expires_at", "own", "borrowed", "price"),
        (
            (
                *(lease, term, snapshot.number, write.at, write.expires_at(item)),
                *(item.own, item.borrowed, to_credits(item.price_micro)),
            )
            for lease, term, item in items
        ),
    )
    for lease, term, item in items:
        write.reserve(item)
        write.events.add(
            kind,
            write.at,
            {
                "own": item.own,
                "borrowed": item.borrowed,
                "price": to_text(item.price_micro),
                "gpu_type": item.gpu_type,
                "expires_us": snapshot.at_us + write.lease_us(item),
                **lateness,
            },
            lease=lease,
            job=item.job,
            tenant=item.tenant,
            term=term,
        )
    if kind is Kind.RENEWED:
        write.cursor.execute(
            "UPDATE scheduling_job SET terms = terms + 1 WHERE id = ANY(%s)",
            [[item.job for _, _, item in items]],
        )


def write_intents(write: RoundWrite, kind: Intent.Kind, leases: Sequence[tuple[int, int]]) -> None:
    """Write intents for the executor, once per (lease, kind, term)."""
    insert_rows(
        "scheduling_intent",
        ("pool_id", "lease_id", "kind", "term", "at", "state", "attempts", "last_error"),
        (
            (write.plan.snapshot.pool, lease, kind.value, term, write.at, "open", 0, "")
            for lease, term in leases
        ),
    )


def set_job_states(write: RoundWrite, jobs: Sequence[int], state: str) -> None:
    """Set the state of running or stopping jobs."""
    write.cursor.execute(
        "UPDATE scheduling_job SET state = %s, version = version + 1"
        " WHERE id = ANY(%s) AND state IN ('running', 'stopping')",
        [state, list(jobs)],
    )
