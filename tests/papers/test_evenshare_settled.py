"""Test how a round begins with the promises of the last one: rule 4 (a) of evenshare."""

from __future__ import annotations

from collections.abc import Sequence

from evenshare_core.domain.leases import Lease
from evenshare_core.policies.evenshare.promises import (
    PoolState,
    promise_rows,
    read_promises,
    settle,
)
from evenshare_core.policies.evenshare.promises import (
    PromisedPart as Part,
)
from tests.papers.evenshare_pools import running
from tests.papers.test_evenshare_promises import promise


def state(waiting: set[int], leases: Sequence[Lease] = (), **free: int) -> PoolState:
    by_node = {int(name[1:]): gpus for name, gpus in free.items()}
    held = {lease.job: lease for lease in leases}
    return PoolState(lambda row: row.job in waiting, held, lambda gpu_type: by_node)  # noqa: ARG005 - there is one type


class TestSettle:
    """Rule 4 (a)."""

    def test_promise_ends_with_wait_of_job(self) -> None:
        assert settle([promise(1, 8, 0, n1=Part(8))], state(set(), n1=8)) == {}

    def test_promise_ends_with_node(self) -> None:
        rows = [
            promise(1, 8, 0, n1=Part(4), n2=Part(4)),
            promise(2, 8, 0, n2=Part(4)),
        ]
        assert list(settle(rows, state({1, 2}, n2=8))) == []

    def test_pins_of_ended_leases_become_held(self) -> None:
        rows = [promise(1, 8, 0, n1=Part(2, {5: 4, 6: 2}))]
        found = settle(rows, state({1}, [running(6, 1, 2)], n1=6))
        assert found[1].parts == {1: Part(6, {6: 2})}

    def test_promises_behind_dropped_one_inherit_each_gpu_once(self) -> None:
        rows = [
            promise(1, 8, 0, n1=Part(3, {5: 5})),
            promise(2, 4, 900, n1=Part(0, {}, {1: 4})),
            promise(3, 4, 900, n1=Part(0, {}, {1: 4})),
        ]
        found = settle(rows, state({2, 3}, [running(5, 1, 5)], n1=3))
        assert found[2].parts == {1: Part(3, {5: 1})}
        assert found[3].parts == {1: Part(0, {5: 4})}

    def test_promise_inherits_from_older_one_that_started_elsewhere(self) -> None:
        rows = [
            promise(1, 8, 0, n1=Part(8)),
            promise(2, 8, 900, n1=Part(0, {}, {1: 8})),
        ]
        found = settle(rows, state({2}, [running(1, 2, 8)], n1=8, n2=0))
        assert found[2].parts == {1: Part(8)}

    def test_latest_promise_ends_if_node_lost_gpus(self) -> None:
        rows = [promise(1, 4, 0, n1=Part(4)), promise(2, 4, 100, n1=Part(4))]
        assert list(settle(rows, state({1, 2}, n1=7))) == [1]

    def test_promises_that_ended_inherit_nothing(self) -> None:
        """A node lost all its GPUs: each promise in turn ends, and the first one has no lease."""
        rows = [
            promise(1, 4, 0, n1=Part(4)),
            promise(2, 4, 900, n1=Part(0, {}, {1: 4})),
            promise(3, 4, 1800, n1=Part(0, {}, {2: 4})),
        ]
        assert settle(rows, state({1, 2, 3}, n1=0)) == {}
        found = settle([*rows, promise(4, 4, 1900, n2=Part(4))], state({1, 2, 3, 4}, n1=0, n2=4))
        assert list(found) == [4]

    def test_rows_survive_json(self) -> None:
        rows = [promise(1, 8, 0, n1=Part(1, {5: 2}, {9: 1}), n2=Part(4))]
        assert read_promises({"promises": promise_rows(rows)}) == rows
        assert read_promises({}) == []
