"""Texts about lending and borrowing of a tenant's quota."""

from collections.abc import Sequence
from fractions import Fraction

from evenshare_core.domain.entitlements import Entitlement, Mode
from portal.charts.figures import credits_text, plural
from portal.overview.text.lent import gpus_text, names_text
from scheduling.selectors.sharing.views import SharingRow
from scheduling.selectors.tenants.dashboard import LastRound
from scheduling.selectors.visibility import Visibility


def sharing_headline(
    rows: Sequence[SharingRow], last: LastRound | None, visibility: Visibility
) -> str:
    """Return the page's headline: the GPUs lent now and their borrowers, or idle GPUs."""
    idle, lent = sum(row.idle for row in rows), sum(row.lendable for row in rows)
    refused = [row for row in rows if row.is_priced_out]
    if lent == 0 and refused:
        row = refused[0]
        assert row.floor is not None  # noqa: S101 - offers stand, so there is a lowest floor
        return (
            f"Nothing is lent: the posted price of {row.gpu_type} is {credits_text(row.price, 6)}"
            f" credits, below the lowest floor of {credits_text(row.floor, 6)}."
        )
    if last is not None and last.lent:
        return (
            f"{gpus_text(last.lent)} of the quota {_are(last.lent)} lent now, to"
            f" {names_text(visibility, last.borrowers)}."
        )
    if not idle:
        return "All of the quota is in use, so nothing is lent."
    return (
        f"{plural(idle, 'GPU')} of the quota {_are(idle)} idle; other tenants may borrow {lent:,}."
    )


def limits_text(row: Entitlement, *, by_offer: bool = False) -> str:
    """Return a quota's limits: "lends 2 idle GPUs at most; borrows 4 at most"."""
    if row.mode is Mode.RESERVE:
        return "lends nothing; borrows nothing"
    most = row.lendable(row.gpus)
    if most == 0:
        lends = "lends nothing"
    elif most < row.gpus:
        lends = f"lends at most {plural(most, 'idle GPU')}"
    else:
        lends = "lends all idle GPUs"
    if by_offer:
        lends += ", only by offers"
    limit = row.may_borrow
    if limit is None:
        return f"{lends}; borrows without limit"
    return f"{lends}; borrows {'nothing' if limit == 0 else f'{limit:,} at most'}"


def _are(count: int | Fraction) -> str:
    return "is" if count == 1 else "are"
