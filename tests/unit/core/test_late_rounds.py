"""Test that late rounds extend no charge beyond a term's expiry, and that lenders are paid in full.

Terms last 900 s. A round is expected every 60 s, and is late after two intervals.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.money.fixed_point import term_charge, worst_case_micro
from evenshare_core.money.revenue.records import ClosedTerm, Event
from evenshare_core.money.revenue.terms import Sweep
from evenshare_core.units import SECOND_US

LEASE_S, ROUND_S = 900, 60
LATE_S = 2 * ROUND_S
PRICE = 7_560_000  # 1.89 credits for a GPU for a quarter of an hour
QUARTER, OUTAGE_S = 1_890_000, 16_200
FIGURES = {"own": 0, "borrowed": 1, "price": "7.560000", "gpu_type": "v100"}


@dataclass
class LeaseEvents:
    """The events of one lease, with times in seconds; tenant 2 lends."""

    events: list[Event]

    def add(self, kind: str, at_s: float, lease: int = 1, **data: Any) -> None:
        number, at_us = len(self.events) + 1, round(at_s * SECOND_US)
        if kind in ("granted", "renewed"):
            data = {
                **FIGURES,
                "expires_us": at_us + LEASE_S * SECOND_US,
                "late_us": LATE_S * SECOND_US,
            } | data
        term = data.pop("term", 1)
        tenant, term = (1, term) if lease else (0, 0)
        self.events.append(Event(number, kind, at_us, lease, lease, tenant, term, data))

    def round(self, at_s: float) -> None:
        self.add("priced", at_s, 0, prices=[])

    def closed(self) -> list[ClosedTerm]:
        sweep = Sweep()
        return [term for event in self.events for term in sweep.feed(event)]


def started_lease(**granted: Any) -> LeaseEvents:
    """Return the events of a lease that was granted and started at 0."""
    story = LeaseEvents([])
    story.add("entitled", 0, 0, gpu_type="v100", capacity=4, quotas={"1": [0, 0], "2": [4, None]})
    story.add("granted", 0, **granted)
    story.round(0)
    story.add("started", 0)
    return story


class TestTermDuringOutage:
    def test_is_not_charged_after_expiry(self) -> None:
        story = started_lease()
        story.add("stop_asked", OUTAGE_S)
        story.round(OUTAGE_S)
        story.add("ended", OUTAGE_S, started=True)
        (term,) = story.closed()
        assert term.amount_micro == QUARTER
        assert term.charged_until_us == LEASE_S * SECOND_US
        assert term.ends_us == OUTAGE_S * SECOND_US

    def test_operator_pays_lenders_for_time_after_expiry(self) -> None:
        story = started_lease()
        story.round(OUTAGE_S)
        story.add("ended", OUTAGE_S, started=True)
        (term,) = story.closed()
        whole = PRICE * OUTAGE_S // 3600
        assert term.borne_micro == whole - QUARTER
        assert [(one.lender, one.amount_micro) for one in term.shares] == [(2, whole)]

    @pytest.mark.parametrize("ends_s", [LEASE_S + 1, LEASE_S + LATE_S, OUTAGE_S])
    def test_charge_is_same_if_job_ends_during_outage(self, ends_s: int) -> None:
        story = started_lease()
        story.round(OUTAGE_S)
        story.add("ended", ends_s, started=True)
        (term,) = story.closed()
        assert (term.amount_micro, term.ends_us) == (QUARTER, ends_s * SECOND_US)

    def test_late_renewal_is_charged_from_its_own_instant(self) -> None:
        """No term covers the gap before the renewal, so the charge starts with the renewal."""
        story = started_lease()
        story.add("renewed", OUTAGE_S, term=2)
        story.round(OUTAGE_S)
        story.round(OUTAGE_S + LEASE_S)
        story.add("ended", OUTAGE_S + LEASE_S, started=True, term=2)
        first, second = story.closed()
        assert [first.amount_micro, second.amount_micro] == [QUARTER, QUARTER]
        assert second.starts_us == OUTAGE_S * SECOND_US

    def test_carries_remainder_of_charged_amount(self) -> None:
        story = started_lease(price="0.000361")
        story.add("renewed", OUTAGE_S, term=2)
        first, _ = (*story.closed(), None)
        assert first is not None
        charge, rest = term_charge(1, 361, LEASE_S * SECOND_US, 0)
        assert (first.amount_micro, first.rest) == (charge, rest)
        whole, _ = term_charge(1, 361, OUTAGE_S * SECOND_US, 0)
        assert first.amount_micro + first.borne_micro == whole

    def test_costs_nothing_if_started_after_expiry(self) -> None:
        story = LeaseEvents([])
        story.add("granted", 0)
        story.round(0)
        story.add("started", LEASE_S + 100)
        story.round(OUTAGE_S)
        story.add("ended", OUTAGE_S, started=True)
        (term,) = story.closed()
        assert (term.amount_micro, term.charged_until_us) == (0, term.starts_us)
        assert term.borne_micro > 0


class TestChargeForFullTime:
    def test_applies_if_next_round_is_on_time(self) -> None:
        """A round within two intervals after the expiry is on time."""
        story = started_lease()
        story.round(LEASE_S + LATE_S)
        story.add("ended", LEASE_S + LATE_S, started=True)
        (term,) = story.closed()
        assert term.charged_until_us == term.ends_us
        assert (term.amount_micro, term.borne_micro) == (PRICE * (LEASE_S + LATE_S) // 3600, 0)

    def test_applies_if_process_stops_slowly(self) -> None:
        """Rounds were on time. A job that ignores its notice pays until its process ends."""
        story = started_lease()
        story.add("stop_asked", LEASE_S)
        story.round(LEASE_S)
        story.round(OUTAGE_S)
        story.add("ended", OUTAGE_S, started=True)
        (term,) = story.closed()
        assert (term.charged_until_us, term.borne_micro) == (term.ends_us, 0)

    def test_applies_if_stop_was_requested_before_expiry(self) -> None:
        story = started_lease()
        story.add("stop_asked", LEASE_S - 30)
        story.round(LEASE_S - 30)
        story.round(OUTAGE_S)
        story.add("ended", LEASE_S + 270, started=True)
        (term,) = story.closed()
        assert (term.charged_until_us, term.borne_micro) == (term.ends_us, 0)

    def test_applies_if_rounds_continued_the_lease(self) -> None:
        """A round decided to continue the lease, so the job is charged."""
        story = started_lease()
        story.round(LEASE_S)
        story.round(OUTAGE_S)
        story.add("ended", OUTAGE_S, started=True)
        (term,) = story.closed()
        assert (term.charged_until_us, term.borne_micro) == (term.ends_us, 0)

    def test_applies_until_protection_ends(self) -> None:
        """A minimum runtime counts from the lease's start; no round may end the lease earlier."""
        story = LeaseEvents([])
        story.add("granted", 0, protected_us=1800 * SECOND_US)
        story.round(0)
        story.add("started", 30)
        story.round(1700)
        story.round(OUTAGE_S)
        story.add("ended", OUTAGE_S, started=True)
        (term,) = story.closed()
        assert term.charged_until_us == 1830 * SECOND_US

    def test_applies_to_events_without_expiry(self) -> None:
        story = started_lease()
        rule = ("expires_us", "late_us")
        old = [
            replace(event, data={k: v for k, v in event.data.items() if k not in rule})
            for event in story.events
        ]
        story.events[:] = old
        story.round(OUTAGE_S)
        story.add("ended", OUTAGE_S, started=True)
        (term,) = story.closed()
        assert (term.charged_until_us, term.borne_micro) == (term.ends_us, 0)
        assert term.amount_micro == PRICE * OUTAGE_S // 3600


