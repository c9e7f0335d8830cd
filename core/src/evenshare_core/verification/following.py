"""Check that a round starts from the state that the previous round left. Pure.

A recomputed round shows that its decision follows from its snapshot. It does not show that the
snapshot is true: if sums were lowered between two rounds, the later round still replays to the same
bytes. So each snapshot is compared with the previous decision. GPU-time sums, the policy's memory,
posted prices and leases must continue from that decision. All events between the rounds must be
among the changes, at times between the rounds.

Two rounds cannot show everything. The operator sets quotas, credit, nodes, base and theta. Jobs
arrive, are cancelled, held and released; a process starts, ends or is lost. If all nodes of a type
were away in the previous round, an earlier round posted its price.

Source: docs/adr/0198-sums-are-history.md.
"""

from collections.abc import Iterator

from evenshare_core.domain.snapshot import ChangeKind, PoolPrice, Surcharge
from evenshare_core.verification.following_ids import FollowedRound, Pairing, RoundText, pairing_of
from evenshare_core.verification.following_jobs import job_breaks
from evenshare_core.verification.following_leases import lease_breaks
from evenshare_core.verification.following_memory import memory_breaks
from evenshare_core.verification.following_sums import sum_breaks
from evenshare_core.verification.following_texts import (
    BEGINS_WITH,
    CHANGE_EARLIER,
    CHANGE_OUTSIDE,
    NOT_AFTER,
    NOT_NEXT,
    OTHER_POOL,
    POSTING,
    PRICE_DIFFERS,
    PRICE_MISSING,
    QUOTA_DIFFERS,
    ROUND,
    SURCHARGE_DIFFERS,
    capital,
)


def breaks(before: FollowedRound, after: FollowedRound) -> tuple[str, ...]:
    """Return why a round does not follow from the previous round; empty if it does.

    Each reason is a sentence with its numbers. Tenants, jobs and leases are those of the later
    round, by name if the rounds have names.

    Raises:
        UnknownPolicyError: the rounds have names, and their policy is not known here.
    """
    order = tuple(_order(before, after))
    if order:
        return order  # without consecutive rounds of one pool, nothing else can be compared
    text = RoundText(before, after)
    sums, ids = _sums(before, after, text)
    problems = [*sums, *_prices(before, after, text), *_times(before, after)]
    if ids is not None:
        problems += [
            *memory_breaks(before, after, ids, text),
            *job_breaks(before, after, ids, text),
            *lease_breaks(before, after, ids, text),
        ]
    return tuple(problems)


def beginning_breaks(first: FollowedRound) -> tuple[str, ...]:
    """Return why the first round of a pool does not start empty; empty if it does."""
    snapshot = first.snapshot
    begins = {
        "claims": snapshot.service.claims,
        "classes": snapshot.service.classes,
        "jobs": snapshot.service.jobs,
        "memory": tuple(snapshot.memory),
        "leases": snapshot.leases,
        "prices": tuple(row for row in snapshot.prices if any(_posting(row))),
    }
    return tuple(BEGINS_WITH[name].format(count=len(rows)) for name, rows in begins.items() if rows)


def _order(before: FollowedRound, after: FollowedRound) -> Iterator[str]:
    """Check that the rounds are of one pool, and consecutive."""
    first, second = before.snapshot, after.snapshot
    if first.pool != second.pool:
        yield OTHER_POOL.format(pool=second.pool, other=first.pool)
    if second.number != first.number + 1:
        yield NOT_NEXT.format(number=second.number, before=first.number)
    if second.at_us <= first.at_us:
        before_text = ROUND.format(number=first.number)
        yield NOT_AFTER.format(at=f"{second.at_us:,}", before=before_text, was=f"{first.at_us:,}")


def _sums(
    before: FollowedRound, after: FollowedRound, text: RoundText
) -> tuple[list[str], Pairing | None]:
    """Return violations of the sums, and the pairing of ids (None if the pairing is not known)."""
    ids = pairing_of(before, after)
    return list(sum_breaks(before.decision.service, after.snapshot.service, ids, text)), ids


def _prices(before: FollowedRound, after: FollowedRound, text: RoundText) -> Iterator[str]:
    """Check that the round has the prices and surcharges that the previous round posted.

    Base and theta are not compared, because they are settings for the next posting.
    """
    number = text.before
    posted = {row.gpu_type: row for row in before.decision.prices}
    held = {row.gpu_type: row for row in after.snapshot.prices}
    present = {node.gpu_type for node in after.snapshot.nodes}
    for gpu_type in sorted(posted.keys() & present):
        row, was = held.get(gpu_type), posted[gpu_type]
        if row is None:
            yield PRICE_MISSING.format(before=capital(number), gpu_type=gpu_type)
        elif _posting(row) != _posting(was):
            yield PRICE_DIFFERS.format(
                gpu_type=gpu_type, now=_posting_text(row), before=number, was=_posting_text(was)
            )
    queued = {row.gpu_type: row for row in before.decision.surcharges}
    for surcharge in after.snapshot.surcharges:
        if surcharge.gpu_type not in posted:
            continue
        was_queued = queued.get(surcharge.gpu_type, Surcharge(surcharge.gpu_type, 0, 0))
        if (surcharge.queued, surcharge.surcharge_micro) != (
            was_queued.queued,
            was_queued.surcharge_micro,
        ):
            yield SURCHARGE_DIFFERS.format(
                gpu_type=surcharge.gpu_type,
                now=f"{surcharge.surcharge_micro:,}",
                queued=surcharge.queued,
                before=number,
                was=f"{was_queued.surcharge_micro:,}",
                was_queued=was_queued.queued,
            )


def _posting(row: PoolPrice) -> tuple[int, int, int]:
    return row.price_micro, row.used, row.capacity


def _posting_text(row: PoolPrice) -> str:
    return POSTING.format(price=f"{row.price_micro:,}", used=row.used, capacity=row.capacity)


def _times(before: FollowedRound, after: FollowedRound) -> Iterator[str]:
    """Check that changes lie in order between both rounds, and that quotas agree with the sums."""
    since_us, at_us = before.snapshot.at_us, after.snapshot.at_us
    last_us = since_us
    for change in after.snapshot.changes:
        # The first quotas of a pool count from the start of the sums, which may be before any
        # round.
        if not since_us <= change.at_us <= at_us:
            yield CHANGE_OUTSIDE.format(
                kind=change.kind.value,
                at=f"{change.at_us:,}",
                since=f"{since_us:,}",
                until=f"{at_us:,}",
            )
        elif change.at_us < last_us:
            yield CHANGE_EARLIER.format(
                kind=change.kind.value, at=f"{change.at_us:,}", last=f"{last_us:,}"
            )
        last_us = max(last_us, change.at_us)
    known = {(row.tenant, row.gpu_type): row.quota for row in after.snapshot.service.claims}
    changed = {
        (row.tenant, row.gpu_types[0]): row.gpus
        for row in after.snapshot.changes
        if row.kind is ChangeKind.QUOTA and row.gpu_types
    }
    read = {(row.tenant, row.gpu_type): row.gpus for row in after.snapshot.entitlements}
    for key in sorted(known.keys() | read.keys() | changed.keys()):
        counts = changed.get(key, known.get(key, 0))
        if counts != read.get(key, 0):
            yield QUOTA_DIFFERS.format(gpu_type=key[1], gpus=read.get(key, 0), counted=counts)
