"""Texts and charts of the dashboard: quota, use, fair share, credits, the last day, jobs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

from billing.selectors.accounts import AccountSummary
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.fairness.rho import rho_of, standing
from portal.charts.deficits import DayDeficit
from portal.charts.explore.chart import PageChart
from portal.charts.explore.throughputs import throughput_chart
from portal.charts.explore.uses import rho_chart, use_chart
from portal.charts.figures import (
    apportion,
    coarse,
    credits_text,
    gpu_hours,
    percent,
    plural,
    ratio,
    telling_places,
    thousands,
)
from portal.charts.glyphs import StateBadge
from portal.charts.notes import LineItem, Link, Note, Stat, count_note, credit_note
from portal.charts.speeds import value_text
from portal.common.quota_promises import QuotaPromiseText
from portal.common.trades import claim_line, traded_text
from portal.overview.text.lent import lent_context
from portal.overview.text.runs import runs_title, wait_note, wait_title, where
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.pools.throughput import ThroughputPoint
from scheduling.selectors.rounds.histories import ClaimHistoryPoint
from scheduling.selectors.tenants.dashboard import LastRound, RunningJob, WaitingJobs
from scheduling.selectors.tenants.pools import PoolUse
from scheduling.selectors.visibility import Visibility

SHOWN = 5
MODES = {
    Mode.RESERVE: "It is reserved: idle quota is not lent, and no GPUs are borrowed.",
    Mode.LEND: "Idle quota is lent; no GPUs are borrowed.",
    Mode.LEND_AND_BORROW: "Idle quota is lent, and more GPUs may be borrowed.",
}


@dataclass(frozen=True, slots=True)
class Board:
    """The data of a dashboard. `round_url` is the last round's.

    `days` and `deficit` are of the last day, `older` are the claims of the days before it.
    """

    name: str
    you: bool
    now: datetime
    visibility: Visibility
    last: LastRound | None
    quotas: Sequence[Entitlement]
    runs: Sequence[RunningJob]
    waits: Sequence[WaitingJobs]
    days: Sequence[ClaimHistoryPoint]
    money: AccountSummary
    round_url: str
    ledger_url: str
    sharing_link: Link
    moments: Sequence[ThroughputPoint] = ()
    older: Sequence[ClaimHistoryPoint] = ()
    promise: QuotaPromiseText | None = None
    may_be_preempted: bool = False
    deficit: DayDeficit | None = None

    @property
    def has(self) -> int:
        """Return the GPUs of effective quota, or of nominal quota before the first round."""
        claims = self.last.claims if self.last else ()
        return sum(row.quota for row in claims) if claims else sum(q.gpus for q in self.quotas)

    @property
    def own(self) -> int:
        """Return the GPUs in use within quota."""
        return sum(run.lease.own for run in self.runs)

    @property
    def borrowed(self) -> int:
        """Return the GPUs in use above quota."""
        return sum(run.lease.borrowed for run in self.runs)

    @property
    def uses(self) -> int:
        return self.own + self.borrowed

    @property
    def kept(self) -> int:
        """Return the idle GPUs of its quota that are not lent."""
        claims = self.last.claims if self.last else ()
        quota = {row.gpu_type: row.quota for row in claims}
        own: Counter[str] = Counter()
        for run in self.runs:
            own[run.lease.gpu_type.name] += run.lease.own
        idle = {
            row.gpu_type: max(0, quota.get(row.gpu_type, row.gpus) - own[row.gpu_type])
            for row in self.quotas
        }
        return sum(idle[row.gpu_type] - row.lendable(idle[row.gpu_type]) for row in self.quotas)

    @property
    def hourly(self) -> Decimal:
        """Return the credits per hour at the prices of the running terms."""
        return sum((run.hourly for run in self.runs), Decimal(0))

    @property
    def links(self) -> tuple[Link, ...]:
        """Return a link to the last round, the source of its figures."""
        if self.last is None:
            return ()
        return (Link(f"Round {thousands(self.last.number)}", self.round_url),)


@dataclass(frozen=True, slots=True)
class PoolUseRow:
    """A tenant in one of its pools, as a row of the overview."""

    facts: PoolFacts
    use: PoolUse
    fair: StateBadge
    is_here: bool


def uses_title(uses: Sequence[PoolUseRow]) -> str:
    """Return in which pools a tenant is below its fair share, as a heading."""
    below = [row.facts.name for row in uses if row.fair.kind == "note"]
    if not below:
        return f"Below its fair share in none of {plural(len(uses), 'pool')}"
    if len(below) > 2:
        return f"Below its fair share in {len(below)} of {plural(len(uses), 'pool')}"
    return f"Below its fair share in {' and '.join(below)}, of {plural(len(uses), 'pool')}"


def board_context(board: Board) -> dict[str, Any]:
    """Return the data of templates/overview/dashboard.html."""
    shown, rest = board.runs[:SHOWN], board.runs[SHOWN:]
    hourly = [run.hourly for run in shown] + [sum((run.hourly for run in rest), Decimal(0))]
    drawn = figures(board)
    costs = apportion(hourly)  # rounded so that the printed column adds up
    return {
        "subject": "You" if board.you else board.name,
        "have_word": "have" if board.you else "has",
        "use_word": "use" if board.you else "uses",
        "have_note": have_note(board),
        "use_note": use_note(board),
        **lent_context(board.last, board.visibility, (*board.links, board.sharing_link)),
        "hourly_note": hourly_note(board),
        "stats": stats(board),
        "day_title": day_title(board.days, board.now),
        "figures": drawn,
        "spark": next((one for one in drawn if one.key.startswith("chart-use")), None),
        "wait_title": wait_title(board.waits),
        "waits": [(wait, wait_note(wait, board.links)) for wait in board.waits],
        "runs_title": runs_title(board.runs, board.uses),
        "several_types": len({run.lease.gpu_type_id for run in board.runs}) > 1,
        "shown": [
            (run, where(run), (run.lease.expires_at - board.now).total_seconds(), cost)
            for run, cost in zip(shown, costs, strict=False)
        ],
        "rest": rest,
        "rest_gpus": sum(run.lease.gpus for run in rest),
        "rest_own": sum(run.lease.own for run in rest),
        "rest_borrowed": sum(run.lease.borrowed for run in rest),
        "rest_hourly": costs[-1],
        "idle": max(0, board.has - board.uses),
        "idle_text": idle_text(board),
    }


def stats(board: Board) -> list[Stat]:
    """Return the four figures of the strip."""
    who = "You" if board.you else "It"
    verbs = ("have", "use") if board.you else ("has", "uses")
    have, use = (f"{who} {verb}" for verb in verbs)
    quota = f"{_gpus(board.has)} quota"
    return [
        Stat(have, thousands(board.has), quota, *_have_lines(board), have_note(board)),
        Stat(
            use,
            thousands(board.uses),
            _gpus(board.uses),
            (
                LineItem("within quota", thousands(board.own)),
                LineItem("borrowed", thousands(board.borrowed)),
            ),
            LineItem(f"in {plural(len(board.runs), 'job')}", thousands(board.uses)),
            use_note(board),
        ),
        _received(board),
        _owe(board, who),
    ]


def _gpus(count: int) -> str:
    return "GPU" if count == 1 else "GPUs"


def _have_lines(board: Board) -> tuple[tuple[LineItem, ...], LineItem]:
    total = LineItem("quota", thousands(board.has))
    claims = board.last.claims if board.last else ()
    if len(claims) > 1:
        return tuple(map(claim_line, claims)), total
    within = min(board.own, board.has)
    kept = min(board.kept, board.has - within)
    lines = [
        LineItem("in use", thousands(within)),
        LineItem("idle, not lent", thousands(kept)),
        LineItem("free for others", thousands(board.has - within - kept)),
    ]
    if not kept:
        del lines[1]
    elif kept == board.has - within:
        del lines[2]
    return tuple(lines), total


def have_note(board: Board) -> Note:
    """Return the source of the quota, and whether capacity reduced it."""
    nominal = sum(quota.gpus for quota in board.quotas)
    text = board.promise.text if board.promise else ""
    swapped = sum(row.swapped for row in board.last.claims) if board.last else 0
    if nominal > board.has - swapped:
        text += (
            f" The quota is {thousands(nominal)}; quotas exceed the pool's GPUs that are up, so"
            " all are scaled down in proportion."
        )
    modes = {quota.mode for quota in board.quotas}
    if len(modes) == 1:
        text += f" {MODES[modes.pop()]}"
    types = [(quota.gpu_type, quota.gpus) for quota in board.quotas]
    types += [("by trades", swapped)] if swapped else []
    if len(types) < 2:
        return Note("Quota", text=text.strip(), links=board.links)
    return count_note("Quota", types, text=text.strip(), links=board.links)


def use_note(board: Board) -> Note:
    """Return the own and borrowed GPUs."""
    return count_note(
        "GPUs in use",
        [("within quota", board.own), ("borrowed", board.borrowed)],
        total=f"in {plural(len(board.runs), 'job')}",
        text="Own quota is used first, in the order of lease starts; the rest is borrowed at the"
        " price of its term.",
        links=board.links,
    )


def _received(board: Board) -> Stat:
    """Return received GPU-time in per cent of the fair share, with rho as its explanation."""
    claims = board.last.claims if board.last else ()
    received = sum(row.received_gpu_s for row in claims)
    deserved = sum(row.deserved_gpu_s for row in claims)
    rho = rho_of(received, deserved)
    lines: tuple[LineItem, ...] = (
        LineItem("received", f"{gpu_hours(received)} GPU-h"),
        LineItem("fair share", f"{gpu_hours(deserved)} GPU-h"),
    )
    if len(claims) > 1:
        lines = (*lines, *(LineItem(f"rho on {row.gpu_type}", ratio(row.rho)) for row in claims))
    text = (
        "Fair share: the smaller of demand and quota, summed over time since the pool started. A"
        " rho of 1.00 or more is fair; the tenant with the lowest rho goes first."
    ) + traded_text(claims)
    noted = lines
    if board.deficit is not None:
        noted, text = (*lines, board.deficit.line), f"{text} {board.deficit.text}"
    total = LineItem("received \N{DIVISION SIGN} fair share: rho", ratio(rho))
    note = Note("rho = GPU-time received ÷ fair share", noted, total, text, board.links)
    return Stat("Received / fair share", percent(rho), "", lines, total, note, fair_badge(rho))


def fair_badge(rho: float | None) -> StateBadge:
    """Return a mark that compares a tenant's rho with its fair share."""
    if rho is None:
        return StateBadge("unclaimed", "no demand yet")
    where_it_is = standing(rho)
    return StateBadge("note" if where_it_is == "below" else "ok", f"{where_it_is} fair share")


