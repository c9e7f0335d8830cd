"""HiveD: buddy cells by hand and on random pools, and owners that preempt spot jobs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import PreemptionRule
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round, queue_order
from evenshare_core.units import SECOND_US
from evenshare_research.policies.buddy_cells import Cell, bind_cells, cell_sizes
from tests.papers.test_baselines import Times, job, run
from tests.unit.core.snapshots import AT_US, lease, snapshot
from tests.unit.core.snapshots import job as waiting_job


def quotas(*gpus: int) -> list[Entitlement]:
    """Return the quotas of tenants 1, 2, ..."""
    return [Entitlement(tenant, "v100", count) for tenant, count in enumerate(gpus, start=1)]


def nodes(*gpus: int) -> list[Node]:
    return [Node(index, "v100", count) for index, count in enumerate(gpus, start=1)]


class TestCells:
    @pytest.mark.parametrize(
        ("quota", "largest", "sizes"),
        [(13, 8, [8, 4, 1]), (24, 8, [8, 8, 8]), (7, 4, [4, 2, 1]), (0, 8, []), (3, 8, [2, 1])],
    )
    def test_sizes_are_powers_of_two(self, quota: int, largest: int, sizes: list[int]) -> None:
        assert cell_sizes(quota, largest) == sizes

    def test_binds_largest_first_without_gaps(self) -> None:
        """Cells of 4 are bound first, two on node 1 and one on node 2; cells of 2 fill node 2."""
        cells = bind_cells(nodes(8, 8), quotas(6, 6, 4), [], {})
        assert cells == [
            Cell(1, 2, 2), Cell(1, 4, 1), Cell(2, 2, 2), Cell(2, 4, 1), Cell(3, 4, 2),
        ]  # fmt: skip

    def test_binds_where_tenant_already_runs(self) -> None:
        cells = bind_cells(nodes(8, 8), quotas(8, 8), [], {(1, 2): 5})
        assert cells == [Cell(1, 8, 2), Cell(2, 8, 1)]

    def test_keeps_existing_binding(self) -> None:
        before = [Cell(1, 8, 2), Cell(2, 8, 1)]
        assert bind_cells(nodes(8, 8, 8), quotas(8, 8, 8), before, {}) == [*before, Cell(3, 8, 3)]

    def test_moves_after_node_loss(self) -> None:
        before = [Cell(1, 8, 2), Cell(2, 8, 1)]
        assert bind_cells(nodes(8, 0, 8), quotas(8, 8), before, {}) == [
            Cell(1, 8, 3), Cell(2, 8, 1),
        ]  # fmt: skip

    def test_moves_cells_that_block_whole_node(self) -> None:
        """Cells are bound so that a whole node is left for the tenant with 8 GPUs."""
        before = [Cell(1, 4, 1), Cell(1, 4, 2)]
        cells = bind_cells(nodes(8, 8), quotas(4, 8), before[:1], {})
        assert cells == [Cell(1, 4, 1), Cell(2, 8, 2)]
        quarters = [Cell(1, 2, 1), Cell(2, 2, 2)]
        cells = bind_cells(nodes(8, 8), quotas(2, 2, 8), quarters, {})
        assert {cell.node for cell in cells if cell.gpus == 2} == {2}

    def test_halves_cells_on_odd_sized_nodes(self) -> None:
        """A node of 6 has room for one cell of 4; its other 2 GPUs are half of a cell."""
        cells = bind_cells(nodes(6, 6), quotas(12), [], {})
        assert sum(cell.gpus for cell in cells) == 12
        assert max(cell.gpus for cell in cells) == 4

    @given(
        st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=6),
        st.lists(st.integers(0, 20), min_size=1, max_size=5),
        st.randoms(use_true_random=False),
    )
    def test_all_cells_fit_at_once(self, sizes: list[int], wished: list[int], rng: Any) -> None:
        total = sum(sizes)
        asked = quotas(*(min(count, total // len(wished)) for count in wished))
        before = [Cell(rng.randint(1, 5), rng.choice([1, 2, 4, 8]), rng.randint(1, 7))
                  for _ in range(rng.randint(0, 6))]  # fmt: skip
        cells = bind_cells(nodes(*sizes), asked, before, {})
        room, mine = Counter(dict(enumerate(sizes, start=1))), Counter[int]()
        for cell in cells:
            room[cell.node] -= cell.gpus
            mine[cell.tenant] += cell.gpus
        assert min(room.values()) >= 0
        assert mine == Counter({row.tenant: row.gpus for row in asked if row.gpus})


class TestOwners:
    SPOTS = [job(i, 1, 500, tenant=2) for i in range(1, 9)]

    def test_reclaim_cells_from_spot_jobs(self) -> None:
        """Nodes have 4 GPUs. Tenant 2 owns one and runs 8 jobs; tenant 1's gang needs 4 GPUs."""
        found = run("hived", [*self.SPOTS, job(9, 4, 50, at_s=10)], {1: 4, 2: 4}, nodes=2,
                    min_runtime_s=0)  # fmt: skip
        assert found[9] == Times(10, 60)
        assert sorted(row.end_s for row in found.values()) == [60, *[500] * 4, *[550] * 4]

    def test_wait_for_minimum_runtime_with_gpus_held(self) -> None:
        """A spot job ends at 20 s. Its GPU is kept for the gang, although another job waits."""
        jobs = [*self.SPOTS[:7], job(8, 1, 20, tenant=2), job(9, 4, 50, at_s=10),
                job(10, 1, 5, at_s=11, tenant=2)]  # fmt: skip
        found = run("hived", jobs, {1: 4, 2: 4}, nodes=2, min_runtime_s=60)
        assert found[9].start_s == 100  # leases end at the first event after 60 s
        assert found[10].start_s >= 100

    def test_preempt_fewest_leases(self) -> None:
        """The first tenant's node runs spot jobs of 1 and 3 GPUs; its job needs 1, then 2."""
        leases = [spot(1, 1, 1), spot(2, 1, 3)]
        jobs = [held_job(1, 1), held_job(2, 3), waiting_job(3, 1)]
        decision = decide_round(asked(jobs, leases, (4, 4), nodes_={1: 4, 2: 4}))
        (row,) = decision.preemptions
        assert (row.rule, row.job, row.for_job) == (PreemptionRule.GUARANTEE, 1, 3)
        assert row.numbers == {"held": 0, "quota": 4}
        jobs[2] = waiting_job(3, 2)
        (row,) = decide_round(asked(jobs, leases, (4, 4), nodes_={1: 4, 2: 4})).preemptions
        assert row.job == 2

    def test_do_not_preempt_if_own_cells_are_free(self) -> None:
        """The first tenant has cells on both nodes, and a spot job is on one of them."""
        leases = [spot(1, 1, 4)]
        jobs = [held_job(1, 4), waiting_job(3, 4)]
        decision = decide_round(asked(jobs, leases, (8, 0), nodes_={1: 4, 2: 4}))
        assert [grant.placement for grant in decision.grants] == [((2, 4),)]
        assert decision.grants[0].key.note == "own_cells"
        assert not decision.preemptions

    def test_clear_several_nodes_for_a_gang(self) -> None:
        """The gang needs 8 GPUs, on two nodes of 4.

        A spot lease is on both nodes, another on one.
        """
        leases = [spot(1, 1, 1), replace(spot(2, 1, 1), placement=((1, 1), (2, 2)), borrowed=3)]
        jobs = [held_job(1, 1), held_job(2, 3), waiting_job(3, 8)]
        decision = decide_round(asked(jobs, leases, (8, 0), nodes_={1: 4, 2: 4}))
        assert {row.lease for row in decision.preemptions} == {1, 2}
        (grant,) = decision.grants
        assert grant.placement == ((1, 4), (2, 4))

    def test_do_not_preempt_protected_leases(self) -> None:
        """The lease is protected, and the free GPUs next to it are kept free for the gang."""
        leases = [replace(spot(1, 1, 2), protected_until_us=AT_US + 1)]
        jobs = [held_job(1, 2), waiting_job(3, 4), waiting_job(4, 2, tenant=2)]
        decision = decide_round(asked(jobs, leases, (4, 0), nodes_={1: 4}))
        assert not decision.grants
        assert not decision.preemptions

    def test_minimum_runtime_applies_to_unprotected_leases(self) -> None:
        """The lease started under another policy, without protection."""
        snap = asked([held_job(1, 4), waiting_job(3, 4)], [spot(1, 1, 4)], (4, 0), nodes_={1: 4})
        assert decide_round(snap).preemptions
        waits = decide_round(replace(snap, options={"min_runtime_s": 60}))
        assert not waits.preemptions
        assert not waits.grants

    def test_leave_room_others_may_borrow(self) -> None:
        """The other tenant may borrow 4 GPUs.

        Its lease on node 1 ends, so it gets 4 GPUs on node 2.
        """
        jobs = [held_job(1, 4), waiting_job(3, 4), waiting_job(4, 4, tenant=2)]
        snap = asked(jobs, [spot(1, 1, 4)], (4, 0), nodes_={1: 4, 2: 4},
                     memory={"cells": {"v100": [[1, 4, 1]]}})  # fmt: skip
        limited = replace(snap.entitlements[1], borrow_limit=4)
        decision = decide_round(replace(snap, entitlements=(snap.entitlements[0], limited)))
        assert {row.lease for row in decision.preemptions} == {1}
        places = {grant.job: grant.placement for grant in decision.grants}
        assert places == {3: ((1, 4),), 4: ((2, 4),)}

    def test_wait_if_node_lost_leased_gpus(self) -> None:
        """The node has 4 GPUs left, but its leases hold 8, so ending one lease frees no GPU."""
        leases = [spot(1, 1, 4), spot(2, 1, 4)]
        jobs = [held_job(1, 4), held_job(2, 4), waiting_job(3, 4)]
        decision = decide_round(asked(jobs, leases, (4, 0), nodes_={1: 4}))
        assert not decision.grants
        assert not decision.preemptions

    def test_do_not_preempt_when_holding_full_quota_elsewhere(self) -> None:
        """The first tenant has cells of 4 on the first node, but its job runs on the second."""
        mine = replace(spot(2, 2, 4), tenant=1, own=4, borrowed=0)
        leases = [spot(1, 1, 4), mine]
        jobs = [held_job(1, 4), replace(held_job(2, 4), tenant=1), waiting_job(3, 1)]
        memory = {"cells": {"v100": [[1, 4, 1]]}}
        decision = decide_round(asked(jobs, leases, (4, 0), nodes_={1: 4, 2: 4}, memory=memory))
        assert not decision.grants
        assert not decision.preemptions

    def test_go_before_earlier_spot_jobs(self) -> None:
        jobs = [waiting_job(1, 4, tenant=2), waiting_job(2, 4)]
        snap = asked(jobs, [], (4, 0), nodes_={1: 4})
        decision = decide_round(snap)
        assert [grant.job for grant in decision.grants] == [2]
        assert queue_order(snap, decision.service) == (2, 1)


