"""Test that the sweep over lease events gives equal terms for any order and batches of reports."""

from __future__ import annotations

import json
from math import gcd
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.money.revenue.records import ClosedTerm, Event, price_to_micro
from evenshare_core.money.revenue.terms import Sweep

FIGURES = {"own": 1, "borrowed": 1, "price": "1.000000", "gpu_type": "v100"}


def event(number: int, kind: str, at_us: int, lease: int = 0, **data: Any) -> Event:
    term = data.pop("term", 1 if lease else 0)
    if kind in ("granted", "started", "renewed"):
        data = FIGURES | data
    return Event(number, kind, at_us, lease, lease * 10, 1, term, data)


def quotas(number: int, at_us: int, rows: dict[str, list[int | None]]) -> Event:
    return event(number, "entitled", at_us, gpu_type="v100", capacity=20, quotas=rows)


def run(events: list[Event], *, cut: int = 10**9) -> tuple[list[ClosedTerm], Sweep]:
    """Feed the events; the sweep is stored as JSON and restored after every `cut` events."""
    sweep, closed = Sweep(), []
    for index, one in enumerate(events, start=1):
        closed += sweep.feed(one)
        if index % cut == 0:
            sweep = Sweep.from_state(json.loads(json.dumps(sweep.to_state())))
    return closed, sweep


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Return leases of three tenants, whose reports arrive in any order between rounds."""
    drafts: list[tuple[str, int, int, dict[str, Any]]] = []
    running: dict[int, int] = {}
    round_us = 0
    for _ in range(draw(st.integers(1, 5))):
        reports: list[tuple[str, int, int, dict[str, Any]]] = []
        for lease in draw(st.lists(st.sampled_from(sorted(running)), unique=True) if running
                          else st.just([])):  # fmt: skip
            reports.append(("ended", round_us + draw(st.integers(0, 99)), lease, {}))
            del running[lease]
        drafts += draw(st.permutations(reports))
        round_us += 100
        for lease in draw(st.lists(st.sampled_from(sorted(running)), unique=True) if running
                          else st.just([])):  # fmt: skip
            running[lease] += 1
            drafts.append(("renewed", round_us, lease, {"term": running[lease]}))
        for _ in range(draw(st.integers(0, 3))):
            lease = len({d[2] for d in drafts}) + 1
            running[lease] = 1
            drafts.append(("granted", round_us, lease, {"borrowed": draw(st.integers(0, 3))}))
            drafts.append(("started", round_us + draw(st.integers(0, 50)), lease, {}))
        drafts.append(("priced", round_us, 0, {"prices": []}))
    return [
        quotas(1, 0, {"1": [4, None], "2": [6, 2]}),
        *(event(number, *draft[:3], **draft[3]) for number, draft in enumerate(drafts, start=2)),
    ]


class TestSweep:
    @given(histories(), st.integers(1, 7))
    def test_terms_are_independent_of_batch_size(self, events: list[Event], cut: int) -> None:
        whole, sweep = run(events)
        cut_up, other = run(events, cut=cut)
        assert cut_up == whole
        assert other.to_state() == sweep.to_state()

    @given(histories())
    def test_closes_every_term_once_with_nonnegative_time(self, events: list[Event]) -> None:
        closed, sweep = run(events)
        closed += sweep.rest(10**9)
        keys = [(term.lease, term.term) for term in closed]
        assert len(keys) == len(set(keys))
        opened = {(e.lease, e.term) for e in events if e.kind in ("granted", "renewed")}
        assert set(keys) | set(sweep.running) == opened
        assert all(term.held_us >= 0 for term in closed)
        assert sweep.anomalies == []

    @given(histories())
    def test_limits_weight_of_lender_to_its_quota(self, events: list[Event]) -> None:
        sweep = Sweep(by_integrals=True)
        for term in [term for one in events for term in sweep.feed(one)]:
            limits = {1: 4, 2: 2, 0: 10}
            for lender, weight in term.weights.items():
                assert 0 < weight <= limits[lender] * max(term.held_us, 1)

    @given(histories())
    def test_reduces_weights_to_lowest_terms(self, events: list[Event]) -> None:
        for term in run(events)[0]:
            assert gcd(*term.weights.values()) == bool(term.weights)

    def test_drops_state_of_closed_terms(self) -> None:
        events = [
            quotas(1, 0, {"1": [4, None]}),
            event(2, "granted", 0, lease=1),
            event(3, "started", 0, lease=1),
            event(4, "priced", 0),
            event(5, "ended", 50, lease=1),
            event(6, "priced", 100),
        ]
        _, sweep = run(events)
        state = sweep.to_state()
        assert [state[key] for key in ("open", "marks", "pending", "last_us")] == [{}, [], [], {}]

    def test_splits_late_reported_term_by_idle_quota_at_its_time(self) -> None:
        events = [
            quotas(1, 0, {"2": [3, None]}),
            event(2, "granted", 0, lease=1, own=0),
            event(3, "granted", 100, lease=2, own=0),
            event(4, "started", 100, lease=2),
            event(5, "started", 20, lease=1),
            event(6, "ended", 60, lease=1),
        ]
        (term,), _ = run(events)
        assert (term.starts_us, term.ends_us) == (20, 60)
        assert dict(term.weights) == {2: 3, 0: 17}

    @pytest.mark.parametrize(
        ("events", "what"),
        [
            ([event(1, "ended", 5, lease=1), event(2, "priced", 9)], "ended without a grant"),
            (
                [
                    event(1, "granted", 0, lease=1),
                    event(2, "started", 1, lease=1),
                    event(3, "started", 2, lease=1),
                    event(4, "priced", 9),
                ],
                "started twice",
            ),
            (
                [
                    event(1, "granted", 0, lease=1),
                    event(2, "ended", 1, lease=1, started=True),
                    event(3, "priced", 9),
                ],
                "ended as started, but no start was seen",
            ),
        ],
    )
    def test_records_contradictory_events_as_anomalies(
        self, events: list[Event], what: str
    ) -> None:
        _, sweep = run(events)
        assert [text for _, text in sweep.anomalies] == [what]


S = 1_000_000
# The state of version 1 of the sweep, stored after `BEFORE`.
STATE_1: dict[str, Any] = {
    "version": 1,
    "watermark_us": 30 * S,
    "types": {
        "v100": {
            "now_us": 20 * S,
            "capacity": 8,
            "quotas": {"1": [2, None], "2": [4, None], "3": [2, 2]},
            "own": {"1": 2},
            "sums": {
                "1": [20 * S, 20 * S, 0],
                "2": [20 * S, 20 * S, 4],
                "3": [40 * S, 20 * S, 2],
                "0": [40 * S, 20 * S, 0],
            },
        }
    },
    "open": {
        "1": [10, 1, "v100", 1, 0, 1, 360, 0, 0],
        "2": [20, 1, "v100", 1, 1, 2, 1000000, None, 0],
        "3": [30, 1, "v100", 1, 2, 0, 1000000, 20 * S, 0],
    },
    "marks": [["v100", 0, 1, {}]],
    "pending": [[40 * S, 10, "started", 40 * S, 2, 20, 1, 1, FIGURES]],
    "last_us": {"1": 0, "2": 40 * S, "3": 20 * S},
}


def quotas_of_8(number: int, at_us: int, rows: dict[str, list[int | None]]) -> Event:
    return event(number, "entitled", at_us, gpu_type="v100", capacity=8, quotas=rows)


BEFORE = [
    quotas_of_8(1, 0, {"1": [1, None], "2": [1, None], "3": [4, 2]}),
    event(2, "granted", 0, lease=1, own=0, price="0.000360"),
    event(3, "started", 0, lease=1),
    event(4, "granted", 0, lease=2, own=1, borrowed=2),
    event(5, "priced", 10 * S, prices=[]),
    quotas_of_8(6, 20 * S, {"1": [2, None], "2": [4, None], "3": [2, 2]}),
    event(7, "granted", 20 * S, lease=3, own=2, borrowed=0),
    event(8, "started", 20 * S, lease=3),
    event(9, "priced", 30 * S, prices=[]),
    event(10, "started", 40 * S, lease=2),
]
AFTER = [
    event(11, "renewed", 60 * S, lease=1, own=0, term=2, price="0.000360"),
    event(12, "priced", 60 * S, prices=[]),
    event(13, "ended", 62 * S, lease=3),
    event(14, "ended", 65 * S, lease=1, term=2),
    event(15, "ended", 70 * S, lease=2),
    event(16, "priced", 80 * S, prices=[]),
]


class TestStateOfPreviousRule:
    def sweeps(self) -> list[Sweep]:
        stored = Sweep.from_state(json.loads(json.dumps(STATE_1)))
        anew = Sweep(by_integrals=True)
        assert [term for one in BEFORE for term in anew.feed(one)] == []
        anew.change_rule()
        return [stored, anew, Sweep.from_state(json.loads(json.dumps(anew.to_state())))]

    def test_continues_like_sweep_with_changed_rule(self) -> None:
        stored, anew, again = self.sweeps()
        assert stored.to_state() == anew.to_state() == again.to_state()
        closed = [[term for one in AFTER for term in s.feed(one)] for s in (stored, anew, again)]
        assert closed[0] == closed[1] == closed[2]
        assert stored.to_state() == anew.to_state() == again.to_state()

    def test_old_terms_use_previous_rule_and_new_terms_current(self) -> None:
        sweep = self.sweeps()[0]
        terms = {(term.lease, term.term): term for one in AFTER for term in sweep.feed(one)}
        first = terms[1, 1]
        # Integrals in GPU-seconds: 1 x 20; 1 x 20 + 4 x 40; 2 x 60. The operator has 2 x 20.
        assert first.weights == {1: 20 * S, 2: 180 * S, 3: 120 * S, 0: 40 * S}
        assert (first.carried, first.rest, first.amount_micro) == (None, 0, 6)
        # The lease's next term and a granted term that has not started have no remainder yet.
        assert (terms[1, 2].carried, terms[1, 2].amount_micro) == (0, 1)
        assert terms[1, 2].rest == 5 * S * 360 - 3600 * S
        # Until 62 s tenant 2 has 4 of 6 idle GPUs and tenant 3 has 2; then tenant 1 has 1 of 7 as
        # well. Parts of 5 seconds: 3/7, 2 x 4/6 + 3 x 4/7 and 2 x 2/6 + 3 x 2/7.
        assert terms[1, 2].weights == {1: 9, 2: 64, 3: 32}
        assert terms[2, 1].carried == 0
        # Parts of 30 seconds: 8/7, 22 x 4/6 + 8 x 4/7 and 22 x 2/6 + 8 x 2/7.
        assert terms[2, 1].weights == {1: 12, 2: 202, 3: 101}


class TestPrice:
    def test_accepts_decimal_text_and_integer_credits(self) -> None:
        assert (price_to_micro("1.250000"), price_to_micro(2)) == (1_250_000, 2_000_000)

    @pytest.mark.parametrize("price", [1.25, True, None])
    def test_rejects_float(self, price: Any) -> None:
        with pytest.raises(TypeError):
            price_to_micro(price)