@st.composite
def lives(draw: st.DrawFn) -> list[Event]:
    """Return random leases with rounds that are on time, late, or very late."""
    story = LeaseEvents([])
    story.add("entitled", 0, 0, gpu_type="v100", capacity=9, quotas={"2": [4, None], "3": [2, 1]})
    at_s, terms = 0.0, dict[int, int]()
    for lease in range(1, draw(st.integers(1, 3)) + 1):
        story.add("granted", 0, lease, protected_us=draw(st.sampled_from((0, 1200))) * SECOND_US)
        terms[lease] = 1
    story.round(0)
    for lease in terms:
        story.add("started", draw(st.integers(0, 100)), lease)
    for _ in range(draw(st.integers(1, 8))):
        until_s = at_s + draw(st.sampled_from((60, 300, 900, 1021, 5000)))
        for lease in draw(st.lists(st.sampled_from(sorted(terms)), unique=True) if terms
                          else st.just([])):  # fmt: skip
            what = draw(st.sampled_from(("ended", "renewed", "stop_asked")))
            if what == "ended":
                ends_s = draw(st.integers(int(at_s) + 101, int(until_s) + 101))
                story.add("ended", ends_s, lease, started=True, term=terms.pop(lease))
            elif what == "renewed":
                terms[lease] += 1
                story.add("renewed", until_s, lease, term=terms[lease])
            else:
                story.add("stop_asked", until_s, lease, term=terms[lease])
        at_s = until_s
        story.round(at_s)
    return story.events


class TestRandomEvents:
    @given(lives(), st.integers(1, 5))
    def test_charges_are_independent_of_batch_size(self, events: list[Event], cut: int) -> None:
        whole, parts = Sweep(), Sweep()
        expected, closed = [], []
        for index, event in enumerate(events, start=1):
            expected += whole.feed(event)
            closed += parts.feed(event)
            if index % cut == 0:
                parts = Sweep.from_state(json.loads(json.dumps(parts.to_state())))
        assert closed == expected
        assert parts.to_state() == whole.to_state()

    @given(lives())
    def test_lenders_receive_charge_plus_operators_part(self, events: list[Event]) -> None:
        """The lenders' shares cover the whole time.

        The operator pays what the borrower does not pay.
        """
        sweep, before = Sweep(), Sweep()
        for event in events:
            old = replace(event, data={k: v for k, v in event.data.items() if k != "expires_us"})
            for term, was in zip(sweep.feed(event), before.feed(old), strict=True):
                assert was.borne_micro == 0
                assert sum(one.amount_micro for one in term.shares) == (
                    term.amount_micro + term.borne_micro
                )
                # a different remainder changes the amount by at most 1
                assert term.amount_micro <= was.amount_micro + 1
                if term.charged_until_us < term.ends_us:
                    protected_us = 1200 * SECOND_US
                    most_us = max(LEASE_S * SECOND_US, protected_us)
                    assert term.amount_micro <= worst_case_micro(1, PRICE, most_us)