class TestSpotJobs:
    def test_run_on_idle_cells_with_spot_note(self) -> None:
        decision = decide_round(asked([waiting_job(1, 4, tenant=2)], [], (4, 0), nodes_={1: 4}))
        assert [grant.key.note for grant in decision.grants] == ["spot"]

    def test_are_not_renewed_while_owner_waits(self) -> None:
        """The lease has ended, so this is no preemption and needs no notice."""
        ended = replace(spot(1, 1, 4), expires_us=AT_US)
        decision = decide_round(
            asked([held_job(1, 4), waiting_job(3, 4)], [ended], (4, 0), nodes_={1: 4})
        )
        assert [grant.job for grant in decision.grants] == [3]
        assert [end.reason.value for end in decision.ends] == ["not_renewed"]
        assert not decision.preemptions


class TestMemory:
    def test_keeps_cells_between_rounds(self) -> None:
        jobs = [waiting_job(1, 4)]
        first = decide_round(asked(jobs, [], (4, 4), nodes_={1: 4, 2: 4}))
        assert first.memory == {"cells": {"v100": [[1, 4, 1], [2, 4, 2]]}}
        swapped = {"cells": {"v100": [[1, 4, 2], [2, 4, 1]]}}
        again = decide_round(asked(jobs, [], (4, 4), nodes_={1: 4, 2: 4}, memory=swapped))
        assert again.memory == swapped
        assert [grant.placement for grant in again.grants] == [((2, 4),)]


def held_job(id_: int, gpus: int) -> Any:
    return waiting_job(id_, gpus, tenant=2, terms=1)


def spot(id_: int, node: int, gpus: int) -> Lease:
    """Return a lease of the second tenant that continues, with borrowed GPUs only."""
    return lease(id_, id_, (node, gpus), tenant=2, expires_us=AT_US + SECOND_US, borrowed=gpus)


def asked(
    jobs: list[Any], leases: list[Lease], gpus: tuple[int, int], *, nodes_: dict[int, int],
    **fields: Any,
) -> Snapshot:  # fmt: skip
    """Return a round with quotas of two tenants, in which any lease may be ended."""
    return snapshot(
        jobs, leases, nodes=nodes_, quotas=quotas(*gpus), policy="hived",
        options={"min_runtime_s": 0}, **fields,
    )  # fmt: skip
