"""Applies decisions.

Leases, terms, slots and lease events have a single writer: this module, `scheduling.engine.observe`
(for the executors' reports) and `scheduling.engine.revoke` (for cancellations). Every write is one
transaction, which first locks the pool's fence at the caller's token. So at most one process writes
at a time, and event numbers have no gaps.
"""

import zlib
from typing import NamedTuple

from django.db import connection
from django.db.models import Sum

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.decision import End, with_swaps
from evenshare_core.domain.instants import from_us
from evenshare_core.domain.reasons import EndReason, Reason, SupersededReason
from evenshare_core.domain.values import canonical_bytes, sha256_hex
from evenshare_core.fairness.certificate import plain
from evenshare_core.fairness.ended import ended_jobs
from evenshare_core.money.fixed_point import to_credits
from evenshare_core.policies.shared.places import places_after
from scheduling.engine.answers import write_answers
from scheduling.engine.clock import wall_now
from scheduling.engine.events import EventLog
from scheduling.engine.fence import lock_fence
from scheduling.engine.grants import write_grants
from scheduling.engine.holds import hold_credit, write_reserved
from scheduling.engine.plans import write_plans
from scheduling.engine.preempt import notices_of, spared_leases
from scheduling.engine.promise_events import record_promises
from scheduling.engine.records import (
    entitled_rows,
    fallback_text,
    preempted_row,
    price_row,
    share_rows,
    summary_row,
    surcharge_row,
    throughputs,
    trade_row,
)
from scheduling.engine.states import keep_state
from scheduling.engine.write import (
    Kind,
    RoundPlan,
    RoundWrite,
    set_job_states,
    write_intents,
    write_terms,
)
from scheduling.models import (
    Intent,
    LeaseSlot,
    Node,
    Round,
    RoundBlob,
)
from scheduling.selectors.rounds.states import LeftState, posted_prices
from tenants.faults import fault_point
from tenants.scopes import engine_scope

# The maximum length of a note, as in the database.
NOTE_CHARACTERS = 255


def apply_round(plan: RoundPlan) -> Round:
    """Write a decided round in one transaction.

    Parts whose facts changed since the snapshot are left out and recorded as superseded.

    Raises:
        FencedError: another holder has taken the pool.
        IntegrityError: a round with the same time is committed already.
    """
    snapshot = plan.snapshot
    at = from_us(snapshot.at_us)
    with engine_scope(snapshot.pool), connection.cursor() as cursor:
        fence = lock_fence(snapshot.pool, plan.token)
        events = EventLog(snapshot.pool, snapshot.number, wall_now())
        write = RoundWrite(plan, fence, cursor, at, events)
        hold_credit(write)
        _record_entitlements(write)
        _record_trades(write)
        record_promises(write)
        renewed = _renew(write)
        fault_point("round.first_write")
        ended = _end(write)
        granted = write_grants(write)
        fault_point("round.mid_write")
        _write_reasons(write)
        write_plans(write)
        write_answers(write)
        _write_ended(write)
        _write_places(write)
        write_reserved(write)
        _record_prices(write)
        round_ = _record_round(write, granted=granted, renewed=renewed, ended=ended)
        events.write(fence)
        fence.next_round = snapshot.number + 1
        fence.last_at = fence.last_checked_at = at
        fence.save(update_fields=["next_event", "next_round", "last_at", "last_checked_at"])
        fault_point("round.before_commit")
    return round_


def _record_entitlements(write: RoundWrite) -> None:
    """Record effective quotas as events for billing if they changed.

    Trades are applied first: a tenant that received GPUs in a trade also lends them while they are
    idle.
    """
    snapshot = with_swaps(write.plan.snapshot, write.plan.decision.swaps)
    before = write.plan.left.entitled
    now = entitled_rows(snapshot, known=before)
    for gpu_type in now:
        if before.get(gpu_type) != now[gpu_type]:
            write.events.add(Kind.ENTITLED, write.at, {"gpu_type": gpu_type, **now[gpu_type]})
    write.entitled = now


