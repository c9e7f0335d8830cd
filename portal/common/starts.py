"""Texts about the expected start of a queued job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.charts.figures import MINUTE_S, coarse, duration, percent, plural, thousands
from portal.charts.notes import Instant, LineItem, Link, Note
from portal.common.clocks import Clocks
from scheduling.selectors.jobs.start_estimates import StartView

ASSUMED = gettext_noop(
    "The pool's policy was simulated several times on the present queue. Run times were drawn"
    " from ended jobs, submissions from the past day. Nodes, quotas and credit do not change,"
    " and no job is cancelled. p50 and p90: the times by which 50 % and 90 % of the runs had"
    " started the job, corrected by the errors of past estimates."
)

# The labels of corrections, by the length of the estimates.
GROUPS = {
    "short": gettext_noop("p50 within a lease length, corrected by {estimates}"),
    "long": gettext_noop("p50 later, corrected by {estimates}"),
}


@dataclass(frozen=True, slots=True)
class StartText:
    """An estimate on a page. `expected` is empty without an estimate; `why` is the reason."""

    round: int
    expected: str
    note: Note
    p50: Instant | None
    p90: Instant | None
    why: str = ""


def start_text(start: StartView, clocks: Clocks, calibration_url: str) -> StartText:
    """Return the estimate as text, with a note of its assumptions."""
    now = clocks.now.pool_at
    return StartText(
        round=start.round,
        expected=expected_text(start, now),
        note=assumptions_note(start, calibration_url),
        p50=clocks.instant(start.p50),
        p90=clocks.instant(start.p90),
        why=start.why,
    )


def expected_text(start: StartView, now: datetime) -> str:
    """Return "Expected to start in about 12 min (p50), within 40 min (p90)", or "".

    The estimate may be old: its p50 may have passed, and if its p90 has, the estimate was wrong.
    """
    if start.p50 is None:
        return ""
    p50_s = (start.p50 - now).total_seconds()
    if start.p90 is None:
        left_s = (start.until - now).total_seconds()
        return _("Expected to start {p50} (p50), maybe {p90} (p90)").format(
            p50=_about(p50_s), p90=_not_within(left_s)
        )
    p90_s = (start.p90 - now).total_seconds()
    if p90_s <= 0:
        return ""  # the estimate was wrong
    if p50_s > 0 and p90_s < MINUTE_S:
        return _("Expected to start within a minute (p50 and p90)")
    return _("Expected to start {p50} (p50), {p90} (p90)").format(
        p50=_about(p50_s), p90=_within(p90_s)
    )


def _about(seconds: float) -> str:
    if seconds <= 0:
        return _("any time now")
    if seconds < MINUTE_S:
        return _within(seconds)
    return _("in about {time}").format(time=coarse(seconds))


def _within(seconds: float) -> str:
    if seconds < MINUTE_S:
        return _("within a minute")
    return _("within {time}").format(time=coarse(seconds))


def _not_within(seconds: float) -> str:
    """Return a text for a p90 beyond the simulated time, of which `seconds` are left."""
    if seconds <= 0:
        return _("after the simulated time")
    if seconds < MINUTE_S:
        return _("not within a minute")
    return _("not within {time}").format(time=duration(seconds))


def assumptions_note(start: StartView, calibration_url: str) -> Note:
    """Return the assumptions of the estimate, with a link to its past accuracy."""
    facts = start.facts
    lines = [
        LineItem(_("simulated runs"), thousands(facts.get("runs", 0))),
        LineItem(
            _("queued and running jobs"),
            _("{queued} and {running}").format(
                queued=thousands(facts.get("queued")), running=thousands(facts.get("running"))
            ),
        ),
        LineItem(_("of these, with their own estimate"), thousands(facts.get("with_estimate"))),
        LineItem(_("ended jobs used for durations"), thousands(facts.get("ended"))),
        LineItem(_("simulated submissions per run"), thousands(facts.get("arrivals"))),
        LineItem(_("rate of submissions from the past"), duration(facts.get("past_s"))),
    ]
    lines.extend(LineItem(*row) for row in correction_rows(facts))
    return Note(
        _("As of round {number}").format(number=thousands(start.round)),
        tuple(lines),
        text=_(ASSUMED),
        links=(Link(_("Accuracy of past estimates"), calibration_url),),
    )


def correction_rows(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the corrections of a forecast: the number of past estimates used, and the factors.

    Forecasts of earlier versions have no corrections.
    """
    corrections = facts.get("corrections", {})
    for group, label in GROUPS.items():
        factors = corrections.get(group)
        if factors and factors["past"]:
            p50, p90 = percent(factors["p50"]), percent(factors["p90"])
            past = plural(factors["past"], "past estimate")
            factors_text = _("p50 to {p50}, p90 to {p90} of its wait").format(p50=p50, p90=p90)
            yield _(label).format(estimates=past), factors_text
