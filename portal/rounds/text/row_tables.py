"""The long tables of a round: the first rows on its page, all rows on a page for each table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from portal.charts.figures import plural, thousands
from portal.common.clocks import Clocks
from portal.rounds.text import round as round_text
from portal.rounds.text.answers import answer_row, answers_text, answers_title
from portal.rounds.text.rows import end_row, pick_rows, queue_entries
from portal.rounds.text.throughputs import throughput_rows, throughput_title
from scheduling.selectors.rounds.certificates import CertificateView
from scheduling.selectors.rounds.one_round import RoundDecision, RoundView, ShareSums
from scheduling.selectors.rounds.rows import RowSlice

FIRST = 5  # rows of a table on the round's page
PAGE = 20  # rows on a page of a table
PICKS = "rounds/_round_picks.html"


@dataclass(frozen=True, slots=True)
class RowsShown:
    """The rows of a table on a page: `count` of `total` visible ones, from `start` on.

    `hidden`: rows of other tenants that only the sums include. `is_page`: the table has this page
    for itself. `query`: what the next page's address repeats.
    """

    url: str
    count: int
    total: int
    hidden: int = 0
    start: int = 0
    is_page: bool = False
    query: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether the table has visible rows that this page does not show."""
        return self.count < self.total

    @property
    def first(self) -> int:
        """Return the number of the first row, from 1."""
        return self.start + 1

    @property
    def last(self) -> int:
        """Return the number of the last row."""
        return self.start + self.count

    @property
    def previous_url(self) -> str:
        """Return the address of the rows before, or an empty text."""
        return self._at(max(self.first - PAGE, 1)) if self.start else ""

    @property
    def next_url(self) -> str:
        """Return the address of the rows after, or an empty text."""
        return self._at(self.last + 1) if self.last < self.total else ""

    def _at(self, first: int) -> str:
        return f"{self.url}?{self.query}from={first}"


@dataclass(frozen=True, slots=True)
class RoundTable:
    """A table of a round. `name` is its id and the last part of its address."""

    name: str
    title: str
    rows: Sequence[Any]
    shown: RowsShown
    text: str = ""
    template: str = PICKS
    sums: ShareSums | None = None
    foot: str = ""


