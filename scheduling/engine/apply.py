"""The one writer of leases, terms, slots and lease events: decisions, and what is observed.

Every function here is one transaction that begins by locking the pool's fence at the caller's
token, so that at most one holder writes and event numbers have no gaps.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import Sum

from billing.money import charge_micro, to_credits, to_text
from scheduling.domain.decision import Decision, Grant, Renew
from scheduling.domain.instants import from_us
from scheduling.domain.snapshot import Snapshot
from scheduling.domain.values import canonical_bytes, sha256_hex
from scheduling.engine.bulk import copy_rows, next_ids
from scheduling.engine.clock import wall_now
from scheduling.engine.events import EventLog
from scheduling.engine.fence import fence_lock
from scheduling.engine.records import entitled_rows, price_row, share_row, summary_row
from scheduling.engine.slots import slots_read
from scheduling.models import (
    GpuType,
    Intent,
    Lease,
    LeaseEvent,
    LeaseSlot,
    Node,
    PoolFence,
    PoolState,
    Round,
    RoundBlob,
)
from tenants.scopes import engine_scope

Kind = LeaseEvent.Kind


@dataclass(frozen=True)
class RoundPlan:
    """A decided round, ready to be applied at its fencing token."""

    snapshot: Snapshot
    decision: Decision
    token: int
    wall_at: datetime
    book: str
    scale: int
    snapshot_us: int
    decide_us: int


@dataclass
class _Write:
    """What the steps of one round's transaction share."""

    plan: RoundPlan
    fence: PoolFence
    cursor: CursorWrapper
    at: datetime
    events: EventLog
    superseded: list[dict[str, Any]] = field(default_factory=list)
    reserved: dict[int, int] = field(default_factory=dict)

    def supersede(self, item: str, id_: int, why: str) -> None:
        """Note that a part of the decision could not be applied any more."""
        self.superseded.append({"item": item, "id": id_, "why": why})

    def reserve(self, item: Grant | Renew) -> None:
        """Set aside the term's worst case from its tenant's budget."""
        worst = charge_micro(item.borrowed, item.price_micro, self.plan.snapshot.lease_us)
        self.reserved[item.tenant] = self.reserved.get(item.tenant, 0) + worst


def round_apply(plan: RoundPlan) -> Round:
    """Write a decided round: all of it in one transaction, or nothing.

    What changed since the snapshot is left out and recorded as superseded.

    Raises:
        FencedError: the pool was taken by another holder since.
        IntegrityError: a round of this instant is committed already.
    """
    snapshot = plan.snapshot
    at = from_us(snapshot.at_us)
    with engine_scope(snapshot.pool), connection.cursor() as cursor:
        fence = fence_lock(snapshot.pool, plan.token)
        events = EventLog(snapshot.pool, snapshot.number, wall_now())
        write = _Write(plan, fence, cursor, at, events)
        _record_entitlements(write)
        renewed = _renew(write)
        ended = _end(write)
        granted = _grant(write)
        _write_reasons(write)
        _write_reserved(write)
        _record_prices(write)
        round_ = _record_round(write, granted=granted, renewed=renewed, ended=ended)
        events.write(fence)
        fence.next_round = snapshot.number + 1
        fence.last_at = fence.last_checked_at = at
        fence.save(update_fields=["next_event", "next_round", "last_at", "last_checked_at"])
    return round_


def _record_entitlements(write: _Write) -> None:
    """Tell billing about effective quotas when they differ from what it was told last."""
    snapshot = write.plan.snapshot
    told = PoolState.objects.values_list("entitled", flat=True).get(pool_id=snapshot.pool)
    now = entitled_rows(snapshot)
    for gpu_type in now:
        if told.get(gpu_type) != now[gpu_type]:
            write.events.add(Kind.ENTITLED, write.at, {"gpu_type": gpu_type, **now[gpu_type]})
    if told != now:
        PoolState.objects.filter(pool_id=snapshot.pool).update(entitled=now)


