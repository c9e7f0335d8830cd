"""Rounds of gandiva_fair beyond the paper: types, idle GPUs, unexpired leases, memory."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace as replaced
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from msgspec.structs import replace

from evenshare_core.domain.decision import Swap
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import PoolPrice, Snapshot
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.gandiva_fair.options import GandivaFairOptions
from evenshare_core.policies.registry import policy
from evenshare_core.simulation.books import Books
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import NodeChange, SimJob

from .quanta import QUANTUM_US, Quantum, by_tenant, by_type, jobs_of, pool, quanta, replace_quotas

ONE_TYPE = ("v100",)


def equal(*tenants: int, types: Sequence[str] = ONE_TYPE) -> dict[tuple[int, str], int]:
    """Return the same number of tickets for each tenant and type."""
    return {(tenant, name): 1 for tenant in tenants for name in types}


class TestGpuTypes:
    def test_job_without_profile_uses_newest_type_with_share(self) -> None:
        profiles = [Profile(9, 9, (("k80", 1000), ("v100", 3000)))]
        cluster = pool({"k80": [4], "v100": [4]}, profiles)
        jobs = (*jobs_of((1, 6, 1)), *_of_profile(9, 9, first=7))
        rows = quanta(cluster, {(t, n): 2 for t in (1, 9) for n in ("k80", "v100")}, jobs, 1)
        got = by_type(rows)
        assert got == {(1, "k80"): 3, (1, "v100"): 3, (9, "v100"): 1}

    @pytest.mark.parametrize(("speed", "fast"), [(1250, 4), (5000, 8)])
    def test_profiled_jobs_share_fast_type_while_it_is_faster(self, speed: int, fast: int) -> None:
        """Section 3.4: VAE jobs use both types.

        DCGAN jobs share the V100s, and guest jobs use idle K80s.
        """
        profiles = [Profile(1, 1, (("k80", 1000), ("v100", speed)))]
        cluster = pool({"k80": [4], "v100": [4]}, profiles)
        jobs = jobs_of((1, 8, 1), profile={1: 1})
        (row,) = quanta(cluster, {(1, "k80"): 4, (1, "v100"): 4}, jobs, 1)
        homes = {one[0]: one[4] for one in row.decision.memory["jobs"]}
        assert sum(node == 2 for node in homes.values()) == fast
        assert sum(row.gpus.values()) == 8
        guests = [grant for grant in row.decision.grants if grant.key.note == "guest"]
        assert len(guests) == fast - 4

    def test_pinned_job_stays_on_its_type(self) -> None:
        cluster = pool({"k80": [4, 4], "v100": [4]})
        jobs = jobs_of((1, 6, 2), gpu_types=("v100",))
        rows = quanta(cluster, equal(1, types=("k80", "v100")), jobs, 20)
        assert {name for _, name in by_type(rows)} == {"v100"}

    def test_skips_type_without_profile_speed(self) -> None:
        profiles = [Profile(1, 1, (("k80", 1000),))]
        cluster = pool({"k80": [4], "v100": [4]}, profiles)
        rows = quanta(
            cluster, equal(1, types=("k80", "v100")), jobs_of((1, 8, 1), profile={1: 1}), 5
        )
        assert {name for _, name in by_type(rows)} == {"k80"}


def _of_profile(tenant: int, profile: int, first: int) -> tuple[SimJob, ...]:
    (one,) = jobs_of((tenant, 1, 1), profile={tenant: profile})
    return (SimJob(first, tenant, 1, 0, one.duration_us, profile=profile),)


class TestIdleGpus:
    def test_waiting_job_moves_to_node_with_room(self) -> None:
        """When the job on one node ends, a job that shared the other node moves there."""
        jobs = list(jobs_of((1, 4, 2)))
        leaving = SimJob(5, 2, 4, 0, 10 * QUANTUM_US)
        rows = quanta(pool({"v100": [4, 4]}), equal(1, 2), [*jobs, leaving], 14)
        assert by_tenant(rows[:10], [*jobs, leaving])[1] == pytest.approx(4)
        assert all(sum(row.gpus.values()) == 8 for row in rows[10:])

    def test_no_gpu_is_idle_while_a_fitting_job_waits(self) -> None:
        jobs = jobs_of((1, 3, 3), (2, 3, 2), (3, 6, 1))
        for row in quanta(pool({"v100": [4, 4, 8]}), equal(1, 2, 3), jobs, 60):
            free = {node.id: node.gpus for node in row.snapshot.nodes}
            ended = {end.lease for end in row.decision.ends}
            places = [lease.placement for lease in row.snapshot.leases if lease.id not in ended]
            for place in [*places, *(grant.placement for grant in row.decision.grants)]:
                for node, gpus in place:
                    free[node] -= gpus
            waits = [job for job in jobs if job.id not in row.gpus]
            assert all(job.gpus > max(free.values()) for job in waits)

    def test_packs_small_jobs(self) -> None:
        """Four small jobs go to one node, so that the other node is free for a gang."""
        jobs = jobs_of((1, 4, 1), (2, 1, 4))
        rows = quanta(pool({"v100": [4, 4]}), equal(1, 2), jobs, 3)
        assert all(sum(row.gpus.values()) == 8 for row in rows)

    def test_small_jobs_share_node_before_gang_arrives(self) -> None:
        (row,) = quanta(pool({"v100": [4, 4]}), equal(1, 2), jobs_of((1, 2, 1), (2, 2, 1)), 1)
        assert {grant.placement for grant in row.decision.grants} == {((1, 1),)}


class TestContinuingLeases:
    def test_renews_job_on_same_gpus(self) -> None:
        rows = quanta(pool({"v100": [4]}), equal(1), jobs_of((1, 4, 1)), 10)
        assert sum(len(row.decision.grants) for row in rows) == 4
        assert all(len(row.decision.renewals) == 4 for row in rows[1:])

    def test_blocked_gang_gets_its_node(self) -> None:
        """Small leases end one by one, at each third of a quantum, but the gang still starts."""
        small = [
            SimJob(index, 1, 1, index * QUANTUM_US // 3, 1000 * QUANTUM_US) for index in range(1, 7)
        ]
        gang = SimJob(7, 2, 4, 3 * QUANTUM_US, 1000 * QUANTUM_US)
        rows = quanta(
            pool({"v100": [4]}), equal(1, 2), [*small, gang], 120, round_us=QUANTUM_US // 3
        )
        first = next(index for index, row in enumerate(rows) if 7 in row.gpus)
        assert first * QUANTUM_US // 3 <= 3 * QUANTUM_US + 3 * QUANTUM_US
        kept = [skip for row in rows for skip in row.decision.skips
                if skip.reason is Reason.RESERVED_FOR_GANG]  # fmt: skip
        assert kept
        assert by_tenant(rows[first:], [*small, gang])[2] == pytest.approx(2, rel=0.1)

    def test_protected_leases_are_left_unchanged(self) -> None:
        jobs = jobs_of((1, 2, 4))
        (_, row) = quanta(pool({"v100": [4]}), equal(1), jobs, 2)
        lease = replace(row.snapshot.leases[0], protected_until_us=10**15)
        decision = decide_round(replace(row.snapshot, leases=(lease,)))
        assert not decision.grants
        assert not decision.ends

    def test_terms_end_with_quantum_within_pool_bounds(self) -> None:
        jobs = jobs_of((1, 2, 4))
        (row,) = quanta(pool({"v100": [4]}), equal(1), jobs, 1)
        bounds = (QUANTUM_US // 6, 10 * QUANTUM_US)
        snapshot = replace(row.snapshot, lease_us=5 * QUANTUM_US, lease_bounds_us=bounds)
        for after_us, lasts_us in (
            (0, QUANTUM_US), (QUANTUM_US // 2, QUANTUM_US // 2),
            (QUANTUM_US - 1, QUANTUM_US + 1),
        ):  # fmt: skip
            later = replace(snapshot, at_us=after_us)
            assert [length.lease_us for length in decide_round(later).lengths] == [lasts_us]


class TestJobBlockedByPriceLimit:
    def test_does_not_catch_up_missed_turns(self) -> None:
        """The job must borrow 2 of 4 GPUs. For 20 quanta its maximum price is too low."""

        def change(snapshot: Snapshot) -> Snapshot:
            pays = snapshot.at_us >= 20 * QUANTUM_US
            jobs = tuple(replace(job, max_price_micro=None if pays else 1) for job in snapshot.jobs)
            return replace(snapshot, jobs=jobs, prices=(PoolPrice("v100", 5, 0, 4, 5, 2000),))

        jobs = jobs_of((1, 2, 1), (2, 1, 4))
        rows = quanta(
            pool({"v100": [4]}), {(1, "v100"): 2, (2, "v100"): 2}, jobs, 40, change=change
        )
        assert by_tenant(rows[:20], jobs) == pytest.approx({1: 2, 2: 0})
        skips = [skip for skip in rows[5].decision.skips if 3 in skip.jobs]
        assert [skip.reason for skip in skips] == [Reason.PRICE_ABOVE_MAX]
        turns = [3 in row.gpus for row in rows[20:]]
        assert sum(turns) in (6, 7)  # 4 / 3 GPUs, as much as the other tenant's two jobs together
        assert not any(both == (True, True) for both in pairwise(turns))


class TestTradesAndDepartures:
    def test_new_trades_begin_one_quantum_after_undo(self) -> None:
        speeds = {1: 1250, 2: 5000, 3: 6250}
        profiles = [Profile(t, t, (("k80", 1000), ("v100", v))) for t, v in speeds.items()]
        cluster = pool({"k80": [4] * 15, "v100": [4] * 3}, profiles)
        jobs = jobs_of((1, 60, 1), (2, 60, 1), (3, 60, 1), profile={1: 1, 2: 2, 3: 3}, ends={1: 6})
        tickets = {(t, name): gpus for t in speeds for name, gpus in (("k80", 20), ("v100", 4))}
        rows = quanta(cluster, tickets, jobs, 8)
        rates = [[trade.rate_micro for trade in row.decision.trades] for row in rows]
        assert rates[6] == [-5_000_000] * 4
        assert rates[7] == [5_625_000]  # the two remaining tenants share the surplus
        assert not rows[6].decision.swaps


class TestGangTooLargeForOneType:
    """A gang of 8 can run only on K80s or P100s, since there are six V100s."""

    speeds: ClassVar[Mapping[int, tuple[int, int]]] = {1: (1190, 1250), 2: (4120, 6330)}

    def rows(self, *kinds: tuple[int, int, int], accepted: tuple[str, ...] = ()) -> list[Quantum]:
        profiles = [
            Profile(t, t, (("k80", 1000), ("p100", p), ("v100", v)))
            for t, (p, v) in self.speeds.items()
        ]
        cluster = pool({"k80": [4] * 8, "p100": [4] * 3, "v100": [2] * 3}, profiles)
        tickets = {
            (t, name): gpus
            for t in self.speeds
            for name, gpus in (("k80", 16), ("p100", 6), ("v100", 3))
        }
        jobs = [
            replaced(job, gpu_types=accepted if job.tenant == 2 else ())
            for job in jobs_of((1, 50, 1), *kinds, profile={1: 1, 2: 2})
        ]
        return quanta(cluster, tickets, jobs, 12)

    def test_tenant_still_trades(self) -> None:
        rows = self.rows((2, 1, 8), (2, 30, 1))
        trades = [trade for row in rows for trade in row.decision.trades]
        assert {(trade.buyer, trade.seller) for trade in trades} == {(2, 1)}
        assert all(trade.rate_micro > 0 for trade in trades)
        assert ("v100", 3) in bought_by(2, rows[-1])

    def test_buys_only_gpus_usable_by_small_jobs(self) -> None:
        rows = self.rows((2, 3, 8), (2, 4, 1))
        assert ("v100", 1) in bought_by(2, rows[-1])

    def test_does_not_buy_type_not_accepted_by_jobs(self) -> None:
        """The tenant's profile has a speed on V100s, but its jobs accept only two other types."""
        rows = self.rows((2, 30, 1), accepted=("k80", "p100"))
        assert {name for name, _ in bought_by(2, rows[-1])} == {"k80", "p100"}