def _owe(board: Board, who: str) -> Stat:
    """Return the net income of the last day without a sign; the label states the direction."""
    money = board.money
    owes = money.net < 0
    borrowed = (f"for borrowing {thousands(money.borrowed_gpu_h, 2)} GPU-h", money.paid)
    lent = (f"by lending {thousands(money.lent_gpu_h, 2)} GPU-h", money.earned)
    first, second = (borrowed, lent) if owes else (lent, borrowed)
    parts = apportion([first[1], -second[1]])
    lines = (
        LineItem(first[0], credits_text(parts[0])),
        LineItem(second[0], credits_text(parts[1])),
    )
    sign = -1 if owes else 1
    verb = "owed" if owes else "earned"
    note = credit_note(
        f"{verb.capitalize()} for the last 24 h of pool time, by whole hours",
        [
            ("settled", sign * (money.net - money.open_net)),
            ("not settled yet", sign * money.open_net),
        ],
        total=verb,
        text="For one day only. The total is the balance in the ledger, which counts only"
        " settled hours.",
        links=(Link("Ledger", board.ledger_url),),
    )
    figure = credits_text(abs(money.net))
    total = LineItem(f"total {verb}", figure)
    verb = ("owe" if who == "You" else "owes") if owes else "earned"
    return Stat(f"{who} {verb}, last 24 h", figure, "credits", lines, total, note)


