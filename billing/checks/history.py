"""Invariants of events, prices and slots over the whole history."""

from django.db.models import Exists, OuterRef

from billing.checks.base import CheckReport, count, report_of
from billing.models import PostedPrice
from evenshare_core.chain.records import RecordError, read_record
from evenshare_core.money.fixed_point import to_micro
from scheduling.models import Round, RoundBlob
from scheduling.selectors.rounds.bundles import bundle_damage, read_round_record
from scheduling.selectors.rounds.following import Follower
from scheduling.selectors.rounds.states import state_damages
from scheduling.selectors.rounds.stored import (
    DamagedRoundError,
    ReplayError,
    kept_rounds,
    round_bytes,
    round_decision,
    with_seals,
)
from tenants.sql import fetch_rows

# Maximum number of decisions to read, because they are large; older prices are compared only with
# their events.
DECISIONS = 500


def events_gapless() -> CheckReport:
    """Check per pool that event numbers run from 1 to the writer's counter without gaps."""
    pools = fetch_rows(
        """
        SELECT fence.pool_id, fence.next_event - 1, count(event.id), coalesce(min(number), 1),
               coalesce(max(number), 0)
        FROM scheduling_poolfence fence
        LEFT JOIN scheduling_leaseevent event USING (pool_id)
        GROUP BY fence.pool_id, fence.next_event
        """
    )
    return report_of(
        sum(count for _, _, count, _, _ in pools),
        [
            f"pool {pool}: {count} events, numbers {first} to {last}, the counter says {drawn}"
            for pool, drawn, count, first, last in pools
            if not (count == drawn == last and first == 1)
        ],
    )


def rounds_gapless() -> CheckReport:
    """Check per pool that round numbers run from 1 to the writer's counter without gaps."""
    pools = fetch_rows(
        """
        SELECT fence.pool_id, fence.next_round - 1, count(round.id), coalesce(max(number), 0)
        FROM scheduling_poolfence fence LEFT JOIN scheduling_round round USING (pool_id)
        GROUP BY fence.pool_id, fence.next_round
        """
    )
    return report_of(
        sum(count for _, _, count, _ in pools),
        [
            f"pool {pool}: {count} rounds, the last is {last}, the counter says {drawn}"
            for pool, drawn, count, last in pools
            if not count == drawn == last
        ],
    )


def rounds_stored_whole() -> CheckReport:
    """Check that the newest rounds' bytes match their hashes, and that older bytes exist.

    `replay_round --all` reads all bytes and decides all rounds again.
    """
    newest = Round.objects.order_by("-wall_at")[:DECISIONS]
    missing = kept_rounds(Round.objects.all()).filter(
        ~Exists(RoundBlob.objects.filter(pool_id=OuterRef("pool_id"), number=OuterRef("number")))
    )
    report = CheckReport()
    for round_ in {row.pk: row for row in (*newest, *missing)}.values():
        report.checked += 1
        try:
            round_bytes(round_)
        except DamagedRoundError as error:
            report.wrong(f"pool {round_.pool_id}, {error}")
        except ReplayError:
            continue
    return report


def rounds_follow() -> CheckReport:
    """Check that the newest rounds start with the state that the rounds before them left.

    `replay_round --all` checks all rounds whose bytes are kept.
    """
    newest = with_seals(Round.objects.all()).order_by("-wall_at")[:DECISIONS]
    report = CheckReport()
    follower = Follower()
    for round_ in sorted(newest, key=lambda row: (row.pool_id, row.number)):
        report.checked += 1
        for damage in state_damages(round_):
            report.wrong(f"pool {round_.pool_id}, round {round_.number}: {damage}")
        if round_.state_note:
            report.wrong(f"pool {round_.pool_id}, round {round_.number}: {round_.state_note}")
        following = follower.look(round_)
        if following.follows is False:
            report.wrong(
                f"pool {round_.pool_id}, round {round_.number} does not follow from round"
                f" {following.before}: {following.text}"
            )
    return report


def rounds_as_logged() -> CheckReport:
    """Check that the bundles of the newest rounds match the digests of their records in the log.

    If a fault was found when a round was sealed, the round's record contains it. Later changes to
    the round, its bytes or its seals cannot hide that fault.
    """
    report = CheckReport()
    for round_ in kept_rounds(Round.objects.all()).order_by("-wall_at")[:DECISIONS]:
        try:
            record = read_record(read_round_record(round_.pool_id, round_.number) or b"")
        except RecordError:
            continue  # not sealed yet; if the log's entry was changed, `logs_are_sound` reports it
        report.checked += 1
        where = f"pool {round_.pool_id}, round {round_.number}"
        if record.damage:
            report.wrong(f"{where} was damaged when it was sealed: {record.damage}")
        elif damage := bundle_damage(round_, record.bundle):
            report.wrong(f"{where}: {damage}")
        for text in record.breaks:
            report.wrong(f"{where} did not follow when it was sealed: {text}")
    return report


