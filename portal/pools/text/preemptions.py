"""Leases that ended before their expiry in a pool: the rule, the loser and the beneficiary."""

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _

from portal.charts.figures import duration, plural, thousands
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
    moved = sum(view.moved for view in views)
    kinds = ((_("{count} preempted"), len(views) - moved), (_("{count} moved"), moved))
    parts = ", ".join(text.format(count=thousands(count)) for text, count in kinds if count)
    if more:
        text = _("The last {count} leases that ended early, with notice: {kinds}")
        return text.format(count=thousands(len(views)), kinds=parts)
    return _("{leases_ended_early}, with notice: {kinds}").format(
        leases_ended_early=plural(len(views), "lease ended early", "leases ended early"),
        kinds=parts,
    )


def _row(view: PreemptionRow, times: Clocks) -> dict[str, Any]:
    return {
        "view": view,
        "at": times.instant(view.at),
        "badge": badge_of(view.tenant),
        "for_badge": badge_of(view.for_tenant),
        "rule": rule_text(view.rule),
        "note": numbers_note(view.rule, view.numbers, times),
        "outcome": _outcome(view),
    }


def _outcome(view: PreemptionRow) -> str:
    """Return what happened after the notice, shortened."""
    used_s = view.notice_used_s
    text = _("moved immediately") if view.moved else _("stopped immediately")
    if used_s is None:
        text = _("stopping, within {time}").format(time=duration(view.notice_s))
    elif view.finished:
        text = _("job ended first")
    elif used_s >= 1:
        after = _("moved after {time}") if view.moved else _("stopped after {time}")
        text = after.format(time=duration(used_s))
    return _("{outcome}; the beneficiary gave up").format(outcome=text) if view.unused else text