def _renew(write: _Write) -> int:
    """Give leases one more term on the same GPUs."""
    renewals = write.plan.decision.renewals
    if not renewals:
        return 0
    expires = from_us(write.plan.snapshot.at_us + write.plan.snapshot.lease_us)
    write.cursor.execute(
        """
        UPDATE scheduling_lease l
        SET term = l.term + 1, expires_at = %s, own = x.own, borrowed = x.borrowed,
            price = x.price
        FROM unnest(%s::bigint[], %s::int[], %s::int[], %s::numeric[]) x(id, own, borrowed, price)
        WHERE l.id = x.id AND l.state IN ('waiting', 'launching', 'running')
        RETURNING l.id, l.term
        """,
        [
            expires,
            [item.lease for item in renewals],
            [item.own for item in renewals],
            [item.borrowed for item in renewals],
            [to_credits(item.price_micro) for item in renewals],
        ],
    )
    terms = dict(write.cursor.fetchall())
    done = [item for item in renewals if item.lease in terms]
    for item in renewals:
        if item.lease not in terms:
            write.supersede("renewal", item.lease, "the lease had ended since the snapshot")
    _write_terms(write, [(item.lease, terms[item.lease], item) for item in done], Kind.RENEWED)
    return len(done)


def _end(write: _Write) -> int:
    """Take leases back: the executor is asked to stop them; their jobs will wait again."""
    ends = write.plan.decision.ends
    if not ends:
        return 0
    write.cursor.execute(
        """
        UPDATE scheduling_lease l
        SET state = CASE WHEN l.state = 'waiting' THEN 'ended' ELSE 'stopping' END,
            ended_at = CASE WHEN l.state = 'waiting' THEN %s END,
            end_reason = x.reason
        FROM unnest(%s::bigint[], %s::text[]) x(id, reason)
        WHERE l.id = x.id AND l.state IN ('waiting', 'launching', 'running')
        RETURNING l.id, l.state, l.term, l.job_id
        """,
        [write.at, [item.lease for item in ends], [item.reason.value for item in ends]],
    )
    rows = {row[0]: row for row in write.cursor.fetchall()}
    gone = [lease for lease, row in rows.items() if row[1] == "ended"]
    LeaseSlot.objects.filter(lease_id__in=gone).update(planned=False)
    _job_state(write, [row[3] for row in rows.values() if row[1] == "stopping"], "stopping")
    _job_state(write, [row[3] for row in rows.values() if row[1] == "ended"], "pending")
    for item in ends:
        if item.lease not in rows:
            write.supersede("end", item.lease, "the lease had ended since the snapshot")
            continue
        _, state, term, _ = rows[item.lease]
        who = {"lease": item.lease, "job": item.job, "tenant": item.tenant, "term": term}
        if state == "ended":
            data = {"reason": item.reason.value, "exit_code": None, "started": False}
            write.events.add(Kind.ENDED, write.at, data, **who)
        else:
            write.events.add(Kind.STOP_ASKED, write.at, {"reason": item.reason.value}, **who)
    stopping = [(lease, row[2]) for lease, row in rows.items() if row[1] == "stopping"]
    _intents(write, Intent.Kind.STOP, stopping)
    return len(rows)


