"""Properties of the rounds of gandiva_fair on random pools, and of its rates and passes."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from itertools import combinations
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from benchmarks.ltgf_pool import advanced, pool
from evenshare_core.domain.decision import Decision, swapped
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.gandiva_fair.loads import TRIED, LoadOrder
from evenshare_core.policies.gandiva_fair.memory import Pass
from evenshare_core.policies.gandiva_fair.rates import (
    UNIT,
    FillRow,
    SpanningJob,
    placement_rates,
    water_fill,
)
from evenshare_core.policies.gandiva_fair.tickets import GpuTypes, traders_of
from evenshare_core.policies.registry import policy
from evenshare_core.units import GPU_MICRO, SECOND_US

from .quanta import jobs_of, quanta
from .quanta import pool as pool_of

TYPES = ("k80", "p100", "v100")


def mixed(seed: int, **fields: Any) -> Snapshot:
    """Draw a pool of three types; each tenant has one or two kinds of jobs, some pinned."""
    snapshot = pool(seed=seed, gpu_types=TYPES, **fields)
    rng = random.Random(seed)  # noqa: S311 - a seeded pool, not a secret
    profiles: list[Profile] = []
    for tenant in snapshot.tenants:
        for _ in range(rng.choice((1, 1, 2))):
            speeds = (1000, rng.randint(900, 3000), rng.choice((0, 1500, 4000, 6000)))
            told = tuple(row for row in zip(TYPES, speeds, strict=True) if row[1])
            profiles.append(Profile(len(profiles) + 1, tenant.id, told))
    held = {lease.job for lease in snapshot.leases}
    jobs = []
    for job in snapshot.jobs:
        mine = [row.id for row in profiles if row.tenant == job.tenant]
        accepted = job.gpu_types if job.id in held else rng.choice(((), (), TYPES[1:]))
        kind = rng.choice(mine) if mine and job.id not in held and rng.random() < 0.9 else 0
        jobs.append(replace(job, profile=kind, gpu_types=accepted))
    one = policy("gandiva_fair")
    return replace(
        snapshot, jobs=tuple(jobs), profiles=tuple(profiles), policy=one.name,
        policy_version=one.version, options={},
    )  # fmt: skip


@st.composite
def rounds(draw: st.DrawFn, *, limits: bool = True) -> Snapshot:
    """Draw a first round, or a later round that continues from the memory of an earlier one."""
    snapshot = mixed(
        draw(st.integers(0, 10**6)),
        nodes=draw(st.integers(1, 9)),
        tenants=draw(st.integers(1, 5)),
        pending=draw(st.integers(0, 40)),
        fill=draw(st.sampled_from([0.0, 0.5, 1.0])),
        expired=draw(st.sampled_from([0.0, 0.3, 1.0])),
        limits=limits and draw(st.booleans()),
    )
    options = {
        "tickets": draw(st.sampled_from(["placement", "paper"])), "trading": draw(st.booleans())
    }  # fmt: skip
    snapshot = advanced(replace(snapshot, options=options))
    if draw(st.booleans()):
        snapshot = replace(snapshot, lease_bounds_us=(10 * SECOND_US, 2 * snapshot.lease_us))
    if draw(st.booleans()):
        snapshot = replace(snapshot, memory=decide_round(snapshot).memory)
    if draw(st.booleans()) and snapshot.nodes:
        gone = draw(st.integers(0, len(snapshot.nodes) - 1))
        nodes = list(snapshot.nodes)
        nodes[gone] = replace(nodes[gone], gpus=0)
        snapshot = replace(snapshot, nodes=tuple(nodes))
    return snapshot


class TestRoundInvariants:
    """`decide_round` checks the invariants of every decision: capacity, gangs, leases, reasons."""

    @given(rounds())
    def test_leaves_unexpired_leases_unchanged(self, snapshot: Snapshot) -> None:
        decision = decide_round(snapshot)
        ended = {lease.id for lease in snapshot.leases if lease.ends_by(snapshot.at_us)}
        assert {end.lease for end in decision.ends} <= ended
        assert {row.lease for row in decision.renewals} <= ended

    @given(rounds())
    def test_is_deterministic_and_round_trips_json(self, snapshot: Snapshot) -> None:
        first = canonical_bytes(decide_round(snapshot))
        again = decode(canonical_bytes(snapshot), Snapshot)
        assert canonical_bytes(decide_round(again)) == first
        assert canonical_bytes(decode(first, Decision)) == first

    @given(rounds(), st.randoms(use_true_random=False))
    def test_ignores_row_order(self, snapshot: Snapshot, rng: random.Random) -> None:
        names = ("nodes", "tenants", "entitlements", "jobs", "leases", "profiles")
        rows = {name: getattr(snapshot, name) for name in names}
        mixed_up = replace(
            snapshot, **{name: tuple(rng.sample(row, len(row))) for name, row in rows.items()}
        )
        assert canonical_bytes(decide_round(mixed_up)) == canonical_bytes(decide_round(snapshot))

    @given(rounds(), st.integers(2, 9))
    def test_depends_only_on_order_of_ids(self, snapshot: Snapshot, factor: int) -> None:
        def other(job: int) -> int:
            return job * factor + 1

        renamed = replace(
            snapshot,
            jobs=tuple(replace(job, id=other(job.id)) for job in snapshot.jobs),
            leases=tuple(replace(lease, job=other(lease.job)) for lease in snapshot.leases),
            service=replace(
                snapshot.service,
                jobs=tuple(replace(row, job=other(row.job)) for row in snapshot.service.jobs),
            ),
            memory=_renamed(snapshot.memory, factor),
        )
        first, second = decide_round(snapshot), decide_round(renamed)
        assert [(other(g.job), g.placement, g.order) for g in first.grants] == [
            (g.job, g.placement, g.order) for g in second.grants
        ]
        assert [row.lease for row in first.renewals] == [row.lease for row in second.renewals]
        assert first.trades == second.trades

    @given(rounds(limits=False))
    def test_starts_every_job_that_fits(self, snapshot: Snapshot) -> None:
        decision = decide_round(snapshot)
        free = {node.id: node.gpus for node in snapshot.nodes}
        types = {node.id: node.gpu_type for node in snapshot.nodes}
        ended = {end.lease for end in decision.ends}
        places = [row.placement for row in snapshot.leases if row.id not in ended]
        for place in [*places, *(grant.placement for grant in decision.grants)]:
            for node, gpus in place:
                free[node] -= gpus
        jobs = {job.id: job for job in snapshot.jobs}
        profiles = {row.id: row for row in snapshot.profiles}
        for skip in decision.skips:
            if skip.reason in (Reason.RESERVED_FOR_GANG, Reason.TOO_LARGE):
                continue
            for job in (jobs[job] for job in skip.jobs):
                profile = profiles.get(job.profile)
                for node, gpus in free.items():
                    name = types[node]
                    accepts = not job.gpu_types or name in job.gpu_types
                    runs = profile is None or profile.speed_milli(name)
                    assert not (accepts and runs) or gpus < job.gpus

    @given(rounds())
    def test_trades_lower_no_throughput(self, snapshot: Snapshot) -> None:
        """Compare throughput on usable quotas before and after trades, by the profiles."""
        decision = decide_round(snapshot)
        after = swapped(snapshot.entitlements, decision.swaps)
        for name in TYPES:
            before = sum(row.gpus for row in snapshot.entitlements if row.gpu_type == name)
            assert sum(row.gpus for row in after if row.gpu_type == name) == before
        assert all(row.gpus >= 0 for row in after)
        for trade in decision.trades:
            assert trade.seller_rate_micro <= abs(trade.rate_micro) <= trade.buyer_rate_micro


def _renamed(memory: dict[str, Any], factor: int) -> dict[str, Any]:
    if not memory:
        return memory
    return {
        **memory,
        "jobs": [[row[0] * factor + 1, *row[1:]] for row in memory["jobs"]],
        "blocked": [[job * factor + 1, since] for job, since in memory["blocked"]],
    }


class TestWaterFill:
    @given(
        st.integers(0, 10**7),
        st.lists(
            st.tuples(st.integers(1, 50), st.integers(0, 10**6), st.integers(0, 10**6)),
            min_size=1, max_size=8,
        ),
    )  # fmt: skip
    def test_fills_rows_to_common_level(self, amount: int, raw: list[tuple[int, int, int]]) -> None:
        rows = [FillRow(*row) for row in raw]
        given_ = water_fill(amount, rows)
        assert all(0 <= units <= row.most for units, row in zip(given_, rows, strict=True))
        used, most = sum(given_), sum(row.most for row in rows)
        assert min(amount, most) - len(rows) <= used <= min(amount, most)
        levels = [
            Fraction(row.has + units, row.weight) for units, row in zip(given_, rows, strict=True)
        ]
        for units, row, level in zip(given_, rows, levels, strict=True):
            # A row below its maximum has no lower level than any row that got units, except for
            # rounding.
            if units < row.most:
                for other, got, high in zip(rows, given_, levels, strict=True):
                    assert not got or high <= level + Fraction(1, row.weight) + Fraction(
                        1, other.weight
                    )

    def test_float_rounding_does_not_fill_row_early(self) -> None:
        """With floats, the second row would seem full just below the amount that it takes."""
        assert water_fill(213_567, [FillRow(1, 4369, 1), FillRow(49, 492, 213_567)]) == [0, 213_567]


pools = st.integers(1, 5).flatmap(
    lambda nodes: st.tuples(
        st.lists(st.integers(1, 8), min_size=nodes, max_size=nodes),
        st.lists(
            st.dictionaries(st.integers(1, 4), st.integers(1, 9), max_size=4),
            min_size=nodes, max_size=nodes,
        ),
        st.lists(st.integers(1, 5), min_size=4, max_size=4),
    )
)  # fmt: skip


class TestRates:
    @given(pools)
    def test_are_max_min_fair_for_placement(
        self, drawn: tuple[list[int], list[dict[int, int]], list[int]]
    ) -> None:
        """On each node, no tenant could take GPU-time from one that has more per weight."""
        sizes, asked, raw = drawn
        nodes = dict(enumerate(sizes, start=1))
        demand = dict(enumerate(asked, start=1))
        weights = dict(enumerate(raw, start=1))
        small = placement_rates(nodes, demand, {}, weights).small
        totals: Counter[int] = Counter()
        for node, rates in small.items():
            assert sum(rates.values()) <= nodes[node] * UNIT
            assert sum(rates.values()) >= (
                min(nodes[node], sum(demand[node].values())) * UNIT - len(rates)
            )
            for tenant, units in rates.items():
                assert 0 <= units <= demand[node][tenant] * UNIT
                totals[tenant] += units
        for node, rates in small.items():
            for poor, units in rates.items():
                for rich in rates:
                    if units < demand[node][poor] * UNIT and rates[rich] > UNIT // 100:
                        level = totals[poor] / weights[poor]
                        assert totals[rich] / weights[rich] <= level * 1.02 + UNIT / 100

    def test_spanning_job_fits_capacity_of_each_node(self) -> None:
        rates = placement_rates(
            {1: 4, 2: 4}, {1: {2: 4, 4: 4}, 2: {3: 2}}, {9: SpanningJob(1, {1: 4, 2: 4})},
            {1: 1, 2: 1, 3: 1, 4: 1},
        )  # fmt: skip
        for node in (1, 2):
            assert rates.spanning[9] // 2 + sum(rates.small[node].values()) <= 4 * UNIT


class TestPasses:
    @given(st.integers(1, 10**7), st.lists(st.integers(1, 10**12), max_size=30))
    def test_are_exact_for_any_division_of_service(self, rate: int, served: list[int]) -> None:
        """The pass is exact, whether service is added in few or many steps."""
        one = Pass(7, 0, rate)
        for gpu_us in served:
            one.served_gpu_us += gpu_us
        assert Fraction(one.base_us * rate + one.served_gpu_us * UNIT, rate) == (
            7 + Fraction(sum(served) * UNIT, rate)
        )
        assert one.value == float(7 + Fraction(sum(served) * UNIT, rate))

    @given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 10**12))
    def test_continue_after_rate_change(self, rate: int, other: int, served: int) -> None:
        one = Pass(0, served, rate)
        before = one.value
        one.set_rate(other)
        assert before - 1 <= one.value <= before


class TestUsableQuota:
    """A tenant has jobs of several sizes, and the large ones do not fit every type."""

    @given(
        sizes=st.permutations([4, 6, 9]),
        gangs=st.lists(st.integers(1, 9), min_size=1, max_size=5),
        seed=st.integers(0, 10**6),
    )
    def test_matches_hall_condition(self, sizes: list[int], gangs: list[int], seed: int) -> None:
        """A holding is usable if no set of its types exceeds the GPUs requested for those types."""
        profile = Profile(1, 1, (("k80", 1000), ("p100", 2000), ("v100", 4000)))
        cluster = pool_of(
            {name: [size] for name, size in zip(TYPES, sizes, strict=True)}, [profile]
        )
        jobs = jobs_of(*((1, 1, gang) for gang in gangs), profile={1: 1})
        (row,) = quanta(cluster, dict.fromkeys(((1, name) for name in TYPES), 3), jobs, 1)
        types = GpuTypes(row.snapshot.nodes, row.snapshot.profiles)
        asked = [(job.gpus, set(types.usable(job))) for job in row.snapshot.jobs]
        asked = [one for one in asked if len(one[1]) > 1]  # the other jobs are pinned to one type
        traders = traders_of(row.snapshot, types)
        assert bool(traders) == bool(asked)
        rng = random.Random(seed)  # noqa: S311 - drawn holdings, not a secret
        for trader in traders.values():
            assert trader.can_use(trader.quota)
            for _ in range(20):
                has = {name: rng.randint(0, 9) for name in trader.speeds}
                groups = [g for n in range(4) for g in combinations(trader.speeds, n)]
                fits = all(
                    sum(has[name] for name in group)
                    <= sum(gpus for gpus, usable in asked if usable & set(group))
                    for group in groups
                )
                assert trader.can_use({k: v * GPU_MICRO for k, v in has.items()}) == fits


class TestNodesByLoad:
    @example([(5, 16), (3, 16)], [(0, 1, 16)])
    @given(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 16)), min_size=1, max_size=30),
        st.lists(st.tuples(st.integers(0, 29), st.integers(0, 5), st.integers(0, 16))),
    )
    def test_stay_sorted_while_jobs_move(
        self, nodes: list[tuple[int, int]], changes: list[tuple[int, int, int]]
    ) -> None:
        """After any changes, the order equals that of a new sort of all nodes."""
        load = {node: row[0] / 3 for node, row in enumerate(nodes)}
        asked = {node: row[1] for node, row in enumerate(nodes)}
        gpus = dict.fromkeys(load, 8)
        order = LoadOrder(load, asked, gpus)
        for at, tickets, count in [(0, nodes[0][0], nodes[0][1]), *changes]:
            node = at % len(nodes)
            load[node], asked[node] = tickets / 3, count
            order.changed(node)
            assert order.least() == min(load, key=lambda node: (load[node], node))
            shared = [node for node in load if asked[node] > gpus[node]]
            shared.sort(key=lambda node: (-load[node], node))
            assert order.most_shared() == shared[:TRIED]
