"""Owners' parts of a charge at every moment, by equation (2) of Astraea-online.

`incomes_by_slot` computes the equation of the paper's text in fractions, slot by slot (a slot is
one microsecond). It shares no code with the product except the input values. A slot costs about a
credit, so that rounding cannot hide a wrong part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.money.fixed_point import to_text
from evenshare_core.money.revenue.idle import (
    OPERATOR,
    IdleSums,
    LendableQuota,
    split_charge,
    weights_between,
)
from evenshare_core.money.revenue.records import ClosedTerm, Event
from evenshare_core.money.revenue.terms import Sweep
from evenshare_core.units import CREDIT_MICRO, HOUR_US, SECOND_US

A, B, C = 1, 2, 3
LAST_US = 60
Quotas = dict[int, LendableQuota]


@dataclass
class Term:
    """A term of a lease, with the values that the equation uses."""

    lease: int
    number: int
    tenant: int
    own: int
    borrowed: int
    price_micro: int
    starts_us: int
    ends_us: int = LAST_US

    def slot_micro(self) -> Fraction:
        return Fraction(self.borrowed * self.price_micro, HOUR_US)


@dataclass
class History:
    """The history of a pool, both as input of the equation and as lease events."""

    entitled: list[tuple[int, int, Quotas]] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    number: int = 0

    def entitle(self, at_us: int, capacity: int, quotas: Quotas) -> None:
        self.entitled.append((at_us, capacity, quotas))
        self._tell("entitled", at_us, None, {"capacity": capacity, "quotas": quotas})

    def begin(self, at_us: int, term: Term) -> None:
        self.terms.append(term)
        self._tell("renewed" if term.number > 1 else "granted", at_us, term, {})
        if term.number == 1:
            self._tell("started", at_us, term, {})

    def end(self, at_us: int, term: Term) -> None:
        term.ends_us = at_us
        self._tell("ended", at_us, term, {"started": True})

    def _tell(self, kind: str, at_us: int, term: Term | None, data: dict[str, Any]) -> None:
        data = data | {"gpu_type": "v100"}
        who = (0, 0, 0, 0)
        if term is not None:
            who = (term.lease, term.lease, term.tenant, term.number)
            price = to_text(term.price_micro)
            data |= {"own": term.own, "borrowed": term.borrowed, "price": price}
        self.number += 1
        self.events.append(Event(self.number, kind, at_us, *who, data))

    def closed(self) -> list[ClosedTerm]:
        sweep = Sweep()
        terms = [term for event in self.events for term in sweep.feed(event)]
        terms += sweep.rest(LAST_US)
        assert not sweep.anomalies
        return terms


def idle_at(history: History, slot: int) -> dict[int, int]:
    """Return the lent GPUs in [slot, slot + 1) by owner: q_u - own use_u, and unallocated GPUs."""
    capacity, quotas = [row[1:] for row in history.entitled if row[0] <= slot][-1]
    used: dict[int, int] = {}
    for term in history.terms:
        if term.starts_us <= slot < term.ends_us:
            used[term.tenant] = used.get(term.tenant, 0) + term.own
    idle = {OPERATOR: max(capacity - sum(gpus for gpus, _ in quotas.values()), 0)}
    for tenant, (gpus, lendable) in quotas.items():
        left = max(gpus - used.get(tenant, 0), 0)
        idle[tenant] = left if lendable is None else min(left, lendable)
    return idle


def incomes_by_slot(history: History, term: Term) -> dict[int, Fraction]:
    """Return each owner's sum of (2), rho(t) = idle_u(t) / a(t) x c(t), over a term's slots."""
    earned: dict[int, Fraction] = {}
    for slot in range(term.starts_us, term.ends_us):
        idle = idle_at(history, slot)
        total = sum(idle.values())
        parts = idle if total else {OPERATOR: 1}
        for owner, gpus in parts.items():
            paid = Fraction(gpus, total or 1) * term.slot_micro()
            earned[owner] = earned.get(owner, Fraction(0)) + paid
    return {owner: amount for owner, amount in earned.items() if amount}


def rounded(exact: dict[int, Fraction], amount: int) -> dict[int, int]:
    """Split the amount by largest remainder.

    Ties go to the lowest tenant id, and last to the operator.
    """
    total = sum(exact.values())
    owners = sorted(exact, key=lambda owner: (owner == OPERATOR, owner))
    due = {owner: amount * exact[owner] / total for owner in owners}
    parts = {owner: floor(due[owner]) for owner in owners}
    by_rest = sorted(owners, key=lambda owner: parts[owner] - due[owner])
    for owner in by_rest[: amount - sum(parts.values())]:
        parts[owner] += 1
    return parts


QUOTAS = st.dictionaries(
    st.integers(A, C), st.tuples(st.integers(0, 6), st.none() | st.integers(0, 3)), max_size=3
)
GPUS = st.tuples(st.integers(0, 3), st.integers(0, 2)).filter(any)
PRICES = st.integers(0, 4 * HOUR_US * CREDIT_MICRO // 1000) | st.integers(0, 2 * HOUR_US)


@st.composite
def histories(draw: st.DrawFn) -> History:
    history, running = History(), dict[int, Term]()
    history.entitle(0, draw(st.integers(0, 12)), draw(QUOTAS))
    for at_us in sorted(draw(st.lists(st.integers(0, LAST_US - 1), max_size=14))):
        what = draw(st.sampled_from(["grant", "grant", "renew", "renew", "end", "entitle"]))
        if what == "entitle":
            history.entitle(at_us, draw(st.integers(0, 12)), draw(QUOTAS))
            continue
        own, borrowed = draw(GPUS)
        figures = (own, borrowed, draw(PRICES))
        if what == "grant" or not running:
            lease = len(history.terms) + 1
            term = Term(lease, 1, draw(st.integers(A, C)), *figures, at_us)
        else:
            before = running.pop(draw(st.sampled_from(sorted(running))))
            if what == "end":
                history.end(at_us, before)
                continue
            before.ends_us = at_us
            term = Term(before.lease, before.number + 1, before.tenant, *figures, at_us)
        history.begin(at_us, term)
        running[term.lease] = term
    for term in running.values():
        history.end(LAST_US, term)
    return history


def shares_of(term: ClosedTerm) -> dict[int, int]:
    return {share.lender: share.amount_micro for share in term.shares}


class TestTermIncome:
    @given(histories())
    def test_equals_sum_of_equation_over_slots(self, history: History) -> None:
        stated = {(term.lease, term.number): term for term in history.terms}
        closed = [term for term in history.closed() if term.borrowed and term.held_us]
        for term in closed:
            exact = incomes_by_slot(history, stated[term.lease, term.term])
            weights = sum(term.weights.values())
            time_us = {owner: Fraction(term.held_us * weight, weights)
                       for owner, weight in term.weights.items()}  # fmt: skip
            slot_micro = stated[term.lease, term.term].slot_micro()
            assert {owner: us * slot_micro for owner, us in time_us.items()} == exact or (
                not term.price_micro
            )
            if term.price_micro:
                assert shares_of(term) == rounded(exact, term.amount_micro)

    @given(histories())
    def test_sums_to_charge_and_never_exceeds_share(self, history: History) -> None:
        stated = {(term.lease, term.number): term for term in history.terms}
        for term in history.closed():
            shares = shares_of(term)
            assert sum(shares.values()) == term.amount_micro
            if not term.borrowed or not term.held_us:
                continue
            begins, ends = term.starts_us or 0, term.ends_us
            idle = [idle_at(history, slot) for slot in range(begins, ends)]
            for owner, amount in shares.items():
                most = max(Fraction(row.get(owner, 0), sum(row.values())) if any(row.values())
                           else Fraction(owner == OPERATOR) for row in idle)  # fmt: skip
                assert amount < most * term.amount_micro + 1
            if not any(any(row.values()) for row in idle):
                assert shares == {OPERATOR: term.amount_micro}
            assert stated[term.lease, term.term].ends_us == ends

    @given(histories())
    def test_lease_pays_exact_cost_rounded_once(self, history: History) -> None:
        costs: dict[int, Fraction] = {}
        for term in history.terms:
            length = term.ends_us - term.starts_us
            costs[term.lease] = costs.get(term.lease, Fraction(0)) + length * term.slot_micro()
        charged: dict[int, int] = {}
        for closed in history.closed():
            assert closed.amount_micro >= 0
            charged[closed.lease] = charged.get(closed.lease, 0) + closed.amount_micro
        half = Fraction(1, 2)
        assert charged == {lease: floor(cost + half) for lease, cost in costs.items()}


class TestGoldenCase:
    """A GPU is borrowed for 4 credits. A and B lend 1 and 0 GPUs for half a term, then 2 each."""

    @staticmethod
    def halves() -> IdleSums:
        sums = IdleSums()
        sums.entitle(0, 1, {A: (1, None), B: (0, None)})
        return sums

    def test_pays_lenders_3_and_1(self) -> None:
        sums = self.halves()
        before = sums.mark(0)
        sums.entitle(HOUR_US, 4, {A: (2, None), B: (2, None)})
        weights = weights_between(before, sums.mark(2 * HOUR_US))
        shares = split_charge(4 * CREDIT_MICRO, 2 * HOUR_US, weights)
        assert [(row.lender, row.amount_micro) for row in shares] == [
            (A, 3 * CREDIT_MICRO),
            (B, 1 * CREDIT_MICRO),
        ]

    def test_integral_method_paid_12_fifths_and_8_fifths(self) -> None:
        sums = self.halves()
        before = sums.integrals(0)
        sums.entitle(HOUR_US, 4, {A: (2, None), B: (2, None)})
        weights = weights_between(before, sums.integrals(2 * HOUR_US))
        shares = split_charge(4 * CREDIT_MICRO, 2 * HOUR_US, weights)
        assert [row.amount_micro for row in shares] == [2_400_000, 1_600_000]

    def test_lease_events_give_same_shares(self) -> None:
        history = History()
        history.entitle(0, 1, {A: (1, None), B: (0, None)})
        term = Term(1, 1, C, 0, 1, 4 * CREDIT_MICRO * HOUR_US // LAST_US, 0)
        history.begin(0, term)
        history.entitle(LAST_US // 2, 4, {A: (2, None), B: (2, None)})
        history.end(LAST_US, term)
        (closed,) = history.closed()
        assert dict(closed.weights) == {A: 3, B: 1}
        assert shares_of(closed) == {A: 3 * CREDIT_MICRO, B: CREDIT_MICRO}

    @pytest.mark.parametrize("quotas", [{}, {A: (2, 0)}])
    def test_pays_operator_without_idle_quota(self, quotas: Quotas) -> None:
        history = History()
        history.entitle(0, 0, quotas)
        term = Term(1, 1, C, 0, 1, CREDIT_MICRO * HOUR_US, 0)
        history.begin(0, term)
        history.end(LAST_US, term)
        (closed,) = history.closed()
        assert shares_of(closed) == {OPERATOR: LAST_US * CREDIT_MICRO}


class TestShortTerms:
    def test_cost_as_much_as_one_long_term(self) -> None:
        """At 0.00036 credits an hour, one second costs 0.1 micro-credits; 20,000 cost 2,000."""
        history, sweep, charged, count = History(), Sweep(), 0, 20_000
        history.entitle(0, 1, {A: (1, None)})
        for number in range(1, count + 1):
            term = Term(1, number, B, 0, 1, 360, (number - 1) * SECOND_US)
            history.begin(term.starts_us, term)
            charged += fed(sweep, history)
        history.end(count * SECOND_US, term)
        charged += fed(sweep, history)
        charged += sum(closed.amount_micro for closed in sweep.rest(count * SECOND_US))
        assert charged == 2000


def fed(sweep: Sweep, history: History) -> int:
    """Feed the events since the last call; return the charges of closed terms."""
    closed = [term for event in history.events for term in sweep.feed(event)]
    history.events.clear()
    return sum(term.amount_micro for term in closed)
