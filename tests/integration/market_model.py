"""Implement the rules for offers and credit (docs/money.md) a second time, in plain Python.

Amounts are micro-credits, times are seconds of pool time. The model reads the terms of rounds. It
computes costs, earnings, reservations, and each tenant's spending and remaining credit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from fractions import Fraction
from itertools import pairwise

HOUR_S = 3600
# Two round intervals of 10 s each.
LATE_S = 20
OPERATOR = 0
FREEDOM = ["RESERVE", "LEND", "LEND_AND_BORROW"]


@dataclass
class ModelOffer:
    """An offer of GPUs until a given time; `floor` is its lowest price."""

    gpus: int
    floor: int
    until: int | None
    stands: bool = True


@dataclass
class Party:
    """A tenant: its quota and offers, its credit, and its budget for a calendar month."""

    quota: int
    bounds: tuple[str, int | None] = ("LEND_AND_BORROW", None)
    own: tuple[str, int | None] = ("LEND_AND_BORROW", None)
    by_offer: bool = False
    offers: list[ModelOffer] = field(default_factory=list)
    max_price: int | None = None
    balance: int = 0
    limit: int | None = None
    reserved: int = 0
    budget: int | None = None
    is_block: bool = False
    spent: dict[str, int] = field(default_factory=dict)  # charges by day
    # the borrowed part of `reserved`, by day
    unsettled: dict[str, int] = field(default_factory=dict)

    def most_lent(self, at: int, price: int) -> int:
        """Return how many GPUs of its quota may be lent if all of it is idle."""
        if "RESERVE" in (self.own[0], self.bounds[0]):
            return 0
        limits = [limit for limit in (self.own[1], self.bounds[1]) if limit is not None]
        if self.by_offer:
            limits.append(sum(offer.gpus for offer in self.offers if lends(offer, at, price)))
        return min([self.quota, *limits])

    @property
    def mode(self) -> str:
        return min(self.own[0], self.bounds[0], key=FREEDOM.index)

    @property
    def short(self) -> int:
        """Return the amount by which debts and reservations exceed the credit."""
        if self.limit is None:
            return 0
        return max(0, self.reserved - self.balance - self.limit)

    def may_give(self, micro: int) -> bool:
        """Return whether the credit is sufficient for a transfer."""
        return self.limit is None or self.balance + self.limit - self.reserved >= micro

    def may_promise(self, month: str) -> int | None:
        """Return how much rounds may still reserve within the credit and the month's budget."""
        rooms = []
        if self.limit is not None:
            rooms.append(self.balance + self.limit - self.reserved)
        if self.budget is not None:
            earlier = sum(micro for day, micro in self.unsettled.items() if day[:7] < month)
            used = self.spent_in(month) + self.reserved - earlier
            rooms.append(self.budget * (100 if self.is_block else 120) // 100 - used)
        return min(rooms, default=None)

    def spent_in(self, month: str) -> int:
        """Return the charges on the days of a month, after corrections."""
        return sum(micro for day, micro in self.spent.items() if day.startswith(month))


def lends(offer: ModelOffer, at: int, price: int) -> bool:
    """Return whether an offer is valid and its floor is at most the posted price."""
    return offer.stands and (offer.until is None or at < offer.until) and offer.floor <= price


@dataclass
class Term:
    """A lease's grant or one of its renewals; `ends` is None while it runs."""

    tenant: int
    own: int
    borrowed: int
    price: int
    starts: int
    expires: int
    ends: int | None = None
    charge: int | None = None  # set once the term is metered
    hour: int = 0
    shares: dict[int, int] = field(default_factory=dict)
    settled: bool = False
    round_at: int | None = None  # the first round at or after the term's expiry
    borne: int = 0  # the operator's payment to lenders for time without rounds

    @property
    def worst(self) -> int:
        """Return the amount that the round reserves for the term, rounded up."""
        return -(-self.borrowed * self.price * (self.expires - self.starts) // HOUR_S)

    @property
    def charged_until(self) -> int:
        """Return when the charge stops: at the term's end, or at its expiry if rounds were late."""
        assert self.ends is not None
        is_late = self.round_at is not None and self.round_at > self.expires + LATE_S
        return min(self.ends, self.expires) if is_late else self.ends

    @property
    def full(self) -> int:
        """Return what lenders earn: the charge and the operator's payment."""
        return (self.charge or 0) + self.borne

    def exact(self, until: int) -> Fraction:
        """Return the cost until a time, before rounding."""
        return Fraction(self.borrowed * self.price * (until - self.starts), HOUR_S)


class Model:
    """All tenants of a pool of one GPU type, by id."""

    def __init__(self, capacity: int, quotas: dict[int, int], at: int) -> None:
        self.capacity, self.settled_until = capacity, at // HOUR_S * HOUR_S
        self.parties = {tenant: Party(quota) for tenant, quota in quotas.items()}
        self.operator = 0
        self.terms: dict[int, dict[int, Term]] = {}  # terms by lease and number
        self.lendable: list[tuple[int, dict[int, int]]] = []  # GPUs by tenant after each round

    def note_round(self, at: int) -> None:
        """Record the first round after the expiry of terms."""
        for term in self.every():
            if term.ends is None and term.round_at is None and term.expires <= at:
                term.round_at = at

    def meter(self) -> None:
        """Charge ended terms: replace the reserved highest cost by the cost."""
        for terms in self.terms.values():
            exact = Fraction(0)
            for number in sorted(terms):
                term = terms[number]
                if term.ends is None:
                    break
                full = rounded(exact + term.exact(term.ends)) - rounded(exact)
                before, exact = rounded(exact), exact + term.exact(term.charged_until)
                if term.charge is not None:
                    continue
                term.charge = rounded(exact) - before
                term.borne = full - term.charge
                term.hour = max(term.ends // HOUR_S * HOUR_S, self.settled_until)
                term.shares = self.split(term)
                party, day = self.parties[term.tenant], day_name(term.hour // (24 * HOUR_S))
                party.reserved += term.charge - term.worst
                party.unsettled[day] = party.unsettled.get(day, 0) + term.charge

    def settle(self, until: int) -> None:
        """Transfer the costs of all hours that end by an instant."""
        for term in self.every():
            if term.charge is None or term.settled or term.hour >= until:
                continue
            party, day = self.parties[term.tenant], day_name(term.hour // (24 * HOUR_S))
            party.balance -= term.charge
            party.reserved -= term.charge
            party.unsettled[day] -= term.charge
            party.spent[day] = party.spent.get(day, 0) + term.charge
            for lender, micro in term.shares.items():
                if lender == OPERATOR:
                    self.operator += micro
                else:
                    self.parties[lender].balance += micro
            self.operator -= term.borne
            term.settled = True
        self.settled_until = max(until, self.settled_until)

    def every(self) -> list[Term]:
        return [term for terms in self.terms.values() for term in terms.values()]

    def idle(self, at: int) -> dict[int, int]:
        """Return lenders' idle GPUs on offer at a time; the operator's are in no quota."""
        rows = [row for since, row in self.lendable if since <= at]
        most = rows[-1] if rows else dict.fromkeys(self.parties, 0)
        idle = {OPERATOR: self.capacity - sum(one.quota for one in self.parties.values())}
        for tenant, party in self.parties.items():
            used = sum(
                term.own
                for term in self.every()
                if term.tenant == tenant
                and term.starts <= at
                and (term.ends is None or at < term.ends)
            )
            idle[tenant] = min(max(0, party.quota - used), most[tenant])
        return idle

    def parts(self, term: Term) -> dict[int, Fraction]:
        """Return each lender's part of a term: its idle GPUs divided by all idle GPUs, over time.

        The sum is 1.
        """
        assert term.ends is not None
        changes = {since for since, _ in self.lendable}
        changes |= {at for one in self.every() for at in (one.starts, one.ends) if at is not None}
        inner = {at for at in changes if term.starts < at < term.ends}
        parts: dict[int, Fraction] = {}
        for begin, end in pairwise(sorted({term.starts, term.ends} | inner)):
            idle = self.idle(begin)
            if not sum(idle.values()):
                idle = {OPERATOR: 1}
            for lender, gpus in idle.items():
                part = Fraction(gpus * (end - begin), sum(idle.values()))
                parts[lender] = parts.get(lender, Fraction(0)) + part
        return {lender: part / (term.ends - term.starts) for lender, part in parts.items() if part}

    def split(self, term: Term) -> dict[int, int]:
        """Split a charge by largest remainder. On ties the lowest id is first, the operator last.

        Lenders also earn for time for which the borrower is not charged.
        """
        if not term.full:
            return {}
        due = {lender: part * term.full for lender, part in self.parts(term).items()}
        shares = {lender: int(amount) for lender, amount in due.items()}
        order = sorted(due, key=lambda one: (shares[one] - due[one], one == OPERATOR, one))
        for lender in order[: term.full - sum(shares.values())]:
            shares[lender] += 1
        return {lender: micro for lender, micro in shares.items() if micro}


def rounded(exact: Fraction) -> int:
    """Return the nearest whole micro-credit; halves are rounded up."""
    return int((2 * exact + 1) // 2)


def day_name(day: int) -> str:
    """Return the date of a day since 1970 as YYYY-MM-DD."""

    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()
