"""Test the steps of soft deadlines that jobs and traces declare."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.deadlines.declared import (
    DeclaredStep,
    StepError,
    dated_steps,
    read_steps,
    step_texts,
    steps_of_values,
)
from evenshare_core.deadlines.rewards import soft_deadlines
from evenshare_core.domain.deadlines import DeadlineClass
from evenshare_core.units import HOUR_US, MINUTE_US, REWARD_MICRO

SUBMITTED_US = 1_700_000_000 * REWARD_MICRO + 17
TRACES = st.lists(st.integers(MINUTE_US, 1000 * HOUR_US), min_size=1, max_size=16, unique=True)


class TestDeclaredSteps:
    def test_soft_class_matches_steps_of_paper(self) -> None:
        steps = read_steps([(100, 100), (110, 80), (120, 50), (150, 20)])
        end_us = SUBMITTED_US + HOUR_US
        own = dated_steps(SUBMITTED_US, end_us, DeadlineClass.SOFT, steps)
        assert own == dated_steps(SUBMITTED_US, end_us, DeadlineClass.SOFT)
        assert [tuple(step) for step in own] == list(soft_deadlines(SUBMITTED_US, end_us))

    def test_strict_deadline_has_one_step(self) -> None:
        (step,) = dated_steps(0, HOUR_US, DeadlineClass.STRICT)
        assert step == (HOUR_US, 100 * REWARD_MICRO)

    def test_texts_have_no_trailing_zeros(self) -> None:
        steps = read_steps([("100.000", "100.0"), (Decimal("112.50"), Decimal("80.50"))])
        assert step_texts(steps) == [["100", "100"], ["112.5", "80.5"]]
        assert read_steps(step_texts(steps)) == steps

    @pytest.mark.parametrize(
        ("pairs", "place"),
        [
            ([], None),
            ([(100, 100)] * 17, None),
            ([(110, 100)], 0),
            ([(100, 100), (100, 50)], 1),
            ([(100, 50), (110, 50)], 1),
            ([(100, 101)], 0),
            ([(100, 0)], 0),
            ([(100, -1)], 0),
            ([(True, 100)], 0),
            ([(100, 99.5)], 0),
            ([(100, Decimal("1e99"))], 0),
            ([(100, Decimal("NaN"))], 0),
            ([(100, 100, 1)], 0),
            (["aa"], 0),
            ([("100", "\u0661")], 0),
        ],
    )
    def test_error_names_position_of_invalid_step(
        self, pairs: list[tuple[int]], place: int
    ) -> None:
        with pytest.raises(StepError) as raised:
            read_steps(pairs)
        assert raised.value.place == place

    @pytest.mark.parametrize(
        ("end_us", "kind"),
        [(0, DeadlineClass.STRICT), (-1, DeadlineClass.SOFT), (5, DeadlineClass.BEST_EFFORT)],
    )
    def test_rejects_steps_without_deadline(self, end_us: int, kind: DeadlineClass) -> None:
        with pytest.raises(ValueError, match="deadline"):
            dated_steps(0, end_us, kind)


class TestTraceValues:
    @given(TRACES, st.data())
    def test_keep_instants_and_proportions(self, instants: list[int], data: st.DataObject) -> None:
        instants.sort()
        values = sorted(
            data.draw(
                st.lists(
                    st.integers(1, 1000), min_size=len(instants), max_size=len(instants),
                    unique=True,
                )
            ),
            reverse=True,
        )  # fmt: skip
        rows = steps_of_values(zip(instants, values, strict=True))
        declared = read_steps(step_texts(step for _, step in rows))
        end_us = SUBMITTED_US + rows[0][0]
        steps = dated_steps(SUBMITTED_US, end_us, DeadlineClass.SOFT, declared)
        assert [step.by_us - SUBMITTED_US for step in steps] == [at_us for at_us, _ in rows]
        expected = [value * 100 * REWARD_MICRO // values[0] for value in values]
        assert [step.reward_micro for step in steps] == expected[: len(steps)]
        assert all(one.reward_micro > then.reward_micro for one, then in pairwise(steps))

    def test_equal_values_use_last_instant(self) -> None:
        rows = steps_of_values([(HOUR_US, 5), (2 * HOUR_US, 5), (3 * HOUR_US, 1)])
        assert rows == (
            (2 * HOUR_US, DeclaredStep(Decimal(100), 100 * REWARD_MICRO)),
            (3 * HOUR_US, DeclaredStep(Decimal(150), 20 * REWARD_MICRO)),
        )

    def test_ignore_too_small_or_too_late_values(self) -> None:
        assert len(steps_of_values([(HOUR_US, 2**31), (2 * HOUR_US, 1)])) == 1
        assert len(steps_of_values([(MINUTE_US, 2), (60 * 10_000 * MINUTE_US, 1)])) == 1
        assert steps_of_values([]) == ()

    def test_values_at_submission_count_for_first_second(self) -> None:
        rows = steps_of_values([(0, 3), (5, 2), (HOUR_US, 1)])
        assert [at_us for at_us, _ in rows] == [REWARD_MICRO, HOUR_US]
