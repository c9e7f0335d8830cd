"""Test deserved, short, late and wasted GPU-time, by hand and against a second implementation.

All times of the compared runs are multiples of that implementation's step, five minutes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.simulation.books import Books, JobRecord, LeaseRecord
from evenshare_core.simulation.deserved import TenantPeriod, quota_steps, tenant_hours
from evenshare_core.simulation.figures import Figures, figures_of
from evenshare_core.simulation.reference import fair_reference
from evenshare_core.simulation.scenario import Scenario, infinite
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.type_flow import TypeFlow, joined
from evenshare_core.simulation.workloads import Cluster, NodeChange, SimJob, Workload
from evenshare_core.units import HOUR_US, SECOND_US
from tests.simulation.metrics_by_steps import (
    STEP_US,
    Steps,
    deficit,
    flow,
    fluid_ends,
    sets_of,
)

HOUR_S = 3600
K, V = "k80", "v100"


def job(id_: int, gpus: int, duration_s: int, *, at_s: int = 0, **fields: Any) -> SimJob:
    tenant = fields.pop("tenant", 1)
    return SimJob(id_, tenant, gpus, at_s * SECOND_US, duration_s * SECOND_US, **fields)


def pool(gpus: Mapping[str, int], *quotas: tuple[int, str, int], **rest: Any) -> Cluster:
    """Return a pool with one node per type."""
    nodes = tuple(Node(index, name, size) for index, (name, size) in enumerate(gpus.items(), 1))
    return Cluster(nodes, tuple(Entitlement(*row) for row in quotas), **rest)


def books_of(jobs: Iterable[SimJob], *leases: tuple[int, str, int, int]) -> Books:
    """Return books of leases (job, type, start, end) in seconds; a job ends with its last lease."""
    books = Books()
    ends: dict[int, int] = {}
    starts: dict[int, int] = {}
    for number, (job_id, gpu_type, start_s, end_s) in enumerate(leases, 1):
        span = (start_s * SECOND_US, end_s * SECOND_US)
        books.leases.append(LeaseRecord(number, job_id, 1, gpu_type, (), *span, "finished", 0))
        starts.setdefault(job_id, span[0])
        ends[job_id] = span[1]
    for one in jobs:
        if one.id in ends:
            row = JobRecord(one.id, "succeeded", starts[one.id], ends[one.id], 1, one.duration_us)
            books.jobs.append(row)
    return books


def in_gpu_hours(row: TenantPeriod) -> tuple[int, float, float, float]:
    received, deserved, short = (
        gpu_us / HOUR_US for gpu_us in (row.received, row.deserved, row.short)
    )
    return row.period, received, deserved, short


def hours_of(cluster: Cluster, jobs: Sequence[SimJob], books: Books) -> list[Any]:
    return [in_gpu_hours(row) for row in tenant_hours(cluster, jobs, books).periods()]


class TestFairReference:
    @pytest.mark.parametrize(
        ("jobs", "ends"),
        [
            ([job(1, 2, 100), job(2, 2, 100)], {1: 200, 2: 200}),
            ([job(1, 2, 100), job(2, 2, 50)], {1: 150, 2: 100}),
            ([job(1, 1, 100), job(2, 1, 50, at_s=10)], {1: 100, 2: 60}),
            ([job(1, 2, 100), job(2, 2, 10, at_s=500)], {1: 100, 2: 510}),
            ([job(1, 2, 100, weight=3), job(2, 2, 100)], {1: 400 / 3, 2: 200}),
            # The first job gets 1 of 2 GPUs: 0.5 by its weight, and the half that the other job
            # cannot use.
            ([job(1, 2, 150, weight=2), job(2, 1, 10, weight=6)], {1: 10 + 290 / 2, 2: 10}),
            # The second job leaves after 50 s, during which both jobs had one GPU.
            ([job(1, 2, 100), job(2, 2, 100, cancel_us=50 * SECOND_US)], {1: 125, 2: inf}),
            # If a job ends before it is cancelled, its end counts.
            ([job(1, 2, 100, cancel_us=101 * SECOND_US)], {1: 100}),
            ([job(1, 3, 100), job(2, 2, 100)], {1: inf, 2: 100}),  # the quota has fewer than 3 GPUs
        ],
    )
    def test_fills_quota_with_unfinished_jobs(
        self, jobs: list[SimJob], ends: dict[int, float]
    ) -> None:
        assert fair_reference(pool({K: 2}, (1, K, 2)), jobs) == pytest.approx(ends)

    def test_large_jobs_get_leftovers_of_small_jobs(self) -> None:
        """The second golden case of LTGF: by eq. (14) only, 3 of 8 GPUs would be unused."""
        rows = [job(1, 8, 700), job(2, 1, 700)]
        found = fair_reference(pool({K: 8}, (1, K, 8)), rows)
        assert found == pytest.approx({1: 700 + 700 / 8, 2: 700})

    def test_jobs_without_quota_never_end(self) -> None:
        assert fair_reference(pool({K: 2}), [job(1, 1, 1)]) == {1: inf}

    def test_respects_accepted_gpu_types(self) -> None:
        """Of 2 K80s and 2 V100s, the job that accepts both gets what the other jobs cannot use."""
        cluster = pool({K: 2, V: 2}, (1, K, 2), (1, V, 2))
        rows = [job(1, 2, 100, gpu_types=(V,)), job(2, 2, 100, gpu_types=(V,)), job(3, 2, 100)]
        assert fair_reference(cluster, rows) == pytest.approx({1: 200, 2: 200, 3: 100})

    def test_full_type_does_not_limit_other_jobs(self) -> None:
        """Two jobs that need V100s have one each; the third has all other GPUs."""
        cluster = pool({K: 4, V: 4}, (1, K, 2), (1, V, 2))
        rows = [*(job(index, 2, 100, gpu_types=(V,)) for index in (1, 2)), job(3, 4, 100)]
        assert fair_reference(cluster, rows) == pytest.approx({1: 200, 2: 200, 3: 200})

    def test_follows_available_nodes(self) -> None:
        changes = (NodeChange(50 * SECOND_US, 1, 1), NodeChange(150 * SECOND_US, 1, 2))
        cluster = pool({K: 2}, (1, K, 2), changes=changes)
        assert fair_reference(cluster, [job(1, 2, 110)]) == pytest.approx({1: 150 + 20 / 2})

    def test_is_independent_of_policy(self) -> None:
        """A cancelled job competed until it was cancelled, whether it ran or not."""
        cluster = pool({K: 2}, (1, K, 2))
        rows = (job(1, 2, 100), job(2, 2, 100, cancel_us=150 * SECOND_US))
        late = [
            figures_of(cluster, rows, simulate(cluster, rows, Rules(policy)).books).late
            for policy in ("fifo", "ltgf", "srtf")
        ]
        assert late == [0, 0, 0]


class TestDeficit:
    def test_surplus_does_not_offset_other_hours(self) -> None:
        """The tenant gets no GPU-time in the first hour and twice its quota in the second."""
        cluster = pool({K: 4}, (1, K, 2))
        rows = [job(1, 4, HOUR_S)]
        books = books_of(rows, (1, K, HOUR_S, 2 * HOUR_S))
        assert hours_of(cluster, rows, books) == [(0, 0, 2, 2), (1, 4, 2, 0)]
        found = figures_of(cluster, rows, books)
        assert (found.deficit, found.daily_deficit, found.unfair_intervals) == (0.5, 0, 0.5)
        assert [row.deficit for row in found.hours.values()] == [1, 0]
        assert [row.least_rho for row in found.hours.values()] == [0, 2]

    def test_hours_start_at_first_submission(self) -> None:
        cluster = pool({K: 4}, (1, K, 2))
        rows = [job(1, 2, HOUR_S, at_s=1800)]
        books = books_of(rows, (1, K, 3600, 5400))
        assert hours_of(cluster, rows, books) == [(0, 1, 2, 1)]

    def test_deserved_time_is_limited_by_demand_and_quota(self) -> None:
        cluster = pool({K: 8}, (1, K, 6), (2, K, 2))
        rows = [job(1, 1, HOUR_S), job(2, 4, HOUR_S, tenant=2)]
        books = books_of(rows, (1, K, 0, HOUR_S), (2, K, 0, HOUR_S))
        assert hours_of(cluster, rows, books) == [(0, 1, 1, 0), (0, 4, 2, 0)]

    def test_cold_start_is_not_received_time(self) -> None:
        cluster, rows = pool({K: 2}, (1, K, 2)), [job(1, 2, HOUR_S)]
        books = books_of(rows, (1, K, 0, HOUR_S))
        books.leases[0] = books.leases[0]._replace(overhead_us=HOUR_US // 4)
        assert hours_of(cluster, rows, books) == [(0, 1.5, 2, 0.5)]

    def test_counts_jobs_that_never_start(self) -> None:
        """Only jobs that fit count. A job that is larger than its type has no demand."""
        cluster = pool({K: 4}, (1, K, 4))
        rows = [job(1, 1, HOUR_S), job(2, 2, HOUR_S), job(3, 5, HOUR_S)]
        assert hours_of(cluster, rows, books_of(rows, (1, K, 0, HOUR_S))) == [(0, 1, 3, 2)]

    def test_scales_quotas_to_available_nodes(self) -> None:
        changes = (NodeChange(HOUR_US // 2, 1, 2), NodeChange(HOUR_US, 1, 4))
        cluster = pool({K: 4}, (1, K, 3), (2, K, 1), changes=changes)
        assert [step[1:] for step in quota_steps(cluster)] == [
            (1, K, 3), (2, K, 1), (1, K, -1), (2, K, -1), (1, K, 1), (2, K, 1),
        ]  # fmt: skip
        rows = [job(1, 4, 2 * HOUR_S)]
        books = books_of(rows, (1, K, HOUR_S, 3 * HOUR_S))
        assert hours_of(cluster, rows, books)[0] == (0, 0, 2.5, 2.5)

    def test_partitions_are_independent(self) -> None:
        """A lost node of the second tenant does not change what the first tenant deserves."""
        nodes = (Node(1, K, 2), Node(2, K, 2))
        quotas = (Entitlement(1, K, 2), Entitlement(2, K, 2))
        cluster = Cluster(nodes, quotas, changes=(NodeChange(0, 2, 0),))
        steps = quota_steps(cluster, {1: nodes[:1], 2: nodes[1:]})
        assert [(step.tenant, step.gpus) for step in steps] == [(1, 2), (2, 2), (2, -2)]


class TestDeficitOfSeveralTypes:
    CLUSTER = pool({K: 8, V: 8}, (1, K, 4), (1, V, 4))

    def test_counts_held_type_instead_of_claimed(self) -> None:
        rows = [job(1, 4, HOUR_S)]
        books = books_of(rows, (1, V, 0, HOUR_S))
        assert hours_of(self.CLUSTER, rows, books) == [(0, 4, 4, 0)]

    def test_surplus_of_one_type_does_not_offset_another(self) -> None:
        """The tenant's V100 jobs hold eight GPUs, and its K80 jobs hold none."""
        rows = [job(1, 8, HOUR_S, gpu_types=(V,)), job(2, 4, HOUR_S, gpu_types=(K,))]
        books = books_of(rows, (1, V, 0, HOUR_S), (2, K, HOUR_S, 2 * HOUR_S))
        assert hours_of(self.CLUSTER, rows, books) == [(0, 8, 8, 4), (1, 4, 4, 0)]

    def test_types_offset_if_jobs_accept_both(self) -> None:
        rows = [job(1, 8, HOUR_S)]
        assert hours_of(self.CLUSTER, rows, books_of(rows, (1, V, 0, HOUR_S))) == [(0, 8, 8, 0)]

    def test_counts_type_owed_to_jobs_that_need_it(self) -> None:
        """The tenant gets all that it deserves, but on K80s.

        Its V100s are owed to the second job.
        """
        rows = [job(1, 8, HOUR_S), job(2, 4, HOUR_S, gpu_types=(V,))]
        books = books_of(rows, (1, K, 0, HOUR_S), (2, V, HOUR_S, 2 * HOUR_S))
        assert hours_of(self.CLUSTER, rows, books)[0] == (0, 8, 8, 4)

    @pytest.mark.parametrize(
        ("accepted", "rhos"), [(((K,), (V,)), [1, 2]), (((K,), ()), [6 / 5, 3 / 2])]
    )
    def test_competing_jobs_share_types(
        self, accepted: tuple[tuple[str, ...], ...], rhos: list[float]
    ) -> None:
        """Jobs of separate types deserve 4 GPUs each.

        If one of them accepts both types, they share 8 by 1 : 2.

        The second job ends after half an hour with 8 GPUs.
        """
        rows = [
            job(1, 8, HOUR_S // 2, gpu_types=accepted[0]),
            job(2, 8, HOUR_S // 2, gpu_types=accepted[1], weight=2),
        ]
        books = books_of(rows, (1, K, HOUR_S // 2, HOUR_S), (2, V, 0, HOUR_S // 2))
        found = figures_of(self.CLUSTER, rows, books)
        assert [row.rho for row in found.jobs] == pytest.approx(rhos)

    def test_gpus_not_accepted_by_waiting_jobs_are_not_waste(self) -> None:
        rows = [
            *(job(index, 8, HOUR_S, gpu_types=(V,)) for index in (1, 2)),
            job(3, 1, HOUR_S, at_s=HOUR_S, gpu_types=(K,)),
        ]
        books = books_of(rows, (1, V, 0, HOUR_S), (2, V, HOUR_S, 7200), (3, K, HOUR_S, 7200))
        found = figures_of(self.CLUSTER, rows, books)
        assert (found.waste, found.utilisation) == (0, 0.5)


class TestInfiniteFloor:
    def test_starts_all_jobs_at_once_without_deficit(self) -> None:
        cluster = pool({K: 2, V: 2}, (1, K, 1), (1, V, 1), (2, K, 1), (2, V, 1), speeds={V: 3000})
        rows = tuple(
            job(index, 1 + index % 2, 900, tenant=1 + index % 2, gpu_types=types)
            for index, types in enumerate([(), (K,), (V,), (K, V)] * 3, 1)
        )
        scenario = Scenario(Workload(rows, {1: "a", 2: "b"}), cluster)
        found = infinite(scenario, Rules("fifo")).figures
        assert (found.deficit, found.unfair_intervals, found.late, found.sharing_loss) == (0,) * 4
        assert found.mean("queue_s") == 0
        assert (found.utilisation, found.waste) == (None, None)

    def test_jobs_wait_only_for_next_round(self) -> None:
        cluster, rows = pool({K: 1}, (1, K, 1)), (job(1, 1, 30, at_s=1), job(2, 1, 30, at_s=1))
        found = infinite(Scenario(Workload(rows, {1: "a"}), cluster), Rules("fifo", round_us=10**7))
        assert found.figures.mean("queue_s") == 9
        # The tenant deserves only one of the two GPUs, and neither job starts before the next
        # round.
        assert found.figures.deficit == 0


class TestTypeFlow:
    @given(
        st.lists(st.tuples(st.integers(1, 15), st.integers(0, 9)), min_size=1, max_size=6),
        st.lists(st.integers(0, 9), min_size=4, max_size=4),
    )
    def test_matches_maximum_flow_for_every_type_set(
        self, asked: list[tuple[int, int]], there: list[int]
    ) -> None:
        total = 0
        for masks in joined(mask for mask, _ in asked):
            flows = TypeFlow(masks)
            for mask, gpus in asked:
                if mask in masks:
                    flows.ask(mask, gpus)
            for place, gpus in enumerate(there):
                flows.offer(1 << place, gpus)
            for union, usable in zip(flows.sets, flows.usable(), strict=True):
                inside = [(_names(mask), gpus) for mask, gpus in asked if mask & ~union == 0]
                assert usable == flow(inside, {name: there[int(name)] for name in _names(union)})
            total += flows.most()
        everything = {str(place): gpus for place, gpus in enumerate(there)}
        assert total == flow([(_names(mask), gpus) for mask, gpus in asked], everything)


def _names(mask: int) -> list[str]:
    return [str(place) for place in range(4) if mask >> place & 1]


def drawn(seed: int) -> tuple[Cluster, list[SimJob], Books]:
    """Return a run of a small mixed pool at multiples of five minutes."""
    rng = random.Random(seed)  # noqa: S311 - a seeded pool, not a secret
    types = ["k80", "p100", "v100"][: rng.randint(1, 3)]
    sizes = {name: [rng.choice((2, 4)) for _ in range(rng.randint(1, 2))] for name in types}
    nodes = [
        Node(index, *node)
        for index, node in enumerate(((name, size) for name in types for size in sizes[name]), 1)
    ]
    quotas = []
    for name in types:
        left = sum(sizes[name])
        for tenant in (1, 2, 3):
            quotas.append(Entitlement(tenant, name, mine := rng.randint(0, left)))
            left -= mine
    changes = [
        NodeChange(rng.randint(1, 30) * STEP_US, node.id, rng.choice((0, node.gpus)))
        for node in nodes
        if rng.random() < 0.4
    ]
    rows = []
    for index in range(1, rng.randint(5, 25)):
        accepted = rng.choice([(), *(tuple(one) for one in sets_of(types))])
        at_us = (3 + rng.randint(0, 24)) * STEP_US
        rows.append(
            SimJob(
                index, rng.randint(1, 3), rng.choice((1, 1, 2, 4)), at_us,
                rng.randint(1, 12) * STEP_US, tuple(accepted), rng.randint(1, 3),
                cancel_us=at_us + rng.randint(0, 9) * STEP_US if rng.random() < 0.2 else None,
            )
        )  # fmt: skip
    cluster = Cluster(tuple(nodes), tuple(quotas), changes=tuple(changes))
    rules = Rules(
        rng.choice(("fifo", "ltgf", "srtf", "yarn_cs")),
        round_us=STEP_US, lease_us=3 * STEP_US, cold_us=STEP_US,
    )  # fmt: skip
    return cluster, rows, simulate(cluster, tuple(rows), rules).books


@pytest.mark.parametrize("seed", range(40))
def test_figures_match_second_implementation(seed: int) -> None:
    cluster, rows, books = drawn(seed)
    found, steps = figures_of(cluster, rows, books), Steps(cluster, rows, books)
    by_hour = steps.shortfalls(1)
    due = [row for row in found.tenant_hours if row.deserved]
    assert [(row.tenant, row.period, row.deserved, row.short) for row in due] == by_hour
    assert found.deficit == deficit(by_hour)
    assert found.daily_deficit == deficit(steps.shortfalls(24))
    if by_hour:
        unfair = [short > 0.01 * deserved for *_, deserved, short in by_hour]
        assert found.unfair_intervals == pytest.approx(sum(unfair) / len(unfair))
    assert (found.utilisation, found.waste) == steps.pool()


@pytest.mark.parametrize("seed", range(24))
def test_fair_reference_matches_second_implementation(seed: int) -> None:
    """The runs have a tenant on one to three types; some jobs are cancelled."""
    rng = random.Random(seed)  # noqa: S311 - seeded jobs, not a secret
    quotas = {name: rng.randint(1, 8) for name in [K, "p100", V][: 1 + seed % 3]}
    accepted = [(), *sets_of(sorted(quotas))]
    rows = [
        job(
            *(index, rng.choice((1, 1, 2, 4, 8)), rng.randint(1, 4000)),
            at_s=rng.randint(0, 9000),
            gpu_types=rng.choice(accepted),
            weight=rng.randint(1, 4),
            cancel_us=rng.choice((None, None, None, rng.randint(9000, 12000) * SECOND_US)),
        )
        for index in range(1, rng.randint(5, 15))
    ]
    cluster = pool(dict.fromkeys(quotas, 8), *((1, *row) for row in quotas.items()))
    expected = fluid_ends(rows, quotas)
    assert fair_reference(cluster, rows) == pytest.approx(expected, rel=1e-5)


def test_figures_are_non_negative_or_none() -> None:
    cluster, rows, books = drawn(3)
    found: Figures = figures_of(cluster, rows, books)
    for value in found.published().values():
        assert value is None or value >= 0