def _grant(write: _Write) -> int:
    """Make new leases; those whose GPUs are still being released wait for them."""
    grants = write.plan.decision.grants
    if not grants:
        return 0
    moved = {item.job for item in write.plan.decision.ends}
    write.cursor.execute(
        """
        UPDATE scheduling_job SET state = 'running', leases_held = leases_held + 1,
               terms = terms + 1, reason_code = '', version = version + 1
        WHERE id = ANY(%s) AND (state = 'pending' OR (state = 'stopping' AND id = ANY(%s)))
        RETURNING id, leases_held
        """,
        [[item.job for item in grants], sorted(moved)],
    )
    numbers = dict(write.cursor.fetchall())
    slots = slots_read(node for item in grants for node, _ in item.placement)
    made: list[tuple[Grant, list[tuple[int, int]], bool]] = []
    for item in grants:
        if item.job not in numbers:
            write.supersede("grant", item.job, "the job no longer waited")
            continue
        chosen = slots.take(item.placement)
        if chosen is None:
            write.supersede("grant", item.job, "a node was drained or lost")
            _job_state(write, [item.job], "pending")
            continue
        places, free = chosen
        made.append((item, places, free and item.job not in moved))
    ids = next_ids("scheduling_lease", len(made))
    types = dict(GpuType.objects.values_list("name", "id"))
    copy_rows(
        "scheduling_lease",
        _LEASE_COLUMNS,
        (
            _lease_row(write, id_, item, numbers[item.job], types[item.gpu_type], ready=ready)
            for id_, (item, _, ready) in zip(ids, made, strict=True)
        ),
    )
    copy_rows(
        "scheduling_leaseslot",
        ("lease_id", "node_id", "slot", "holding", "planned"),
        (
            (id_, node, slot, ready, not ready)
            for id_, (_, places, ready) in zip(ids, made, strict=True)
            for node, slot in places
        ),
    )
    granted = zip(ids, made, strict=True)
    _write_terms(write, [(id_, 1, item) for id_, (item, _, _) in granted], Kind.GRANTED)
    launched = [id_ for id_, (_, _, ready) in zip(ids, made, strict=True) if ready]
    _intents(write, Intent.Kind.LAUNCH, [(id_, 1) for id_ in launched])
    return len(made)


_LEASE_COLUMNS = (
    *("id", "pool_id", "tenant_id", "job_id", "gpu_type_id", "number", "state", "gpus"),
    *("placement", "granted_round", "granted_at", "expires_at", "end_reason"),
    *("term", "own", "borrowed", "price"),
)


def _lease_row(
    write: _Write, id_: int, item: Grant, number: int, gpu_type: int, *, ready: bool
) -> tuple[Any, ...]:
    """A new lease's columns: launched at once, or waiting for the leases it succeeds."""
    snapshot = write.plan.snapshot
    state = Lease.State.LAUNCHING if ready else Lease.State.WAITING
    return (
        *(id_, snapshot.pool, item.tenant, item.job, gpu_type, number, state.value),
        *(item.own + item.borrowed, canonical_bytes(item.placement).decode()),
        *(snapshot.number, write.at, from_us(snapshot.at_us + snapshot.lease_us), ""),
        *(1, item.own, item.borrowed, to_credits(item.price_micro)),
    )


