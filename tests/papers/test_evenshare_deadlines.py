"""Evenshare orders a tenant's jobs by deadlines: least GPU-time left first."""

from __future__ import annotations

from typing import Any

import pytest

from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import POLICIES
from tests.papers.deadline_pools import asked, order, started

OPTIONS = {"estimates": "deadlines"}
# Without promised starts, which go to the job that has waited longest.
IN_ORDER = {**OPTIONS, "promises": False}


def pool(*rows: tuple[int, int | None, tuple[int, ...]], **fields: Any) -> Snapshot:
    return asked("evenshare", *rows, **{"options": OPTIONS, **fields})


class TestDeadlineOrder:
    def test_least_gpu_time_left_goes_first(self) -> None:
        """The jobs have 400, 300, 200 and 100 GPU-seconds left; the first has the least slack."""
        rows = ((4, 100, (101,)), (1, 300, ()), (2, 100, (9000,)), (1, 100, ()))
        assert order(pool(*rows, options=IN_ORDER)) == [4, 3, 2, 1]

    @pytest.mark.parametrize(("ends_s", "first"), [((100,), 1), ((99,), 2), ((50, 100), 1)])
    def test_puts_unmeetable_deadlines_last(self, ends_s: tuple[int, ...], first: int) -> None:
        asked = pool((4, 100, ends_s), (4, 900, ()), options=IN_ORDER)
        assert started(decide_round(asked)) == [first]

    def test_differs_without_option(self) -> None:
        rows = ((4, 100, (99,)), (4, 50, ()))
        assert started(decide_round(pool(*rows, options={}))) == [1]

    def test_keeps_no_session_between_rounds(self) -> None:
        policy = POLICIES["evenshare"]
        assert policy.session(OPTIONS) is None
        assert policy.session({}) is not None