def idle_text(board: Board) -> str:
    """Return what happens to the unused GPUs of the quota, and whether others may use them."""
    idle = max(0, board.has - board.uses)
    if not idle:
        return "" if board.uses else "No job needs GPUs."
    kept = min(idle, board.kept)
    waits, them = ("is", "it") if idle == 1 else ("are", "them")
    if not board.uses:
        text = f"No job needs {'it' if idle == 1 else 'them'}; "
    else:
        text = f"The other {thousands(idle)} {waits} idle; "
    if kept == idle:
        they_are = "it is" if idle == 1 else "they are"
        return f"{text}other tenants may not use {them}: {they_are} not lent."
    if kept:
        lent, kept_be = thousands(idle - kept), "is" if kept == 1 else "are"
        text += f"other tenants may borrow {lent} of them at the posted price;"
        return f"{text} the other {thousands(kept)} {kept_be} not lent."
    return f"{text}other tenants may borrow {them} at the posted price."


def hourly_note(board: Board) -> Note | None:
    """Return borrowed GPUs x price, by price."""
    by_price: dict[Decimal, int] = {}
    for run in board.runs:
        price, borrowed = run.lease.price, run.lease.borrowed
        if borrowed:
            by_price[price] = by_price.get(price, 0) + borrowed
    if not by_price:
        return None
    return credit_note(
        "Credits per hour, at the price of each term",
        [
            (
                f"{plural(gpus, 'GPU')} \N{MULTIPLICATION SIGN} {credits_text(price, 4)}",
                gpus * price,
            )
            for price, gpus in sorted(by_price.items())
        ],
        total="per hour",
        text="A borrowed GPU goes back at the end of its term"
        f"{', or with notice before it' if board.may_be_preempted else ''}, when its owner needs"
        " it.",
        links=board.links,
    )


