"""Invariants of usage lines and shares, recomputed from lease events and terms."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from billing.checks.base import CheckReport, count, report_of
from billing.models import MeterCursor, UsageLine, UsageShare
from billing.selectors.events import EventGapError, read_events
from evenshare_core.domain.instants import to_us
from evenshare_core.money.fixed_point import (
    charge_micro,
    term_charge,
    to_credits,
    to_micro,
    worst_case_micro,
)
from evenshare_core.money.revenue.idle import WEIGHT_LIMIT
from evenshare_core.money.revenue.records import ClosedTerm
from evenshare_core.money.revenue.terms import Sweep
from scheduling.models import Pool
from tenants.sql import fetch_rows

BATCH = 5000
# A line: (gpus, price, start, end, amount, event, carried, charged until, borne). Its shares:
# lender -> (weight, amount, lent).
Line = tuple[int, int, int, int, int, int, int | None, int | None, int]
Shares = dict[int, tuple[int, int, int]]


def shares_sum_to_their_line() -> CheckReport:
    """Check that shares sum to the line's charge plus the operator's part, and to its GPU-time.

    Lines of own GPUs have no shares.
    """
    wrong = fetch_rows(
        """
        SELECT line.id, line.shared, coalesce(sum(share.amount), 0), line.gpu_us,
               coalesce(sum(share.lent_gpu_us), 0)
        FROM (
            SELECT id, meter, amount + borne AS shared,
                   gpus * (extract(epoch FROM ends_at - starts_at) * 1000000)::bigint AS gpu_us
            FROM billing_usageline
        ) line
        LEFT JOIN billing_usageshare share ON share.line_id = line.id
        GROUP BY line.id, line.meter, line.shared, line.gpu_us
        HAVING coalesce(sum(share.amount), 0) <> line.shared
            OR (line.meter = 'borrowed') <> (count(share.id) > 0)
            OR (line.meter = 'borrowed' AND coalesce(sum(share.lent_gpu_us), 0) <> line.gpu_us)
        """
    )
    return report_of(
        count("billing_usageline"),
        [
            f"line {id_}: amount {amount}, shares {shares}; GPU-us {gpu_us}, lent {lent}"
            for id_, amount, shares, gpu_us, lent in wrong
        ],
    )


def lenders_within_idle_share() -> CheckReport:
    """Check that each share is the lender's part of the idle quota, to within a micro-credit."""
    wrong = fetch_rows(
        """
        SELECT share.line_id, account.tenant_id, share.amount, share.weight, line.weights,
               line.amount
        FROM billing_usageshare share
        JOIN billing_account account ON account.id = share.account_id
        JOIN (
            SELECT line.id, line.amount + line.borne AS amount, sum(share.weight) AS weights
            FROM billing_usageline line JOIN billing_usageshare share ON share.line_id = line.id
            GROUP BY line.id
        ) line ON line.id = share.line_id
        WHERE CASE WHEN line.weights = 0 THEN account.tenant_id IS NOT NULL
              ELSE abs(share.amount * line.weights - line.amount * share.weight)
                   >= 0.000001 * line.weights
                      + CASE WHEN line.weights = %s THEN line.amount ELSE 0 END END
        """,
        # The meter rounds weights that are too long, so they sum to WEIGHT_LIMIT.
        [WEIGHT_LIMIT],
    )
    return report_of(
        count("billing_usageshare"),
        [
            f"line {line}: tenant {tenant or 'operator'} has {amount} of {total}"
            f" for {weight} of {weights} idle GPU-us"
            for line, tenant, amount, weight, weights, total in wrong
        ],
    )


def lines_match_events() -> CheckReport:
    """Check that recomputing all metered events gives the stored lines and shares."""
    report = CheckReport()
    for cursor in MeterCursor.objects.all():
        expected = 0
        try:
            for terms in _swept(cursor, report):
                expected += _compare(terms, report)
        except EventGapError as error:
            report.wrong(str(error))
            continue
        stored = UsageLine.objects.filter(pool_id=cursor.pool_id).count()
        report.checked += expected
        if stored != expected:
            report.wrong(f"pool {cursor.pool_id}: {stored} lines, the events give {expected}")
    return report


