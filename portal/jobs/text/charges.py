"""A job's charges term by term; the printed rows add up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from billing.selectors.usage import TermCharge
from portal.charts.figures import apportion, credits_text, plural, thousands
from portal.charts.notes import Instant, Link, Note, credit_note
from portal.common.clocks import Clocks

PLACES = 4  # decimals of GPU-hours and charges
TERMS_LINKED = 24  # maximum number of terms of a row with a link to their price


@dataclass(frozen=True, slots=True)
class ChargeRow:
    """Consecutive terms with the same GPUs: own and borrowed GPU-time, price, charge.

    Figures are rounded as printed, so that a column adds up.
    """

    terms: str
    starts: Instant | None
    ends: Instant | None
    own_gpu_h: Decimal
    borrowed_gpu_h: Decimal
    price: str
    price_note: Note | None
    charge: Decimal
    note: Note | None
    # the end of the last term's charged time; the rest is free because rounds were late
    charged_until: Instant | None = None


def charge_rows(
    charges: list[TermCharge], *, names: dict[int | None, str], clocks: Clocks, pool: str
) -> list[ChargeRow]:
    """Return a row per group of consecutive closed terms with equal own and borrowed GPUs."""
    groups: list[list[TermCharge]] = []
    for charge in charges:
        last = groups[-1][-1] if groups else None
        if last and _folds(last, charge):
            groups[-1].append(charge)
        else:
            groups.append([charge])
    rows = [_charge_row(group, names, clocks, pool) for group in groups]
    own = apportion([row.own_gpu_h for row in rows], PLACES)
    borrowed = apportion([row.borrowed_gpu_h for row in rows], PLACES)
    charged = apportion([row.charge for row in rows], PLACES)
    return [
        replace(row, own_gpu_h=a, borrowed_gpu_h=b, charge=c)
        for row, a, b, c in zip(rows, own, borrowed, charged, strict=True)
    ]


def charged_title(rows: Sequence[ChargeRow]) -> str:
    """Return the sum of a job's charges as a heading."""
    if not rows:
        return _("Nothing charged yet")
    charged = sum((row.charge for row in rows), Decimal(0))
    if not charged:
        return _("Nothing charged so far")
    return _("Charged so far: {credits} credits").format(credits=credits_text(charged, PLACES))


def _folds(last: TermCharge, charge: TermCharge) -> bool:
    return (last.lease_id, last.own_gpus, last.borrowed_gpus) == (
        charge.lease_id,
        charge.own_gpus,
        charge.borrowed_gpus,
    )


def _charge_row(
    group: list[TermCharge], names: dict[int | None, str], clocks: Clocks, pool: str
) -> ChargeRow:
    first, last = group[0], group[-1]
    prices = sorted({charge.price for charge in group})
    price = _("own quota")
    if first.borrowed_gpus:
        # All decimals: with fewer, the product would differ from the charge.
        ends = (credits_text(prices[0], 6), credits_text(prices[-1], 6))
        price = "\N{EN DASH}".join(dict.fromkeys(ends))
    return ChargeRow(
        terms=_terms_text(first, last),
        starts=clocks.instant(first.starts_at),
        ends=clocks.instant(last.ends_at),
        own_gpu_h=sum((charge.own_gpu_h for charge in group), Decimal(0)),
        borrowed_gpu_h=sum((charge.borrowed_gpu_h for charge in group), Decimal(0)),
        price=price,
        price_note=_price_note(group, pool) if first.borrowed_gpus else None,
        charge=sum((charge.charge for charge in group), Decimal(0)),
        note=_lenders_note(group, names),
        charged_until=next(
            (clocks.instant(one.charged_until) for one in reversed(group) if one.charged_until),
            None,
        ),
    )


def _terms_text(first: TermCharge, last: TermCharge) -> str:
    if first is last:
        return _("Lease {number}, term {term}").format(
            number=thousands(first.lease_number), term=thousands(first.term)
        )
    return _("Lease {number}, terms {first}\N{EN DASH}{last}").format(
        number=thousands(first.lease_number),
        first=thousands(first.term),
        last=thousands(last.term),
    )


def _price_note(group: list[TermCharge], pool: str) -> Note:
    """Return links to the posted prices of the terms; for many terms, only the last links."""
    known = [charge for charge in group if charge.round is not None]
    links = [
        Link(
            _("Term {term}: {price}, as posted for round {round}").format(
                term=thousands(charge.term),
                price=credits_text(charge.price, 6),
                round=thousands(charge.round or 0),
            ),
            reverse("posted-price", args=[pool, charge.gpu_type, charge.round]),
        )
        for charge in known[-TERMS_LINKED:]
    ]
    left_out = len(group) - len(links)
    text = _("Also {terms}.").format(terms=plural(left_out, "earlier term")) if left_out else ""
    title = _("Each term pays the price posted for its round")
    return Note(title, text=text, links=tuple(links))


def _lenders_note(group: list[TermCharge], names: dict[int | None, str]) -> Note | None:
    """Return the lenders' parts of the charge, by the idle quota that they lent."""
    late = _("paid by the operator: rounds were late")
    earned: dict[str, Decimal] = {}
    for charge in group:
        for share in charge.lenders:
            name = names.get(share.tenant_id, _("other tenants"))
            earned[name] = earned.get(name, Decimal(0)) + share.amount
        if charge.borne:
            earned[late] = earned.get(late, Decimal(0)) - charge.borne
    if not earned:
        return None
    rows = sorted(earned.items(), key=lambda item: (-item[1], item[0]))
    # All decimals: the column's amounts are rounded to add up, and could differ from these.
    return credit_note(
        _("Earners, by idle quota lent"),
        rows,
        places=6,
        total=pgettext("of credits", "net"),
        text=_("Exact value; the column is rounded to {count} decimals.").format(count=PLACES),
    )
