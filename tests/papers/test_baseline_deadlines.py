"""Test baselines that order jobs by deadlines: rules and departures, on small pools by hand."""

from __future__ import annotations

from typing import Any

import pytest

from evenshare_core.domain.snapshot import Change, ChangeKind
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.shared.deadline_jobs import laxity_us, steps_left
from evenshare_core.units import SECOND_US
from tests.papers.deadline_pools import NOW_US, asked, deadline, order, started, steps
from tests.unit.core.snapshots import lease


class TestLaxity:
    @pytest.mark.parametrize(
        ("ends_s", "remaining_s", "expected_s"),
        [
            ((100,), 60, 40),
            ((100,), 100, 0),
            ((100,), 130, -30),
            ((100, 110, 120, 150), 105, 5),  # the first deadline that can be met
            ((100, 110, 120, 150), 151, -1),  # the last deadline, since none can be met
        ],
    )
    def test_is_deadline_minus_now_minus_work(
        self, ends_s: tuple[int, ...], remaining_s: int, expected_s: int
    ) -> None:
        found = laxity_us(steps(*ends_s), NOW_US, remaining_s * SECOND_US)
        assert found == expected_s * SECOND_US

    def test_ignores_past_deadlines(self) -> None:
        rows = (deadline(1, -5, 10), deadline(2, -5), deadline(3, 0))
        assert steps_left(rows, NOW_US) == {1: steps(-5, 10)[1:]}


class TestGenie:
    def test_orders_by_laxity_with_best_effort_last(self) -> None:
        """The slack is 400, 300 and 350 s. By deadline the order would be 3, 2, 1."""
        rows = ((4, 600, (1000,)), (4, 200, (500,)), (4, 100, (450,)), (4, 1, ()))
        assert order(asked("genie", *rows)) == [2, 3, 1, 4]

    def test_orders_best_effort_jobs_by_arrival(self) -> None:
        rows = ((1, 50, ()), (1, 1, ()), (1, 999, (1000,)))
        assert order(asked("genie", *rows)) == [3, 1, 2]

    def test_never_preempts(self) -> None:
        """The best-effort job's lease is renewed although another job's deadline is close."""
        one = asked("genie", (4, 500, ()), (4, 10, (11,)), leases=[lease(7, 1, (1, 4))])
        decision = decide_round(one)
        assert ([row.job for row in decision.renewals], started(decision)) == ([1], [])

    def test_skips_jobs_that_do_not_fit(self) -> None:
        rows = ((3, 10, (20,)), (2, 10, (40,)), (1, 10, ()))
        assert started(decide_round(asked("genie", *rows))) == [1, 3]

    def test_keeps_gang_on_one_node_at_full_size(self) -> None:
        """Two nodes have two free GPUs each.

        Half of the gang would be in time, but the gang waits.
        """
        fields: dict[str, Any] = {
            "nodes": {1: 4, 2: 4},
            "leases": [
                lease(7, 2, (1, 2), expires_us=2 * NOW_US),
                lease(8, 3, (2, 2), expires_us=2 * NOW_US),
            ],
        }
        rows = ((4, 10, (9000,)), (2, None, ()), (2, None, ()))
        assert started(decide_round(asked("genie", *rows, **fields))) == []
        spread = decide_round(asked("genie", *rows, **fields, options={"spread": True}))
        assert started(spread) == [1]

    def test_uses_configured_runtime_without_estimate(self) -> None:
        rows = ((4, 100, (9000,)), (4, None, (9000,)))
        assert order(asked("genie", *rows)) == [2, 1]
        assert order(asked("genie", *rows, options={"unknown_s": 99})) == [1, 2]

    @pytest.mark.parametrize(("ran_s", "expected"), [(0, [1, 2]), (99, [1, 2]), (101, [2, 1])])
    def test_counts_runtime_before_suspension(self, ran_s: int, expected: list[int]) -> None:
        """The first job's slack is 400 s plus its earlier runtime; the other's is 500 s."""
        changes = (
            Change(NOW_US - ran_s * SECOND_US, ChangeKind.HOLD, 1, 1, 4, ("v100",)),
            Change(NOW_US, ChangeKind.RELEASE, 1, 1),
        )
        rows = ((4, 1100, (1500,)), (4, 200, (700,)))
        assert order(asked("genie", *rows, changes=changes)) == expected

    def test_puts_late_jobs_after_feasible_ones(self) -> None:
        rows = ((4, 600, (500,)), (4, 200, (900,)), (4, 5, ()))
        assert order(asked("genie", *rows)) == [2, 1, 3]
        assert order(asked("genie", *rows, options={"late_first": True})) == [1, 2, 3]

    def test_orders_late_jobs_by_laxity_after_zero_slack(self) -> None:
        """The first three jobs are late by 100, 300 and 10 s; the fourth ends just in time."""
        rows = ((4, 600, (500,)), (4, 500, (200,)), (4, 20, (10,)), (4, 300, (300,)))
        assert order(asked("genie", *rows)) == [4, 2, 1, 3]

    def test_treats_expired_deadline_as_best_effort(self) -> None:
        rows = ((4, 5, ()), (4, 5, (-1,)), (4, 5, (-1, 1)))
        assert order(asked("genie", *rows)) == [3, 1, 2]

    @pytest.mark.parametrize(
        ("ends_s", "note"), [((50,), "least_laxity"), ((5,), "late"), ((), "best_effort")]
    )
    def test_grant_notes_reason(self, ends_s: tuple[int, ...], note: str) -> None:
        decision = decide_round(asked("genie", (4, 10, ends_s)))
        assert decision.grants[0].key.note == note


class TestHydra:
    def test_orders_deadline_jobs_first_then_by_remaining_time(self) -> None:
        rows = ((1, 9, ()), (1, 3, ()), (1, 80, (90,)), (1, 70, (9000,)))
        assert order(asked("hydra", *rows)) == [4, 3, 2, 1]

    def test_ignores_urgency_within_deadline_class(self) -> None:
        """The second job would meet its deadline only if it were first."""
        rows = ((4, 10, (86_400,)), (4, 11, (11,)))
        assert started(decide_round(asked("hydra", *rows))) == [1]

    def test_never_preempts(self) -> None:
        one = asked("hydra", (4, 500, ()), (4, 10, (11,)), leases=[lease(7, 1, (1, 4))])
        decision = decide_round(one)
        assert ([row.job for row in decision.renewals], started(decision)) == ([1], [])

    def test_skips_jobs_that_do_not_fit(self) -> None:
        rows = ((3, 10, (20,)), (2, 11, (40,)), (1, 10, ()))
        assert started(decide_round(asked("hydra", *rows))) == [1, 3]

    def test_uses_configured_runtime_without_estimate(self) -> None:
        rows = ((4, 100, ()), (4, None, ()))
        assert order(asked("hydra", *rows)) == [1, 2]
        assert order(asked("hydra", *rows, options={"unknown_s": 99})) == [2, 1]

    def test_treats_expired_deadline_as_best_effort(self) -> None:
        rows = ((4, 5, ()), (4, 4, (-1,)), (4, 6, (1,)))
        assert order(asked("hydra", *rows)) == [3, 2, 1]

    @pytest.mark.parametrize(("ends_s", "note"), [((50,), "slo"), ((), "best_effort")])
    def test_grant_notes_reason(self, ends_s: tuple[int, ...], note: str) -> None:
        decision = decide_round(asked("hydra", (4, 10, ends_s)))
        assert decision.grants[0].key.note == note