@dataclass(frozen=True, slots=True)
class TableSource:
    """The input of a round's tables. `rows` is None on the round's page."""

    pool: str
    view: RoundView
    seen: CertificateView | None
    times: Clocks
    rows: RowSlice | None = None

    def shown(self, name: str, count: int, total: int, hidden: int = 0) -> RowsShown:
        """Return which rows of a table the page shows."""
        url = reverse("round-rows", args=[self.pool, self.view.round.number, name])
        if self.rows is None:
            return RowsShown(url, count, total, hidden)
        query = "own=1&" if self.rows.is_own else ""
        return RowsShown(url, count, total, hidden, self.rows.start, is_page=True, query=query)

    def part(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return the page's part of rows that were all read, by the row's `you`."""
        if self.rows is not None:
            return rows[self.rows.start : self.rows.start + self.rows.count]
        later = [row for row in rows[FIRST:] if row["badge"] and row["badge"].you]
        return [*rows[:FIRST], *later[:FIRST]]


def round_tables(source: TableSource) -> list[RoundTable]:
    """Return the tables of the round's page that have rows."""
    tables = (table(source) for table in TABLES.values())
    return [table for table in tables if table is not None]


# ---- one function for each table; None if it would be empty ----


def _picks(source: TableSource, decision: RoundDecision, name: str) -> dict[str, Any]:
    picks = decision.grants if name == "grants" else decision.renewals
    first = picks if source.rows else picks[:FIRST]
    seen = decision.seen[name]
    total = seen.own if source.rows and source.rows.is_own else seen.all
    return {
        "name": name,
        "rows": pick_rows(first, source.view.round.policy, is_whole=len(first) == seen.all),
        "shown": source.shown(name, len(first), total, decision.counts[name] - seen.all),
        "sums": decision.granted if name == "grants" else decision.renewed,
    }


def _grants(source: TableSource) -> RoundTable | None:
    decision = source.view.decision
    if decision is None or not decision.counts["grants"]:
        return None
    return RoundTable(
        **_picks(source, decision, "grants"),
        title=_sums_text(plural(decision.counts["grants"], "grant"), decision.granted),
        text=_("In the order decided. {order}").format(
            order=round_text.order_text(source.view.round.policy)
        ),
        foot=_("Granted"),
    )


def _renewals(source: TableSource) -> RoundTable | None:
    decision = source.view.decision
    if decision is None or not decision.counts["renewals"]:
        return None
    return RoundTable(
        **_picks(source, decision, "renewals"),
        title=_sums_text(plural(decision.counts["renewals"], "renewal"), decision.renewed),
        text=_("On the same GPUs. Grants and renewals share one numbering."),
        foot=_("Renewed"),
    )


def _sums_text(leases: str, sums: ShareSums) -> str:
    return _("{leases}: {own} own, {borrowed}").format(
        leases=leases,
        own=thousands(sums.own),
        borrowed=plural(sums.borrowed, "borrowed GPU"),
    )


def _ends(source: TableSource) -> RoundTable | None:
    decision = source.view.decision
    if decision is None or not decision.counts["ends"]:
        return None
    first = decision.ends if source.rows else decision.ends[:FIRST]
    seen, count = decision.seen["ends"], decision.counts["ends"]
    total = seen.own if source.rows and source.rows.is_own else seen.all
    return RoundTable(
        name="ends",
        title=ngettext("{count} lease ended: {gpus}", "{count} leases ended: {gpus}", count).format(
            count=thousands(count), gpus=plural(decision.ended_gpus, "GPU")
        ),
        text=_ends_text(decision),
        template="rounds/_round_ends.html",
        rows=[end_row(row, source.times) for row in first],
        shown=source.shown("ends", len(first), total, count - seen.all),
        sums=ShareSums(decision.ended_gpus, 0),
        foot=_ends_foot(decision),
    )


def _ends_text(decision: RoundDecision) -> str:
    if decision.early == decision.counts["ends"]:
        return _("With notice, before the end of their terms.")
    if not decision.early:
        return _("Their terms were over, or their jobs could not go on.")
    return ngettext(
        "Their terms were over, or their jobs could not go on; {count} of them ended early, with"
        " notice.",
        "Their terms were over, or their jobs could not go on; {count} of them ended early, with"
        " notice.",
        decision.early,
    ).format(count=thousands(decision.early))


def _ends_foot(decision: RoundDecision) -> str:
    """Return "Ended, 1 of them moved, 2 with notice"."""
    parts = [_("Ended")]
    if decision.moved:
        parts.append(_("{count} of them moved").format(count=thousands(decision.moved)))
    if decision.early:
        parts.append(_("{count} with notice").format(count=thousands(decision.early)))
    return ", ".join(parts)


def _queued(source: TableSource) -> RoundTable | None:
    decision = source.view.decision
    if decision is None:
        return None
    jobs = sum(group.jobs for group in decision.skips)
    gpus = sum(group.gpus for group in decision.skips)
    entries = queue_entries(decision.skips, source.times)
    rows = source.part(entries)
    return RoundTable(
        name="queued",
        title=plural(jobs, "job was not scheduled", "jobs were not scheduled"),
        text=_("By reason, with the numbers of the smallest job, which came closest to a start."),
        template="rounds/_round_queued.html",
        rows=rows,
        shown=source.shown("queued", len(rows), len(entries)),
        sums=ShareSums(gpus, 0),
        foot=thousands(jobs),
    )


def _answers(source: TableSource) -> RoundTable | None:
    decision = source.view.decision
    answers = decision.answers if decision else None
    if decision is None or answers is None or not (answers.dated or answers.answered):
        return None
    first = answers.rows if source.rows else answers.rows[:FIRST]
    seen = decision.seen["answers"]
    return RoundTable(
        name="answers",
        title=answers_title(answers),
        text=answers_text(answers),
        template="rounds/_round_answers.html",
        rows=[answer_row(row, source.times) for row in first],
        shown=source.shown("answers", len(first), seen.all, answers.answered - seen.all),
    )


def _throughputs(source: TableSource) -> RoundTable | None:
    entries = throughput_rows(source.seen)
    if source.seen is None or not entries:
        return None
    rows = source.part(entries)
    return RoundTable(
        name="throughputs",
        title=throughput_title(source.seen),
        text=_(
            "Throughput in GPUs of the slowest type. Shares are before rounding; whole GPUs are"
            " those held now."
        ),
        template="rounds/_round_throughput.html",
        rows=rows,
        shown=source.shown("throughputs", len(rows), len(entries), source.seen.rows_hidden),
    )


TABLES: dict[str, Callable[[TableSource], RoundTable | None]] = {
    "grants": _grants,
    "ends": _ends,
    "queued": _queued,
    "renewals": _renewals,
    "answers": _answers,
    "throughputs": _throughputs,
}


def table_name(table: str) -> str:
    """Return the name of a table, for the path at the top of its page."""
    return {
        "grants": pgettext("a table of a round", "grants"),
        "ends": pgettext("a table of a round", "ends"),
        "queued": pgettext("a table of a round", "queued"),
        "renewals": pgettext("a table of a round", "renewals"),
        "answers": pgettext("a table of a round", "answers"),
        "throughputs": pgettext("a table of a round", "throughputs"),
    }.get(table, pgettext("a table of a round", "shares"))
