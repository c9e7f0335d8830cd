"""Texts about the expected start of a queued job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from portal.charts.figures import MINUTE_S, coarse, duration, percent, plural, thousands
from portal.charts.notes import Instant, LineItem, Link, Note
from portal.common.clocks import Clocks
from scheduling.selectors.jobs.start_estimates import StartView

ASSUMED = (
    "The pool's policy was simulated several times on the present queue. Run times were drawn"
    " from ended jobs, submissions from the past day. Nodes, quotas and credit do not change,"
    " and no job is cancelled. p50 and p90: the times by which 50 % and 90 % of the runs had"
    " started the job, corrected by the errors of past estimates."
)

GROUPS = {"short": "p50 within a lease length", "long": "p50 later"}


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
        return f"Expected to start {_about(p50_s)} (p50), maybe {_not_within(left_s)} (p90)"
    p90_s = (start.p90 - now).total_seconds()
    if p90_s <= 0:
        return ""  # the estimate was wrong
    if p50_s > 0 and p90_s < MINUTE_S:
        return "Expected to start within a minute (p50 and p90)"
    return f"Expected to start {_about(p50_s)} (p50), {_within(p90_s)} (p90)"


def _about(seconds: float) -> str:
    if seconds <= 0:
        return "any time now"
    return f"in about {coarse(seconds)}" if seconds >= MINUTE_S else _within(seconds)


def _within(seconds: float) -> str:
    return f"within {coarse(seconds)}" if seconds >= MINUTE_S else "within a minute"


def _not_within(seconds: float) -> str:
    """Return a text for a p90 beyond the simulated time, of which `seconds` are left."""
    if seconds <= 0:
        return "after the simulated time"
    return f"not within {duration(seconds)}" if seconds >= MINUTE_S else "not within a minute"


def assumptions_note(start: StartView, calibration_url: str) -> Note:
    """Return the assumptions of the estimate, with a link to its past accuracy."""
    facts = start.facts
    lines = [
        LineItem("simulated runs", thousands(facts.get("runs", 0))),
        LineItem("queued and running jobs", f"{facts.get('queued')} and {facts.get('running')}"),
        LineItem("of these, with their own estimate", thousands(facts.get("with_estimate"))),
        LineItem("ended jobs used for durations", thousands(facts.get("ended"))),
        LineItem("simulated submissions per run", thousands(facts.get("arrivals"))),
        LineItem("rate of submissions from the past", duration(facts.get("past_s"))),
    ]
    lines.extend(LineItem(*row) for row in correction_rows(facts))
    return Note(
        f"As of round {thousands(start.round)}",
        tuple(lines),
        text=ASSUMED,
        links=(Link("Accuracy of past estimates", calibration_url),),
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
            yield f"{label}, corrected by {past}", f"p50 to {p50}, p90 to {p90} of its wait"
