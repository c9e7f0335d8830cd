"""Leases that ended before their expiry in a pool: the rule, the loser and the beneficiary."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from portal.charts.figures import duration, plural
from portal.common.clocks import Clocks
from portal.common.preemptions import numbers_note
from portal.common.tenant_badges import badge_of
from scheduling.selectors.jobs.preemptions import PreemptionRow
from scheduling.selectors.jobs.reasons import rule_text


def preemption_context(
    views: Sequence[PreemptionRow], times: Clocks, *, more: bool
) -> dict[str, Any]:
    """Return the data of templates/pools/_preemptions.html.

    `views` are the last ones; `more`: earlier ones exist.
    """
    return {
        "early": [_row(view, times) for view in views],
        "early_title": _title(views, more=more),
    }


def _title(views: Sequence[PreemptionRow], *, more: bool) -> str:
    """Return "3 leases ended early, with notice: 2 preempted, 1 moved"."""
    kinds = Counter("moved" if view.moved else "preempted" for view in views)
    parts = ", ".join(f"{kinds[kind]} {kind}" for kind in ("preempted", "moved") if kinds[kind])
    if more:
        return f"The last {len(views)} leases that ended early, with notice: {parts}"
    text = plural(len(views), "lease ended early", "leases ended early")
    return f"{text}, with notice: {parts}"


def _row(view: PreemptionRow, times: Clocks) -> dict[str, Any]:
    return {
        "view": view,
        "at": times.instant(view.at),
        "badge": badge_of(view.tenant),
        "for_badge": badge_of(view.for_tenant),
        "rule": rule_text(view.rule),
        "note": numbers_note(view.rule, view.numbers),
        "outcome": _outcome(view),
    }


def _outcome(view: PreemptionRow) -> str:
    """Return what happened after the notice, shortened."""
    used_s, verb = view.notice_used_s, "moved" if view.moved else "stopped"
    text = f"{verb} immediately"
    if used_s is None:
        text = f"stopping, within {duration(view.notice_s)}"
    elif view.finished:
        text = "job ended first"
    elif used_s >= 1:
        text = f"{verb} after {duration(used_s)}"
    return f"{text}; the beneficiary gave up" if view.unused else text
