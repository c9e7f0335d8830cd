"""The figures of the dashboard, with their notes: quota, use, fair share, credits."""

from decimal import Decimal

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from evenshare_core.domain.entitlements import Mode
from evenshare_core.fairness.rho import rho_of, standing
from portal.charts.figures import (
    apportion,
    credits_text,
    gpu_hours,
    percent,
    plural,
    ratio,
    thousands,
)
from portal.charts.glyphs import StateBadge
from portal.charts.notes import LineItem, Link, Note, Stat, count_note, credit_note
from portal.common.trades import claim_line, traded_text
from portal.overview.text.board import Board

MODES = {
    Mode.RESERVE: gettext_noop("It is reserved: idle quota is not lent, and no GPUs are borrowed."),
    Mode.LEND: gettext_noop("Idle quota is lent; no GPUs are borrowed."),
    Mode.LEND_AND_BORROW: gettext_noop("Idle quota is lent, and more GPUs may be borrowed."),
}
FAIR = {
    "below": gettext_noop("below fair share"),
    "at": gettext_noop("at fair share"),
    "above": gettext_noop("above fair share"),
}


def stats(board: Board) -> list[Stat]:
    """Return the four figures of the strip."""
    return [
        Stat(
            _("You have") if board.you else _("It has"),
            thousands(board.has),
            ngettext("GPU quota", "GPUs quota", board.has),
            *_have_lines(board),
            have_note(board),
        ),
        Stat(
            _("You use") if board.you else _("It uses"),
            thousands(board.uses),
            ngettext("GPU", "GPUs", board.uses),
            (
                LineItem(_("within quota"), thousands(board.own)),
                LineItem(_("borrowed"), thousands(board.borrowed)),
            ),
            LineItem(_in_jobs(board), thousands(board.uses)),
            use_note(board),
        ),
        _received(board),
        _owed(board) if board.money.net < 0 else _earned(board),
    ]


def _in_jobs(board: Board) -> str:
    return _("in {jobs}").format(jobs=plural(len(board.runs), "job"))


def _have_lines(board: Board) -> tuple[tuple[LineItem, ...], LineItem]:
    total = LineItem(_("quota"), thousands(board.has))
    claims = board.last.claims if board.last else ()
    if len(claims) > 1:
        return tuple(map(claim_line, claims)), total
    within = min(board.own, board.has)
    kept = min(board.kept, board.has - within)
    lines = [
        LineItem(_("in use"), thousands(within)),
        LineItem(_("idle, not lent"), thousands(kept)),
        LineItem(_("free for others"), thousands(board.has - within - kept)),
    ]
    if not kept:
        del lines[1]
    elif kept == board.has - within:
        del lines[2]
    return tuple(lines), total


def have_note(board: Board) -> Note:
    """Return the source of the quota, and whether capacity reduced it."""
    sentences = [board.promise.text] if board.promise else []
    if board.is_scaled:
        sentences.append(
            _(
                "The quota is {quota}; quotas exceed the pool's GPUs that are up, so all are scaled"
                " down in proportion."
            ).format(quota=thousands(board.nominal))
        )
    modes = {quota.mode for quota in board.quotas}
    if len(modes) == 1:
        sentences.append(_(MODES[modes.pop()]))
    text = " ".join(sentences)
    types = [(quota.gpu_type, quota.gpus) for quota in board.quotas]
    types += [(_("by trades"), board.swapped)] if board.swapped else []
    if len(types) < 2:
        return Note(_("Quota"), text=text, links=board.links)
    return count_note(_("Quota"), types, total=_("sum"), text=text, links=board.links)


def use_note(board: Board) -> Note:
    """Return the own and borrowed GPUs."""
    return count_note(
        _("GPUs in use"),
        [(_("within quota"), board.own), (_("borrowed"), board.borrowed)],
        total=_in_jobs(board),
        text=_(
            "Own quota is used first, in the order of lease starts; the rest is borrowed at the"
            " price of its term."
        ),
        links=board.links,
    )