def _swept(cursor: MeterCursor, report: CheckReport) -> Iterator[list[ClosedTerm]]:
    """Yield closed terms, batch by batch, as the meter must have computed them.

    A cursor past the pool's last event is a violation, because the next events would be skipped.
    """
    since = cursor.state.get("rule_since")
    is_former = cursor.state.get("sweep", {}).get("version") == 1
    sweep = Sweep(by_integrals=is_former or since is not None)
    after = 0
    steps = _steps(cursor.state.get("rests", []), since)
    while after < cursor.event_number:
        size = min(BATCH, cursor.event_number - after)
        closed: list[ClosedTerm] = []
        events = read_events(cursor.pool_id, after=after, limit=size)
        if not events:
            report.wrong(
                f"pool {cursor.pool_id}: the meter has read up to event {cursor.event_number},"
                f" but the last one is {after}"
            )
            break
        for event in events:
            closed += sweep.feed(event)
            after = event.number
            for until_us in steps.get(after, ()):
                if until_us is None:
                    sweep.change_rule()
                else:
                    closed += sweep.rest(until_us)
        yield closed
    for number, what in sweep.anomalies:
        report.wrong(f"pool {cursor.pool_id}, event {number}: {what}")


def _steps(rests: Sequence[list[int]], since: list[int] | None) -> dict[int, list[int | None]]:
    """Return, by event number, the times until which the sweep goes on after that event.

    None switches to the present rule.
    """
    rows: list[tuple[int, int | None]] = [(number, until_us) for number, until_us in rests]
    if since is not None:
        rows.insert(since[1], (since[0], None))
    steps: dict[int, list[int | None]] = defaultdict(list)
    for number, until_us in rows:
        steps[number].append(until_us)
    return steps


def _compare(terms: Iterable[ClosedTerm], report: CheckReport) -> int:
    started = [term for term in terms if term.starts_us is not None]
    stored = _stored({term.lease for term in started})
    expected = 0
    for term in started:
        for meter, line, shares in _expected(term):
            expected += 1
            key = (term.lease, term.term, meter)
            if stored.get(key) != (line, shares):
                report.wrong(
                    f"lease {term.lease}, term {term.term}, {meter}:"
                    f" events give {(line, shares)}, stored {stored.get(key)}"
                )
    return expected


def _expected(term: ClosedTerm) -> Iterator[tuple[str, Line, Shares]]:
    times = (term.starts_us or 0, term.ends_us)
    if term.own:
        yield "own", (term.own, 0, *times, 0, term.event, None, None, 0), {}
    if term.borrowed:
        figures = (term.borrowed, term.price_micro, *times, term.amount_micro, term.event)
        late = term.charged_until_us if term.charged_until_us < term.ends_us else None
        yield (
            "borrowed",
            (*figures, term.carried, late, term.borne_micro),
            {s.lender: (s.weight, s.amount_micro, s.lent_gpu_us) for s in term.shares},
        )


def _stored(leases: set[int]) -> dict[tuple[int, int, str], tuple[Line, Shares]]:
    stored: dict[tuple[int, int, str], tuple[Line, Shares]] = {}
    shares_of: dict[int, Shares] = {}
    lines = UsageLine.objects.filter(lease_id__in=leases).values_list(
        *("pk", "lease_id", "term", "meter", "gpus", "price", "starts_at", "ends_at"),
        *("amount", "event_number", "carried", "charged_until", "borne"),
    )
    for key, lease, term, meter, gpus, price, starts_at, ends_at, amount, *rest in lines:
        times = (to_us(starts_at), to_us(ends_at))
        event, carried, until, borne = rest
        late = (None if until is None else to_us(until), to_micro(borne))
        shares_of[key] = {}
        line = (gpus, to_micro(price), *times, to_micro(amount), event, carried, *late)
        stored[lease, term, meter] = (line, shares_of[key])
    shares = UsageShare.objects.filter(line__lease_id__in=leases).values_list(
        "line_id", "account__tenant_id", "weight", "amount", "lent_gpu_us"
    )
    for key, tenant, weight, amount, lent in shares:
        shares_of[key][tenant or 0] = (weight, to_micro(amount), lent)
    return stored


