"""The context of the dashboard: its headline, its figures, charts and jobs."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.charts.figures import apportion, plural, thousands
from portal.charts.notes import PoolClocks
from portal.overview.text.board import Board, PoolUseRow
from portal.overview.text.charts import day_title, figures
from portal.overview.text.lent import lent_context
from portal.overview.text.runs import runs_title, wait_note, wait_title, where
from portal.overview.text.stats import have_note, hourly_note, stats, use_note

SHOWN = 5


def uses_title(uses: Sequence[PoolUseRow]) -> str:
    """Return in which pools a tenant is below its fair share, as a heading."""
    below = [row.facts.name for row in uses if row.fair.kind == "note"]
    if not below:
        return _("Below its fair share in none of {pools}").format(pools=plural(len(uses), "pool"))
    return _("Below its fair share: {pools}").format(pools=", ".join(below))


def board_context(board: Board, times: PoolClocks) -> dict[str, Any]:
    """Return the data of templates/overview/dashboard.html."""
    shown, rest = board.runs[:SHOWN], board.runs[SHOWN:]
    hourly = [run.hourly for run in shown] + [sum((run.hourly for run in rest), Decimal(0))]
    drawn = figures(board)
    costs = apportion(hourly)  # rounded so that the printed column adds up
    return {
        "have_note": have_note(board),
        "use_note": use_note(board),
        **lent_context(board.last, board.visibility, (*board.links, board.sharing_link)),
        "hourly_note": hourly_note(board),
        "stats": stats(board),
        "day_title": day_title(board.days, board.now),
        "figures": drawn,
        "spark": next((one for one in drawn if one.key.startswith("chart-use")), None),
        "wait_title": wait_title(board.waits),
        "waits": [(wait, wait_note(wait, board.links, times)) for wait in board.waits],
        "runs_title": runs_title(board.runs, board.uses),
        "several_types": len({run.lease.gpu_type_id for run in board.runs}) > 1,
        "shown": [
            (run, where(run), (run.lease.expires_at - board.now).total_seconds(), cost)
            for run, cost in zip(shown, costs, strict=False)
        ],
        "rest": rest,
        "rest_gpus": sum(run.lease.gpus for run in rest),
        "rest_borrowed": sum(run.lease.borrowed for run in rest),
        "rest_hourly": costs[-1],
        "idle": max(0, board.has - board.uses),
        "idle_text": idle_text(board),
    }


def idle_text(board: Board) -> str:
    """Return what happens to the unused GPUs of the quota, and whether others may use them."""
    idle = max(0, board.has - board.uses)
    if not idle:
        return "" if board.uses else _("No job needs GPUs.")
    if board.uses:
        text = _not_used(board)
    else:
        text = ngettext("No job needs it.", "No job needs them.", idle)
    if board.last is not None and board.last.lent == idle:
        text = f"{text} {ngettext('It is lent.', 'They are all lent.', idle)}"
        return text.format(count=thousands(idle))
    return f"{text.format(count=thousands(idle))} {_lending_text(idle, min(idle, board.kept))}"


def _not_used(board: Board) -> str:
    return (
        _("You do not use the other {count}.")
        if board.you
        else _("It does not use the other {count}.")
    )


def _lending_text(idle: int, kept: int) -> str:
    """Return whether others may use idle GPUs, of which `kept` are not lent."""
    if kept == idle:
        return ngettext(
            "Other tenants may not use it: it is not lent.",
            "Other tenants may not use them: they are not lent.",
            idle,
        )
    if not kept:
        return ngettext(
            "Other tenants may borrow it at the posted price.",
            "Other tenants may borrow them at the posted price.",
            idle,
        )
    lent = _("Other tenants may borrow {count} of them at the posted price.")
    rest = ngettext("The other {count} is not lent.", "The other {count} are not lent.", kept)
    return f"{lent.format(count=thousands(idle - kept))} {rest.format(count=thousands(kept))}"
