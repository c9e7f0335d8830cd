"""Invariants of the books, as read-only checks.

Each check returns the number of items that it checked, and the violations with their numbers. All
checks together see one consistent state (REPEATABLE READ), so they can run on the live system.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from django.db import connection, transaction

from billing.checks import books, history, logs, seals, usage
from billing.checks.base import CheckReport
from tenants.scopes import ONE_STATE, SET_SCOPE, SITE

CHECKS: dict[str, Callable[[], CheckReport]] = {
    "transfers_sum_to_zero": books.transfers_sum_to_zero,
    "books_sum_to_zero": books.books_sum_to_zero,
    "balances_equal_entries": books.balances_equal_entries,
    "settled_hours_equal_lines": books.settled_hours_equal_lines,
    "charged_equals_earned": books.charged_equals_earned,
    "budgets_follow_balances": books.budgets_follow_balances,
    "limits_are_one": books.limits_are_one,
    "daily_spend_equals_lines": books.daily_spend_equals_lines,
    "gifts_were_approved": books.gifts_were_approved,
    "late_starts_are_credited": books.late_starts_are_credited,
    "shares_sum_to_their_line": usage.shares_sum_to_their_line,
    "lenders_within_idle_share": usage.lenders_within_idle_share,
    "lines_match_events": usage.lines_match_events,
    "lines_match_terms": usage.lines_match_terms,
    "reserved_covers_open_terms": usage.reserved_covers_open_terms,
    "events_gapless": history.events_gapless,
    "rounds_gapless": history.rounds_gapless,
    "rounds_stored_whole": history.rounds_stored_whole,
    "rounds_follow": history.rounds_follow,
    "prices_equal_decisions": history.prices_equal_decisions,
    "terms_at_posted_price": history.terms_at_posted_price,
    "slots_held_once": history.slots_held_once,
    "rows_as_sealed": seals.rows_as_sealed,
    "rounds_as_logged": history.rounds_as_logged,
    "logs_are_sound": logs.logs_are_sound,
    "transfers_as_logged": logs.transfers_as_logged,
}


def run_checks() -> list[CheckReport]:
    """Run every check on one consistent state."""
    with _one_state():
        return [replace(check(), name=name) for name, check in CHECKS.items()]


@contextmanager
def _one_state() -> Iterator[None]:
    nested = connection.in_atomic_block
    with transaction.atomic(), connection.cursor() as cursor:
        if not nested:
            cursor.execute(ONE_STATE)
        cursor.execute(SET_SCOPE, [SITE])
        yield