def _record_trades(write: RoundWrite) -> None:
    """Record trades and their reversals as events, which are kept longer than the round's data."""
    for trade in write.plan.decision.trades:
        write.events.add(Kind.TRADED, write.at, trade_row(trade))


def _renew(write: RoundWrite) -> int:
    """Renew leases on the same GPUs; return how many were renewed."""
    unfunded = write.unfunded_leases
    renewals = [item for item in write.plan.decision.renewals if item.lease not in unfunded]
    for lease, why in unfunded.items():
        write.supersede("renewal", lease, why, ends=True)
    if not renewals:
        return 0
    write.cursor.execute(
        """
        UPDATE scheduling_lease l
        SET term = l.term + 1, expires_at = x.expires, own = x.own, borrowed = x.borrowed,
            price = x.price
        FROM unnest(%s::bigint[], %s::timestamptz[], %s::int[], %s::int[], %s::numeric[])
             x(id, expires, own, borrowed, price)
        WHERE l.id = x.id AND l.state IN ('waiting', 'launching', 'running')
        RETURNING l.id, l.term
        """,
        [
            [item.lease for item in renewals],
            [write.expires_at(item) for item in renewals],
            [item.own for item in renewals],
            [item.borrowed for item in renewals],
            [to_credits(item.price_micro) for item in renewals],
        ],
    )
    terms = dict(write.cursor.fetchall())
    done = [item for item in renewals if item.lease in terms]
    for item in renewals:
        if item.lease not in terms:
            write.supersede("renewal", item.lease, SupersededReason.LEASE_ENDED)
    write_terms(write, [(item.lease, terms[item.lease], item) for item in done], Kind.RENEWED)
    return len(done)


class _TakenBack(NamedTuple):
    """A lease that a round takes back: either it has ended or its process must still stop."""

    lease: int
    state: str
    term: int
    job: int


def _end(write: RoundWrite) -> int:
    """Take leases back: ask the executor to stop them, and return their jobs to the queue.

    If a lease is taken back before its expiry, the event with the notice names the rule for it.
    """
    spared, notices = spared_leases(write), notices_of(write.plan)
    ends = []
    for end in write.plan.decision.ends:
        if end.lease in spared:
            write.spared[end.job] = spared[end.lease]
            write.supersede("end", end.lease, spared[end.lease])
        else:
            ends.append(end)
    ends += _unfunded_ends(write)
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
    taken = {row.lease: row for row in map(_TakenBack._make, write.cursor.fetchall())}
    stopping = [row for row in taken.values() if row.state == "stopping"]
    ended = [row for row in taken.values() if row.state == "ended"]
    LeaseSlot.objects.filter(lease_id__in=[row.lease for row in ended]).update(planned=False)
    set_job_states(write, [row.job for row in stopping], "stopping")
    set_job_states(write, [row.job for row in ended], "pending")
    for item in ends:
        if item.lease not in taken:
            write.supersede("end", item.lease, SupersededReason.LEASE_ENDED)
            continue
        row, notice = taken[item.lease], notices.get(item.lease, {})
        write.preempted.update([notice["rule"]] if notice else [])
        who = {"lease": item.lease, "job": item.job, "tenant": item.tenant, "term": row.term}
        if row.state == "ended":
            data = {"reason": item.reason.value, "exit_code": None, "started": False, **notice}
            write.events.add(Kind.ENDED, write.at, data, **who)
        else:
            data = {"reason": item.reason.value, **notice}
            write.events.add(Kind.STOP_ASKED, write.at, data, **who)
    write_intents(write, Intent.Kind.STOP, [(row.lease, row.term) for row in stopping])
    return len(taken)


def _unfunded_ends(write: RoundWrite) -> list[End]:
    """Return an `End` for each renewal whose next term cannot be paid."""
    return [
        End(item.lease, item.job, item.tenant, EndReason.BUDGET)
        for item in write.plan.decision.renewals
        if item.lease in write.unfunded_leases
    ]


