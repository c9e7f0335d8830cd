"""Texts about lending and borrowing of a tenant's quota."""

from collections.abc import Sequence

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from evenshare_core.domain.entitlements import Entitlement, Mode
from portal.charts.figures import credits_text, plural, thousands
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
        return _(
            "Nothing is lent: the posted price of {gpu_type} is {price} credits, below the lowest"
            " floor of {floor}."
        ).format(
            gpu_type=row.gpu_type,
            price=credits_text(row.price, 6),
            floor=credits_text(row.floor, 6),
        )
    if last is not None and last.lent:
        return ngettext(
            "{gpus} of the quota is lent now, to {borrowers}.",
            "{gpus} of the quota are lent now, to {borrowers}.",
            1 if last.lent == 1 else 2,
        ).format(gpus=gpus_text(last.lent), borrowers=names_text(visibility, last.borrowers))
    if not idle:
        return _("All of the quota is in use, so nothing is lent.")
    return ngettext(
        "{gpus} of the quota is idle; other tenants may borrow {lent}.",
        "{gpus} of the quota are idle; other tenants may borrow {lent}.",
        idle,
    ).format(gpus=plural(idle, "GPU"), lent=thousands(lent))


def limits_text(row: Entitlement, *, by_offer: bool = False) -> str:
    """Return a quota's limits: "lends 2 idle GPUs at most; borrows 4 at most"."""
    if row.mode is Mode.RESERVE:
        return "; ".join((_("lends nothing"), _("borrows nothing")))
    most = row.lendable(row.gpus)
    if most == 0:
        lends = _("lends nothing")
    elif most < row.gpus:
        lends = _("lends at most {gpus}").format(gpus=plural(most, "idle GPU"))
    else:
        lends = _("lends all idle GPUs")
    if by_offer:
        lends = ", ".join((lends, _("only by offers")))
    return f"{lends}; {_borrows(row.may_borrow)}"


def _borrows(limit: int | None) -> str:
    if limit is None:
        return _("borrows without limit")
    if limit == 0:
        return _("borrows nothing")
    return _("borrows {count} at most").format(count=thousands(limit))
