"""The GPUs that a tenant lends now, their borrowers, and the lenders of its borrowed GPUs."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from portal.charts.figures import plural, thousands
from portal.charts.notes import LineItem, Link, Note, count_note
from scheduling.selectors.tenants.dashboard import LastRound
from scheduling.selectors.visibility import Visibility

NAMED = 2


def lent_context(
    last: LastRound | None, visibility: Visibility, links: tuple[Link, ...]
) -> dict[str, Any]:
    """Return the texts about lending on the dashboard; `lent` is empty if nothing is lent."""
    if last is None:
        return {
            "lenders": "",
            "lent": "",
            "lent_note": None,
            "borrowers": "",
            "borrowers_note": None,
        }
    return {
        "lenders": names_text(visibility, last.lenders),
        "lent": gpus_text(last.lent) if last.lent else "",
        "lent_note": _lent_note(last.lent, links),
        "borrowers": names_text(visibility, last.borrowers),
        "borrowers_note": _borrowers_note(visibility, last.borrowers, links),
    }


def names_text(visibility: Visibility, tenants: Sequence[tuple[int, int]]) -> str:
    """Return the names of lenders or borrowers, as far as the viewer may know."""
    seen = [visibility.of(tenant) for tenant, _gpus in tenants]
    names = [row.name for row in seen if row is not None][:NAMED]
    if not names or None in seen:
        return pgettext("from or to", "other tenants")
    if len(tenants) > len(names):
        others = len(tenants) - len(names)
        text = ngettext("{names} and {count} other", "{names} and {count} others", others)
        return text.format(names=", ".join(names), count=thousands(others))
    if len(names) == 1:
        return names[0]
    return _("{names} and {last}").format(names=", ".join(names[:-1]), last=names[-1])


def gpus_text(gpus: Fraction) -> str:
    """Return a number of GPUs, with one decimal place if it is not whole."""
    if gpus.denominator == 1:
        return plural(int(gpus), "GPU")
    return _("{count} GPUs").format(count=thousands(round(float(gpus), 1), 1))


def _lent_note(lent: Fraction, links: tuple[Link, ...]) -> Note:
    return Note(
        _("GPUs lent"),
        (LineItem(_("lent since the last round"), gpus_text(lent)),),
        text=_(
            "A borrowed GPU has no particular lender. Tenants with idle quota lend in proportion"
            " to it, and earn in proportion."
        ),
        links=links,
    )


def _borrowers_note(
    visibility: Visibility, borrowers: Sequence[tuple[int, int]], links: tuple[Link, ...]
) -> Note | None:
    """Return all borrowers with their GPUs; None if the sentence names them all, or may not."""
    named = [(seen.name, gpus) for tenant, gpus in borrowers if (seen := visibility.of(tenant))]
    if len(named) <= NAMED or len(named) < len(borrowers):
        return None
    return count_note(
        _("Borrowers"),
        named,
        text=_("The GPUs that each borrows in the pool, from all lenders together."),
        links=links,
    )