def _write_reasons(write: RoundWrite) -> None:
    """Write the reasons why jobs wait, if they changed."""
    write.cursor.execute(
        "SELECT id, reason_code FROM scheduling_job"
        " WHERE pool_id = %s AND state IN ('pending', 'stopping')",
        [write.plan.snapshot.pool],
    )
    known = dict(write.cursor.fetchall())
    reasons = {job: skip.reason for skip in write.plan.decision.skips for job in skip.jobs}
    reasons |= dict.fromkeys(write.unfunded_jobs, Reason.BUDGET)
    reasons |= {end.job: Reason.BUDGET for end in _unfunded_ends(write)}
    changed = [
        (job, reason.value)
        for job, reason in reasons.items()
        if known.get(job, reason.value) != reason.value
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


def _record_prices(write: RoundWrite) -> None:
    decision = write.plan.decision
    extra = {row.gpu_type: surcharge_row(row) for row in decision.surcharges}
    prices = [price_row(price) | extra.get(price.gpu_type, {}) for price in decision.prices]
    valid_from = write.plan.snapshot.number + 1
    write.events.add(Kind.PRICED, write.at, {"valid_from_round": valid_from, "prices": prices})


def _record_round(write: RoundWrite, *, granted: int, renewed: int, ended: int) -> Round:
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
    left = LeftState(
        number=snapshot.number,
        at=write.at,
        policy=snapshot.policy,
        policy_version=snapshot.policy_version,
        service=canonical_bytes(decision.service),
        memory=canonical_bytes(decision.memory),
        prices=posted_prices(plan.left.prices, decision),
        entitled=write.entitled,
    )
    keep_state(snapshot.pool, left, day)
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
            "gpus": _gpus_of_nodes(snapshot.pool),
            **summary_row(snapshot, decision, granted=granted, renewed=renewed, ended=ended),
            **preempted_row(write.preempted),
        },
        shares=share_rows(decision, throughputs(snapshot, decision)),
        superseded=write.superseded,
        certificate=plain(plan.certificate),
        fallback=fallback_text(decision),
        state_sha256=left.sha256(),
        state_note=plan.left.note[:NOTE_CHARACTERS],
    )


def _gpus_of_nodes(pool_id: int) -> int:
    """Return the number of GPUs of a pool's nodes; count nodes that are down, too."""
    nodes = Node.objects.filter(pool_id=pool_id)
    gpus: int = nodes.aggregate(all=Sum("gpus", default=0))["all"]
    return gpus


def _write_ended(write: RoundWrite) -> None:
    """Store the GPU-time of jobs that ended since the last round; at most one statement.

    The sums of later rounds do not contain these jobs, and the round's bytes are kept for a limited
    time.
    """
    snapshot = write.plan.snapshot
    ended = ended_jobs(snapshot.service, snapshot.changes, capacity_by_type(snapshot.nodes))
    if not ended:
        return
    write.cursor.execute(
        """
        UPDATE scheduling_job j
        -- A job that was held counts the time before the hold, too.
        SET received_gpu_us = coalesce(j.received_gpu_us, 0) + x.received,
            deserved_gpu_us = coalesce(j.deserved_gpu_us, 0) + x.deserved
        FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) x(id, received, deserved)
        WHERE j.id = x.id
        """,
        [
            list(ended),
            [row.received_gpu_us for row in ended.values()],
            [row.deserved_gpu_us for row in ended.values()],
        ],
    )


def _write_places(write: RoundWrite) -> None:
    """Store the places after the round; at most one statement.

    A job that was held or released since the snapshot has another arrival, and keeps it.
    """
    snapshot = write.plan.snapshot
    places = places_after(snapshot, write.plan.decision, write.superseded)
    if not places:
        return
    before = {job.id: job.submitted_us for job in snapshot.jobs}
    write.cursor.execute(
        """
        UPDATE scheduling_job j SET place_at = x.place
        FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[]) x(id, place, before)
        WHERE j.id = x.id AND coalesce(j.place_at, j.eligible_at, j.submitted_at) = x.before
        """,
        [
            list(places),
            [from_us(place_us) for place_us in places.values()],
            [from_us(before[job]) for job in places],
        ],
    )
