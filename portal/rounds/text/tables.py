"""The list of rounds: its strip of unused GPUs, and its rows with the notes behind them."""

from collections.abc import Sequence
from typing import Any

from django.urls import reverse

from portal.charts.figures import plural, thousands
from portal.charts.notes import Note, count_note
from portal.charts.roundstrip import RoundBar, round_strip
from portal.charts.svg import Markup
from portal.common.clocks import Clocks
from scheduling.models import Round
from scheduling.selectors.jobs.reasons import why
from scheduling.selectors.pools.now import round_summary
from scheduling.selectors.rounds.lists import RoundsPage


def list_strip(pool: str, rounds: Sequence[Round]) -> Markup:
    """Draw the unused GPUs of rounds, which come newest first; each bar links to its round."""
    bars = []
    for row in reversed(rounds):
        columns = {"number": row.number, "at": row.at, "summary": row.summary}
        unused = round_summary(columns, 0)
        href = reverse("round", args=[pool, row.number])
        bars.append(RoundBar(row.number, unused.idle, unused.blocked, href))
    return round_strip(bars)


def list_row(row: Round, times: Clocks) -> dict[str, Any]:
    reasons = sorted(row.summary["reasons"].items(), key=lambda item: (-item[1], item[0]))
    return {
        "round": row,
        "at": times.instant(row.at),
        "sum": row.summary,
        "reason_note": _reasons_note(row, reasons),
    }


def _reasons_note(row: Round, reasons: list[tuple[str, int]]) -> Note | None:
    if not reasons:
        return None
    return count_note(
        f"Jobs queued after round {thousands(row.number)}",
        [(why(code).text, count) for code, count in reasons],
        total="queued",
    )


def list_title(page: RoundsPage) -> str:
    if not page.rows:
        return "No rounds yet."
    count = len(page.rows)
    if page.newer is not None:
        which = f"Rounds {thousands(page.rows[-1].number)} to {thousands(page.rows[0].number)}"
    else:
        which = "The only round" if count == 1 else f"The last {count} rounds"
    return f"{which} granted {plural(page.total('granted'), 'lease')}."