def lines_match_terms() -> CheckReport:
    """Check the GPUs, price and charge of each line, and that own and borrowed GPUs add up."""
    report = CheckReport()
    for row in fetch_rows(
        """
        SELECT line.id, line.meter, line.gpus, line.price, line.starts_at, line.ends_at,
               line.amount, line.carried, line.charged_until, line.borne,
               term.own, term.borrowed, term.price, lease.gpus
        FROM billing_usageline line
        JOIN scheduling_lease lease ON lease.id = line.lease_id
        LEFT JOIN scheduling_leaseterm term
             ON term.lease_id = line.lease_id AND term.number = line.term
        """
    ):
        report.checked += 1
        line, *figures = row
        wrong = _line_wrong(figures)
        if wrong:
            report.wrong(f"line {line}: {wrong}")
    return report


def _line_wrong(row: Sequence[Any]) -> str:
    meter, gpus, price, starts_at, ends_at, amount, carried, until, borne, *of_term = row
    own, borrowed, term_price, lease_gpus = of_term
    if own is None:
        return "its term does not exist"
    if own + borrowed != lease_gpus:
        return f"own {own} + borrowed {borrowed} are not the lease's {lease_gpus} GPUs"
    if meter == "own":
        return "" if gpus == own and not amount else f"{gpus} own GPUs of {own}, amount {amount}"
    due, full = (
        to_credits(charge_micro(*figures) if carried is None else term_charge(*figures, carried)[0])
        for figures in (
            (borrowed, to_micro(term_price), to_us(instant) - to_us(starts_at))
            for instant in (until or ends_at, ends_at)
        )
    )
    if (gpus, price, amount, amount + borne) == (borrowed, term_price, due, full):
        return ""
    return (
        f"{gpus} GPUs at {price} for {amount} and {borne} borne,"
        f" the term says {borrowed} at {term_price}: {due} of {full}"
    )


def reserved_covers_open_terms() -> CheckReport:
    """Check that reserved credits = worst case of the open terms + unsettled charges."""
    due: dict[tuple[int, str], int] = defaultdict(int)
    cursors = {cursor.pool_id: cursor for cursor in MeterCursor.objects.all()}
    for pool in Pool.objects.values_list("pk", flat=True):
        cursor = cursors.get(pool) or MeterCursor(pool_id=pool)
        for tenant, book, gpus, price, starts_at, expires_at in _open_terms(cursor):
            held_us = to_us(expires_at) - to_us(starts_at)
            due[tenant, book] += worst_case_micro(gpus, to_micro(price), held_us)
    for tenant, book, amount in fetch_rows(
        """
        SELECT line.tenant_id, book.slug, sum(line.amount)
        FROM billing_usageline line
        JOIN billing_book book ON book.id = line.book_id
        JOIN billing_metercursor cursor ON cursor.pool_id = line.pool_id
        WHERE line.hour >= coalesce(cursor.settled_until, '-infinity')
        GROUP BY 1, 2
        """
    ):
        due[tenant, book] += to_micro(amount)
    budgets = fetch_rows("SELECT tenant_id, book, reserved FROM tenants_budget")
    return report_of(
        len(budgets),
        [
            f"tenant {tenant} in {book}: reserved {reserved}, due {to_credits(due[tenant, book])}"
            for tenant, book, reserved in budgets
            if to_micro(reserved) != due[tenant, book]
        ],
    )


def _open_terms(cursor: MeterCursor) -> list[tuple[Any, ...]]:
    """Return the priced terms that the meter has not closed.

    Of leases that are open in the meter's sweep, these are the present and later terms. Of leases
    that the meter has not read yet, these are all terms.
    """
    sweep = Sweep.from_state(cursor.state.get("sweep", {}))
    first_open = dict(sweep.running.keys())
    first_open |= dict.fromkeys(sweep.awaited, 1)
    return fetch_rows(
        """
        WITH opened AS (
            SELECT lease_id, first_open FROM unnest(%s::bigint[], %s::int[])
                AS held (lease_id, first_open)
            UNION
            SELECT lease_id, 1 FROM scheduling_leaseevent
            WHERE pool_id = %s AND number > %s AND kind = 'granted'
        )
        SELECT lease.tenant_id, pool.book, term.borrowed, term.price, term.starts_at,
               term.expires_at
        FROM opened
        JOIN scheduling_leaseterm term
             ON term.lease_id = opened.lease_id AND term.number >= opened.first_open
        JOIN scheduling_lease lease ON lease.id = term.lease_id
        JOIN scheduling_pool pool ON pool.id = lease.pool_id
        WHERE term.borrowed > 0 AND term.price > 0
        """,
        [list(first_open), list(first_open.values()), cursor.pool_id, cursor.event_number],
    )