def prices_equal_decisions() -> CheckReport:
    """Check that each posted price equals the price in its event and in the stored decision."""
    report = report_of(
        count("billing_postedprice"),
        [
            f"pool {pool}, {gpu_type}, from round {number}: posted {posted}, event says {said}"
            for pool, gpu_type, number, posted, said in fetch_rows(_PRICES_BESIDE_EVENTS)
        ],
    )
    recent = Round.objects.order_by("-wall_at")[:DECISIONS]
    for round_ in recent:
        try:
            decided = {
                price.gpu_type: (price.price_micro, price.used, price.capacity)
                for price in round_decision(round_).prices
            }
        except ReplayError:
            continue
        posted = {
            price.gpu_type.name: (to_micro(price.price), price.used, price.capacity)
            for price in PostedPrice.objects.filter(
                pool_id=round_.pool_id, valid_from_round=round_.number + 1
            ).select_related("gpu_type")
        }
        # A round whose event is not metered yet has no posted price.
        if posted and posted != decided:
            report.wrong(f"round {round_.number}: decided {decided}, posted {posted}")
    return report


_PRICES_BESIDE_EVENTS = """
    WITH said AS (
        SELECT event.pool_id, row->>'gpu_type' AS gpu_type,
               (event.data->>'valid_from_round')::bigint AS valid_from_round,
               (row->>'price')::numeric AS price
        FROM scheduling_leaseevent event
        JOIN billing_metercursor cursor USING (pool_id)
        CROSS JOIN LATERAL jsonb_array_elements(event.data->'prices') row
        WHERE event.kind = 'priced' AND event.number <= cursor.event_number
    ), posted AS (
        SELECT price.pool_id, type.name AS gpu_type, price.valid_from_round, price.price
        FROM billing_postedprice price JOIN scheduling_gputype type ON type.id = price.gpu_type_id
    )
    SELECT pool_id, gpu_type, valid_from_round, posted.price, said.price
    FROM said FULL JOIN posted USING (pool_id, gpu_type, valid_from_round)
    WHERE said.price IS DISTINCT FROM posted.price
"""


def terms_at_posted_price() -> CheckReport:
    """Check that every metered, borrowing term has its round's posted price (zero if none)."""
    wrong = fetch_rows(
        """
        SELECT term.lease_id, term.number, term.round, term.price, posted.price
        FROM scheduling_leaseterm term
        JOIN scheduling_lease lease ON lease.id = term.lease_id
        JOIN scheduling_leaseevent event ON event.lease_id = term.lease_id
             AND event.term = term.number AND event.kind IN ('granted', 'renewed')
        JOIN billing_metercursor cursor
             ON cursor.pool_id = lease.pool_id AND event.number <= cursor.event_number
        LEFT JOIN LATERAL (
            SELECT price.price FROM billing_postedprice price
            WHERE price.pool_id = lease.pool_id AND price.gpu_type_id = lease.gpu_type_id
              AND price.valid_from_round <= term.round
            ORDER BY price.valid_from_round DESC LIMIT 1
        ) posted ON true
        WHERE term.borrowed > 0 AND term.price <> coalesce(posted.price, 0)
        """
    )
    return report_of(
        count("scheduling_leaseterm"),
        [
            f"lease {lease}, term {number}, round {round_}: price {price}, posted {posted}"
            for lease, number, round_, price, posted in wrong
        ],
    )


def slots_held_once() -> CheckReport:
    """Check that two started leases never held the same slot of a node at the same time."""
    wrong = fetch_rows(
        """
        SELECT node_id, slot, lease_id, former, started_at, busy_until::text
        FROM (
            SELECT slot.node_id, slot.slot, slot.lease_id, lease.started_at,
                   lag(slot.lease_id) OVER held AS former,
                   max(coalesce(lease.ended_at, 'infinity')) OVER (
                       PARTITION BY slot.node_id, slot.slot
                       ORDER BY lease.started_at, slot.lease_id
                       ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                   ) AS busy_until
            FROM scheduling_leaseslot slot JOIN scheduling_lease lease ON lease.id = slot.lease_id
            WHERE lease.started_at IS NOT NULL
            WINDOW held AS (
                PARTITION BY slot.node_id, slot.slot ORDER BY lease.started_at, slot.lease_id
            )
        ) holds
        WHERE busy_until > started_at
        """
    )
    return report_of(
        count("scheduling_leaseslot"),
        [
            f"node {node}, slot {slot}: lease {lease} from {started_at},"
            f" lease {former} and others until {busy_until}"
            for node, slot, lease, former, started_at, busy_until in wrong
        ],
    )
