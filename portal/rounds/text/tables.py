"""The list of rounds: its strip of unused GPUs, and its rows with the notes behind them."""

from collections.abc import Sequence
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from portal.charts.figures import plural, thousands
from portal.charts.notes import Note, count_note
from portal.charts.roundstrip import RoundBar, round_strip
from portal.charts.svg import Markup
from portal.common.clocks import Clocks
from scheduling.models import Round
from scheduling.selectors.jobs.reasons import why
from scheduling.selectors.pools.now import RoundSummary, round_summary
from scheduling.selectors.rounds.lists import RoundsPage


def list_strip(pool: str, rounds: Sequence[Round]) -> Markup:
    """Draw the unused GPUs of rounds, which come newest first; each bar links to its round."""
    bars = []
    for row in reversed(rounds):
        unused = _unused(row)
        href = reverse("round", args=[pool, row.number])
        bars.append(RoundBar(row.number, unused.idle, unused.blocked, href))
    return round_strip(bars)


def _unused(row: Round) -> RoundSummary:
    return round_summary({"number": row.number, "at": row.at, "summary": row.summary}, 0)


def list_row(row: Round, times: Clocks) -> dict[str, Any]:
    reasons = sorted(row.summary["reasons"].items(), key=lambda item: (-item[1], item[0]))
    return {
        "round": row,
        "at": times.instant(row.at),
        "sum": row.summary,
        "unused": _unused(row),
        "reason_note": _reasons_note(row, reasons),
    }


def _reasons_note(row: Round, reasons: list[tuple[str, int]]) -> Note | None:
    if not reasons:
        return None
    return count_note(
        _("Jobs queued after round {number}").format(number=thousands(row.number)),
        [(why(code).text, count) for code, count in reasons],
        total=pgettext("a number of jobs", "queued"),
    )


def list_title(page: RoundsPage) -> str:
    if not page.rows:
        return _("No rounds yet.")
    last = page.rows[0]
    shown = _unused(last)
    if page.newer is not None:
        text = _("Rounds {first} to {last}")
        return text.format(first=thousands(page.rows[-1].number), last=thousands(last.number))
    text = _("Round {number} left {gpus} idle and {jobs} queued.")
    return text.format(
        number=thousands(last.number),
        gpus=plural(shown.idle, "GPU"),
        jobs=plural(shown.waiting, "job"),
    )