def _write_terms(
    write: _Write, items: Sequence[tuple[int, int, Grant | Renew]], kind: LeaseEvent.Kind
) -> None:
    """Record terms (lease, term number, decided figures), their events and reservations."""
    snapshot = write.plan.snapshot
    expires = from_us(snapshot.at_us + snapshot.lease_us)
    copy_rows(
        "scheduling_leaseterm",
        ("lease_id", "number", "round", "starts_at", "expires_at", "own", "borrowed", "price"),
        (
            (
                *(lease, term, snapshot.number, write.at, expires),
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


def _intents(write: _Write, kind: Intent.Kind, leases: Sequence[tuple[int, int]]) -> None:
    """Ask the executor, once per (lease, kind, term)."""
    copy_rows(
        "scheduling_intent",
        ("pool_id", "lease_id", "kind", "term", "at", "state", "attempts", "last_error"),
        (
            (write.plan.snapshot.pool, lease, kind.value, term, write.at, "open", 0, "")
            for lease, term in leases
        ),
    )


def _job_state(write: _Write, jobs: Sequence[int], state: str) -> None:
    write.cursor.execute(
        "UPDATE scheduling_job SET state = %s, version = version + 1"
        " WHERE id = ANY(%s) AND state IN ('running', 'stopping')",
        [state, list(jobs)],
    )


def _write_reasons(write: _Write) -> None:
    """Write why jobs wait, only where the reason changed."""
    write.cursor.execute(
        "SELECT id, reason_code FROM scheduling_job"
        " WHERE pool_id = %s AND state IN ('pending', 'stopping')",
        [write.plan.snapshot.pool],
    )
    known = dict(write.cursor.fetchall())
    changed = [
        (job, skip.reason.value)
        for skip in write.plan.decision.skips
        for job in skip.jobs
        if known.get(job, skip.reason.value) != skip.reason.value
    ]
    if not changed:
        return
    write.cursor.execute(
        """
        UPDATE scheduling_job j SET reason_code = x.reason, reason_round = %s
        FROM unnest(%s::bigint[], %s::text[]) x(id, reason)
        WHERE j.id = x.id
        """,
        [
            write.plan.snapshot.number,
            [job for job, _ in changed],
            [reason for _, reason in changed],
        ],
    )


def _write_reserved(write: _Write) -> None:
    tenants = [tenant for tenant, amount in write.reserved.items() if amount]
    write.cursor.execute(
        # In the order of tenants, as metering and the ledger lock them: no deadlock.
        """
        WITH locked AS (
            SELECT b.id, x.amount FROM tenants_budget b
            JOIN unnest(%s::bigint[], %s::numeric[]) x(tenant, amount) ON x.tenant = b.tenant_id
            WHERE b.book = %s ORDER BY b.tenant_id FOR UPDATE OF b
        )
        UPDATE tenants_budget b SET reserved = b.reserved + locked.amount
        FROM locked WHERE b.id = locked.id
        """,
        [
            tenants,
            [to_credits(write.reserved[tenant]) for tenant in tenants],
            write.plan.book,
        ],
    )


def _record_prices(write: _Write) -> None:
    """Post the prices of the next round."""
    prices = [price_row(price) for price in write.plan.decision.prices]
    valid_from = write.plan.snapshot.number + 1
    write.events.add(Kind.PRICED, write.at, {"valid_from_round": valid_from, "prices": prices})


def _record_round(write: _Write, *, granted: int, renewed: int, ended: int) -> Round:
    plan, snapshot, decision = write.plan, write.plan.snapshot, write.plan.decision
    snapshot_bytes, decision_bytes = canonical_bytes(snapshot), canonical_bytes(decision)
    day = plan.wall_at.date()
    write.cursor.execute("SELECT evenshare_make_blob_day(%s)", [day])
    RoundBlob.objects.bulk_create(
        [
            RoundBlob(
                day=day,
                pool_id=snapshot.pool,
                number=snapshot.number,
                snapshot=zlib.compress(snapshot_bytes, 1),
                decision=zlib.compress(decision_bytes, 1),
            )
        ]
    )
    PoolState.objects.filter(pool_id=snapshot.pool).update(
        round=snapshot.number,
        at=write.at,
        service=canonical_bytes(decision.service),
        policy=snapshot.policy,
        policy_version=snapshot.policy_version,
        memory=canonical_bytes(decision.memory),
        prices=[
            {
                "gpu_type": price.gpu_type,
                "price_micro": price.price_micro,
                "used": price.used,
                "capacity": price.capacity,
            }
            for price in decision.prices
        ],
    )
    return Round.objects.create(
        pool_id=snapshot.pool,
        number=snapshot.number,
        at=write.at,
        wall_at=plan.wall_at,
        token=plan.token,
        policy=snapshot.policy,
        policy_version=snapshot.policy_version,
        scale=plan.scale,
        snapshot_sha256=sha256_hex(snapshot_bytes),
        decision_sha256=sha256_hex(decision_bytes),
        snapshot_us=plan.snapshot_us,
        decide_us=plan.decide_us,
        summary={
            "gpus": Node.objects.filter(pool_id=snapshot.pool).aggregate(all=Sum("gpus"))["all"],
            **summary_row(snapshot, decision, granted=granted, renewed=renewed, ended=ended),
        },
        shares=[share_row(share) for share in decision.shares],
        superseded=write.superseded,
    )