def _received(board: Board) -> Stat:
    """Return received GPU-time in per cent of the fair share, with rho as its explanation."""
    claims = board.last.claims if board.last else ()
    received = sum(row.received_gpu_s for row in claims)
    deserved = sum(row.deserved_gpu_s for row in claims)
    rho = rho_of(received, deserved)
    lines: tuple[LineItem, ...] = (
        LineItem(_("received"), f"{gpu_hours(received)} GPU-h"),
        LineItem(_("fair share"), f"{gpu_hours(deserved)} GPU-h"),
    )
    if len(claims) > 1:
        of_types = (
            LineItem(_("rho on {gpu_type}").format(gpu_type=row.gpu_type), ratio(row.rho))
            for row in claims
        )
        lines = (*lines, *of_types)
    text = _(
        "Fair share: the smaller of demand and quota, summed over time since the pool started. A"
        " rho of 1.00 or more is fair; the tenant with the lowest rho goes first."
    ) + traded_text(claims)
    noted = lines
    if board.deficit is not None:
        noted, text = (*lines, board.deficit.line), f"{text} {board.deficit.text}"
    total = LineItem(_("received \N{DIVISION SIGN} fair share: rho"), ratio(rho))
    title = _("rho = GPU-time received \N{DIVISION SIGN} fair share")
    note = Note(title, noted, total, text, board.links)
    badge = fair_badge(rho)
    return Stat(_("Received / fair share"), percent(rho), "", lines, total, note, badge)


def fair_badge(rho: float | None) -> StateBadge:
    """Return a mark that compares a tenant's rho with its fair share."""
    if rho is None:
        return StateBadge("unclaimed", _("no demand yet"))
    where_it_is = standing(rho)
    return StateBadge("note" if where_it_is == "below" else "ok", _(FAIR[where_it_is]))


def _owed(board: Board) -> Stat:
    """Return what the tenant owes for the last day, without a sign; the label states it."""
    money = board.money
    borrowing, lending = apportion([money.paid, -money.earned])
    return Stat(
        _("You owe, last 24 h") if board.you else _("It owes, last 24 h"),
        credits_text(-money.net),
        _("credits"),
        (
            LineItem(_borrowing(board), credits_text(borrowing)),
            LineItem(_lending(board), credits_text(lending)),
        ),
        LineItem(_("total owed"), credits_text(-money.net)),
        credit_note(
            _("Owed for the last 24 h of pool time, by whole hours"),
            _settled(board, -1),
            total=_("owed"),
            text=_day_only(),
            links=_ledger(board),
        ),
    )


def _earned(board: Board) -> Stat:
    """Return what the tenant earned on the last day."""
    money = board.money
    lending, borrowing = apportion([money.earned, -money.paid])
    return Stat(
        _("You earned, last 24 h") if board.you else _("It earned, last 24 h"),
        credits_text(money.net),
        _("credits"),
        (
            LineItem(_lending(board), credits_text(lending)),
            LineItem(_borrowing(board), credits_text(borrowing)),
        ),
        LineItem(_("total earned"), credits_text(money.net)),
        credit_note(
            _("Earned for the last 24 h of pool time, by whole hours"),
            _settled(board, 1),
            total=_("earned"),
            text=_day_only(),
            links=_ledger(board),
        ),
    )


def _borrowing(board: Board) -> str:
    hours = thousands(board.money.borrowed_gpu_h, 2)
    return _("for borrowing {gpu_h} GPU-h").format(gpu_h=hours)


def _lending(board: Board) -> str:
    return _("by lending {gpu_h} GPU-h").format(gpu_h=thousands(board.money.lent_gpu_h, 2))


def _settled(board: Board, sign: int) -> list[tuple[str, Decimal]]:
    money = board.money
    return [
        (_("settled"), sign * (money.net - money.open_net)),
        (_("not settled yet"), sign * money.open_net),
    ]


def _day_only() -> str:
    return _(
        "For one day only. The total is the balance in the ledger, which counts only settled hours."
    )


def _ledger(board: Board) -> tuple[Link, ...]:
    return (Link(_("Ledger"), board.ledger_url),)


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
        _("Credits per hour, at the price of each term"),
        [
            (
                f"{plural(gpus, 'GPU')} \N{MULTIPLICATION SIGN} {credits_text(price, 4)}",
                gpus * price,
            )
            for price, gpus in sorted(by_price.items())
        ],
        total=_("per hour"),
        text=_(
            "A borrowed GPU goes back at the end of its term, or with notice before it, when its"
            " owner needs it."
        )
        if board.may_be_preempted
        else _("A borrowed GPU goes back at the end of its term, when its owner needs it."),
        links=board.links,
    )