def bought_by(tenant: int, row: Quantum) -> set[tuple[str, int]]:
    return {(swap.gpu_type, swap.gpus) for swap in row.decision.swaps if swap.tenant == tenant}


class TestMemory:
    def test_round_trips_json_and_keeps_only_active_jobs(self) -> None:
        jobs = jobs_of((1, 1, 8), (2, 2, 2), (3, 4, 1), ends={1: 4})
        rows = quanta(pool({"v100": [4, 4]}), equal(1, 2, 3), jobs, 8)
        for row in rows:
            again = decode(canonical_bytes(row.snapshot), Snapshot)
            assert canonical_bytes(decide_round(again)) == canonical_bytes(row.decision)
            known = {one[0] for one in row.decision.memory["jobs"]}
            assert known == {job.id for job in row.snapshot.jobs}
        assert rows[2].decision.memory["nodes"]
        assert not rows[-1].decision.memory["nodes"]

    def test_policy_switch_starts_without_history(self) -> None:
        """Each job with an unexpired lease keeps its node, and all passes are equal."""
        jobs = jobs_of((1, 4, 1), (2, 2, 2))
        row = quanta(pool({"v100": [4, 4]}), equal(1, 2), jobs, 5)[-1]
        fresh = decide_round(replace(row.snapshot, memory={}))
        assert len(fresh.renewals) == len(row.snapshot.leases)

    def test_trades_continue_after_quantum_grows(self) -> None:
        """The memory stores the time of the last quantum, not its number."""
        speeds = {1: 1250, 2: 5000}
        profiles = [Profile(t, t, (("k80", 1000), ("v100", v))) for t, v in speeds.items()]
        cluster = pool({"k80": [4, 4], "v100": [4]}, profiles)
        jobs = jobs_of((1, 20, 1), (2, 20, 1), profile={1: 1, 2: 2})
        tickets = {(t, n): g for t in speeds for n, g in (("k80", 4), ("v100", 2))}
        row = quanta(cluster, tickets, jobs, 40)[-1]
        first = replace(row.snapshot, memory={**row.snapshot.memory, "trades": []})
        longer = replace(first, at_us=first.at_us + 10 * QUANTUM_US, lease_us=10 * QUANTUM_US)
        assert decide_round(longer).trades

    def test_quiet_round_keeps_memory(self) -> None:
        jobs = jobs_of((1, 4, 1))
        rows = quanta(pool({"v100": [4]}), equal(1), jobs, 6, round_us=QUANTUM_US // 3)
        assert rows[1].decision.memory == rows[0].decision.memory
        assert rows[4].decision.memory == rows[3].decision.memory

    def test_jobs_move_after_node_loss(self) -> None:
        cluster = pool({"v100": [4, 4]})
        cluster = replace_quotas(cluster, ())
        lost = type(cluster)(
            cluster.nodes, (), changes=(NodeChange(3 * QUANTUM_US, 1, 0),), profiles={}
        )
        jobs = jobs_of((1, 4, 1), (2, 2, 2))
        rows = quanta(lost, equal(1, 2), jobs, 12)
        assert all(sum(row.gpus.values()) == 4 for row in rows[4:])
        assert by_tenant(rows[4:], jobs) == pytest.approx({1: 2, 2: 2}, rel=0.01)


class TestWithoutTickets:
    def test_tenant_without_quota_gets_leftovers(self) -> None:
        jobs = jobs_of((1, 3, 1), (2, 4, 1))
        rows = quanta(pool({"v100": [4]}), {(1, "v100"): 4, (2, "v100"): 0}, jobs, 40)
        assert by_tenant(rows, jobs) == pytest.approx({1: 3, 2: 1}, abs=0.1)

    def test_tenants_take_turns_if_all_lack_quota(self) -> None:
        jobs = jobs_of((1, 4, 1), (2, 4, 1))
        rows = quanta(pool({"v100": [4]}), {(1, "v100"): 0, (2, "v100"): 0}, jobs, 40)
        assert by_tenant(rows, jobs) == pytest.approx({1: 2, 2: 2})

    def test_oversized_job_has_too_large_reason(self) -> None:
        (row,) = quanta(pool({"v100": [4]}), equal(1), jobs_of((1, 1, 5)), 1)
        (skip,) = row.decision.skips
        assert skip.reason is Reason.TOO_LARGE

    def test_empty_pool_grants_nothing(self) -> None:
        (row,) = quanta(pool({"v100": [4]}), {}, (), 1)
        assert not row.decision.grants
        empty = replace(row.snapshot, nodes=())
        assert not decide_round(empty).grants


class TestSimulation:
    def test_skipping_quiet_rounds_keeps_books(self) -> None:
        jobs = [SimJob(i, 1 + i % 3, 2 ** (i % 3), i * 7 * 10**6, (5 + i % 9) * QUANTUM_US)
                for i in range(1, 30)]  # fmt: skip
        cluster = replace_quotas(pool({"v100": [4, 4, 4]}), ())
        rules = Rules("gandiva_fair", round_us=10 * 10**6, lease_us=QUANTUM_US)
        some = simulate(cluster, tuple(jobs), rules)
        every = simulate(cluster, tuple(jobs), rules, skip=False)
        assert some.books.sha256() == every.books.sha256()

    def test_reports_traits(self) -> None:
        one = policy("gandiva_fair")
        assert one.traits.trades_types
        assert not one.traits.preempts_running


class TestIdleTradedQuota:
    def test_is_lent_by_buyer(self) -> None:
        """Tenant 2 bought tenant 1's four V100s, and a third tenant borrows two of the eight."""
        quotas = (Entitlement(1, "v100", 4), Entitlement(2, "v100", 4))
        lease = Lease(1, 1, 3, "v100", ((1, 2),), 0, 100, 1, 0, 2, 10**6)
        contributed = []
        for swaps in ((), (Swap(1, "v100", -4), Swap(2, "v100", 4))):
            books = Books()
            # at 25 the quotas and swaps of time 0 are entered again, as when a node comes back
            for at_us in (0, 25):
                books.entitle(at_us, "v100", 8, {row.tenant: (row.gpus, None) for row in quotas})
                books.swap(at_us, quotas, swaps)
                if not at_us:
                    books.granted(at_us, lease)
            books.swap(50, quotas, ())
            books.ended(100, lease)
            contributed.append(books.contributed())
        assert contributed[0] == {("v100", 1): 400, ("v100", 2): 400}
        assert contributed[1] == {("v100", 1): 200, ("v100", 2): 600}


class TestDocument:
    def test_lists_every_option_and_default(self) -> None:
        path = Path(__file__).resolve().parents[2] / "docs/policies/gandiva_fair.md"
        text = path.read_text(encoding="utf-8")
        rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text, re.MULTILINE))
        defaults = msgspec.to_builtins(GandivaFairOptions())
        assert {name: json.loads(value) for name, value in rows.items()} == defaults
