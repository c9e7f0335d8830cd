"""Test which promised starts are late, how late they are, and what excuses them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Change, ChangeKind, Snapshot
from evenshare_core.policies import registry
from evenshare_core.policies.promised_start import (
    LateStart,
    PromiseCounts,
    PromisedStart,
    count_promises,
    late_credit_micro,
    late_starts,
)
from evenshare_core.units import SECOND_US
from tests.unit.core.test_promised_starts import (
    BOB,
    GANG,
    MINUTE_US,
    due_round,
    gang_rounds,
    with_promises,
)

RATE_MICRO = 2_000_000


def promises(memory: dict[str, Any]) -> tuple[PromisedStart, ...]:
    policy = registry.policy("evenshare")
    return registry.promised_starts(policy.name, policy.version, memory)


class Due:
    """The round in which a gang of 8 GPUs is due and starts; tests change its instants."""

    def __init__(self) -> None:
        self.snapshot, self.decision = due_round(gang_rounds())
        (row,) = promises(self.snapshot.memory)
        self.due_us = row.due_us

    def at(self, late_s: int, due_s: int = 0, **changes: Any) -> tuple[Snapshot, Decision]:
        """Return the round `late_s` after its time, with a promise due `due_s` after that time."""
        (row,) = self.snapshot.memory["promises"]
        memory = {"promises": [[*row[:3], self.due_us + due_s * SECOND_US, *row[4:]]]}
        at_us = self.due_us + late_s * SECOND_US
        snapshot = replace(
            self.snapshot, at_us=at_us, memory=self.snapshot.memory | memory, **changes
        )
        return snapshot, replace(self.decision, at_us=at_us)

    def gone(self, at_s: int) -> tuple[Snapshot, Decision]:
        """Return the round 5 minutes late, whose gang stopped waiting `at_s` after its time."""
        change = Change(self.due_us + at_s * SECOND_US, ChangeKind.INACTIVE, BOB, GANG)
        jobs = tuple(job for job in self.snapshot.jobs if job.id != GANG)
        snapshot, decision = self.at(300, jobs=jobs, changes=(change,))
        return snapshot, replace(decision, grants=())


@pytest.fixture(scope="module")
def due() -> Due:
    return Due()


def late(snapshot: Snapshot, decision: Decision) -> list[LateStart]:
    return late_starts(promises(snapshot.memory), snapshot, decision)


def late_s(snapshot: Snapshot, decision: Decision) -> int:
    (row,) = late(snapshot, decision)
    assert (row.job, row.tenant, row.gpus, row.gpu_type) == (GANG, BOB, 8, "v100")
    return (row.until_us - row.latest_us) // SECOND_US


def counts(snapshot: Snapshot, decision: Decision) -> PromiseCounts:
    before, after = promises(snapshot.memory), promises(decision.memory)
    return count_promises(before, after, snapshot, decision)


class TestStart:
    @pytest.mark.parametrize(("at_s", "due_s"), [(0, 0), (-60, 0), (60, 1), (60, 60)])
    def test_in_first_round_from_its_time_on_is_kept(self, due: Due, at_s: int, due_s: int) -> None:
        row = due.at(at_s, due_s)
        assert late(*row) == []
        assert counts(*row) == PromiseCounts(made=0, kept=1, late=0, excused=0)

    @pytest.mark.parametrize(
        ("at_s", "due_s", "expected_s"), [(60, 0, 60), (120, 1, 60), (180, 59, 120), (90, 0, 90)]
    )
    def test_later_counts_from_promised_round(
        self, due: Due, at_s: int, due_s: int, expected_s: int
    ) -> None:
        row = due.at(at_s, due_s)
        assert late_s(*row) == expected_s
        assert late(*row)[0].has_started
        assert counts(*row) == PromiseCounts(made=0, kept=0, late=1, excused=0)

    def test_after_node_was_lost_is_excused(self, due: Due) -> None:
        row = due.at(300, nodes=(Node(1, "v100", 0), Node(2, "v100", 8)))
        assert late(*row) == []
        assert counts(*row) == PromiseCounts(made=0, kept=0, late=0, excused=1)

    def test_without_promise_is_not_late(self, due: Due) -> None:
        snapshot, decision = due.at(300)
        assert late(replace(snapshot, memory={}), decision) == []


class TestWait:
    def test_that_continues_is_not_late_yet(self, due: Due) -> None:
        snapshot, decision = due.at(300)
        waiting = with_promises(replace(decision, grants=()), *snapshot.memory["promises"])
        assert late(snapshot, waiting) == []
        assert counts(snapshot, waiting) == PromiseCounts(made=0, kept=0, late=0, excused=0)

    def test_without_promise_any_more_is_excused(self, due: Due) -> None:
        snapshot, decision = due.at(300)
        row = snapshot, with_promises(replace(decision, grants=()))
        assert late(*row) == []
        assert counts(*row) == PromiseCounts(made=0, kept=0, late=0, excused=1)


class TestStoppedJob:
    def test_was_late_until_then(self, due: Due) -> None:
        row = due.gone(45)
        assert late_s(*row) == 45
        assert not late(*row)[0].has_started
        assert counts(*row) == PromiseCounts(made=0, kept=0, late=1, excused=0)

    @pytest.mark.parametrize("at_s", [0, -30])
    def test_in_time_is_not_late(self, due: Due, at_s: int) -> None:
        row = due.gone(at_s)
        assert late(*row) == []
        assert counts(*row) == PromiseCounts(made=0, kept=0, late=0, excused=0)


class TestCredit:
    @pytest.mark.parametrize(
        ("gpus", "rate_micro", "late_us", "expected"),
        [
            (8, RATE_MICRO, 90 * SECOND_US, 400_000),
            (1, 1, 30 * MINUTE_US, 1),  # half a micro-credit is rounded up
            (1, 1, 30 * MINUTE_US - 1, 0),
            (8, 0, MINUTE_US, 0),
            (8, RATE_MICRO, 0, 0),
        ],
    )
    def test_is_rounded_to_a_micro_credit(
        self, gpus: int, rate_micro: int, late_us: int, expected: int
    ) -> None:
        assert late_credit_micro(gpus, rate_micro, late_us) == expected

    def test_of_late_start_is_for_its_gpus(self, due: Due) -> None:
        assert late(*due.at(90))[0].credit_micro(RATE_MICRO) == 400_000

    def test_needs_no_negative_time(self) -> None:
        with pytest.raises(ValueError, match="at least 0"):
            late_credit_micro(8, RATE_MICRO, -1)