def day_title(days: Sequence[ClaimHistoryPoint], now: datetime) -> str:
    """Return the title of the use chart."""
    if not days:
        return "No round with this tenant yet"
    above: dict[datetime, bool] = {}
    for day in days:
        above[day.at] = above.get(day.at, False) or day.use > day.quota
    over, under = timedelta(0), timedelta(0)
    for at, until in pairwise([*sorted(above), now]):
        if above[at]:
            over += until - at
        else:
            under += until - at
    length = coarse((over + under).total_seconds())
    if not over:
        return f"Within quota for all of the last {length}"
    if not under:
        return f"Above quota for all of the last {length}"
    if over < under:
        return f"Above quota for {coarse(over.total_seconds())} of the last {length}"
    return f"Above quota for all but {coarse(under.total_seconds())} of the last {length}"


def figures(board: Board) -> list[PageChart]:
    """Draw throughput, then use and quota, and rho, per GPU type if there are several."""
    types = list(dict.fromkeys(day.gpu_type for day in board.days))
    drawn = [_throughput_figure(board)] if board.moments else []
    for gpu_type in types:
        days = [day for day in board.days if day.gpu_type == gpu_type]
        older = [day for day in board.older if day.gpu_type == gpu_type]
        prefix = f"{gpu_type}: " if len(types) > 1 else ""
        use = f"{prefix}{thousands(days[-1].use)} in use, quota {plural(days[-1].quota, 'GPU')}"
        drawn += [
            use_chart(
                [*older, *days],
                board.now,
                key=f"chart-use-{gpu_type}",
                title=use,
                file=f"use-{board.name}-{gpu_type}",
            ),
            rho_chart(
                [*older, *days],
                board.now,
                key=f"chart-rho-{gpu_type}",
                title=_rho_title(days, prefix),
                file=f"rho-{board.name}-{gpu_type}",
            ),
        ]
    return drawn


def _throughput_figure(board: Board) -> PageChart:
    return throughput_chart(
        board.moments,
        board.now,
        key="chart-throughput",
        title=f"Throughput {value_text(board.moments[-1].milli)} on {plural(board.uses, 'GPU')}",
        file=f"throughput-{board.name}",
    )


def _rho_title(days: Sequence[ClaimHistoryPoint], prefix: str) -> str:
    """Return the last rho, and its range over the last day."""
    known = [day.rho for day in days if day.rho is not None]
    if not known:
        return f"{prefix}no rho yet" if prefix else "No rho yet"
    low, high = min(known), max(known)
    if standing(low) == standing(high) == "at":
        said = "at fair share all day"
        return f"{prefix}{said}" if prefix else said.capitalize()
    places = telling_places([low, high, 1.0])
    title = f"{prefix}rho {ratio(known[-1], places)}"
    if low < high:
        title += f", between {ratio(low, places)} and {ratio(high, places)}"
    return title
