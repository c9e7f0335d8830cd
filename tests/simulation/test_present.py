"""Test that a state that starts from a snapshot continues like the original run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import pytest

from evenshare_core.domain.entitlements import Tenant
from evenshare_core.domain.snapshot import ChangeKind, Service, Snapshot
from evenshare_core.domain.values import canonical_bytes
from evenshare_core.policies.registry import POLICIES
from evenshare_core.simulation.outlook import go_on, look_ahead
from evenshare_core.simulation.present import PresentState, Start, Work
from evenshare_core.simulation.simulator import SimulationResult, run
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, make_nodes, quotas_by_demand, synthetic
from evenshare_core.units import HOUR_US, SECOND_US
from tests.tiers import SITE_POLICIES

pytestmark = pytest.mark.usefixtures("quick_plans")

WORK = synthetic(seed=12, jobs=50, tenants=4, hours=1, failed=0.0)
NODES = make_nodes({"v100": 3}, 8)
CLUSTER = Cluster(NODES, quotas_by_demand(WORK.jobs, NODES))
STEP_US = 30 * SECOND_US
FOR_EVER_US = 400 * HOUR_US
# Policies that skip rounds; the other policies decide every round anyway.
FORWARDED = sorted(name for name, policy in POLICIES.items() if policy.session({}) is not None)


def rules(policy: str, **fields: Any) -> Rules:
    return Rules(policy, round_us=STEP_US, lease_us=10 * STEP_US, **fields)


def played(
    cluster: Cluster, rules: Rules, until_us: int | None = None
) -> tuple[SimulationState, SimulationResult]:
    state = SimulationState(cluster, WORK.jobs, rules)
    result = SimulationResult(state.books, 0, 0)
    run(state, result, until_us=until_us, fast_forward=False)
    return state, result


def start_of(state: SimulationState, at_us: int) -> Start:
    """Return the snapshot of the round at `at_us`, with the true work of its jobs."""
    state.advance(at_us)
    told = state.snapshot()
    work = {}
    for job, one in state.runs.items():
        done_us = one.done_us
        lease = state.leases.get(one.lease)
        if lease is not None:
            held_us = at_us - lease.started_us - one.overhead_us
            done_us += max(0, held_us) * one.speed_milli // 1000
        past = [row for row in state.books.leases if row.job == job]
        work[job] = Work(
            one.job.duration_us - done_us,
            one.done_us,
            sum(row.end_us - row.start_us for row in past),
            one.leases - bool(one.lease),
            one.started_us,
            one.overhead_us,
        )
    return Start(told, work)


def asked(start: Start) -> SimulationResult:
    """Run the same hours with a snapshot and a decision in every round."""
    state = PresentState(start)
    result = SimulationResult(state.books, 0, 0)
    run(state, result, until_us=FOR_EVER_US - 1, fast_forward=False)
    return result


def leases(result: SimulationResult, after_us: int) -> list[tuple[Any, ...]]:
    """Return leases that end after an instant, without their numbers."""
    return sorted(
        (row.job, row.number, row.start_us, row.end_us, row.placement, row.reason)
        for row in result.books.leases
        if row.end_us > after_us
    )


# The snapshot comes after all arrivals, because it does not contain later ones.
MIDDLE_US = -(-max(job.submitted_us for job in WORK.jobs) // STEP_US) * STEP_US


@cache
def middle(policy: str) -> Start:
    """Return the middle of a run of the policy, cached because tests do not change it."""
    state, _ = played(CLUSTER, rules(policy), MIDDLE_US - 1)
    return start_of(state, MIDDLE_US)


class TestResumedRun:
    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_leases_match_uninterrupted_run(self, policy: str) -> None:
        _, whole = played(CLUSTER, rules(policy))
        start = middle(policy)
        assert len(start.snapshot.leases) > 3
        assert len(start.snapshot.jobs) > len(start.snapshot.leases), "somebody waits"
        result = go_on(PresentState(start), until_us=FOR_EVER_US)
        assert len(leases(whole, MIDDLE_US)) > 20
        assert leases(result, MIDDLE_US) == leases(whole, MIDDLE_US)
        assert not result.stranded

    def test_leases_match_with_speeds_and_cold_starts(self) -> None:
        cluster = replace(CLUSTER, speeds={"v100": 1700})
        own = rules("ltgf", cold_us=20 * SECOND_US)
        _, whole = played(cluster, own)
        state, _ = played(cluster, own, MIDDLE_US - 1)
        start = start_of(state, MIDDLE_US)

        class Fast(Start):
            cluster = property(lambda _: replace(cluster, profiles={}))

        result = go_on(PresentState(Fast(start.snapshot, start.work), own), until_us=FOR_EVER_US)
        assert leases(result, MIDDLE_US) == leases(whole, MIDDLE_US)

    def test_later_terms_have_same_charges(self) -> None:
        """This holds for this seed. A later term of an older lease may differ by a micro-credit.

        The snapshot does not have the remainders of earlier terms.
        """
        _, whole = played(CLUSTER, rules("ltgf"))
        result = go_on(PresentState(middle("ltgf")), until_us=FOR_EVER_US)

        def terms(of: SimulationResult) -> list[tuple[Any, ...]]:
            jobs = {row.lease: (row.job, row.number) for row in of.books.leases}
            return sorted(
                (*jobs[row.lease], *row[1:]) for row in of.books.terms if row.starts_us > MIDDLE_US
            )

        assert terms(result) == terms(whole)
        assert sum(row[-1] for row in terms(result)) > 0

    @pytest.mark.parametrize("policy", FORWARDED)
    def test_fast_forward_keeps_books(self, policy: str) -> None:
        start = middle(policy)
        found = go_on(PresentState(start), until_us=FOR_EVER_US)
        assert found.books.sha256() == asked(start).books.sha256()

    @pytest.mark.parametrize("policy", FORWARDED)
    def test_fast_forward_keeps_books_under_constraints(self, policy: str) -> None:
        snapshot = middle(policy).snapshot
        nodes = [node for lease in snapshot.leases for node, _ in lease.placement]
        drained = max(set(nodes), key=nodes.count)
        limited = msgspec.structs.replace(
            snapshot,
            tenants=tuple(Tenant(one.id, 400_000 * one.id) for one in snapshot.tenants),
            nodes=tuple(
                msgspec.structs.replace(node, gpus=0) if node.id == drained else node
                for node in snapshot.nodes
            ),
            leases=tuple(
                msgspec.structs.replace(lease, protected_until_us=lease.expires_us + 7 * STEP_US)
                if lease.id % 2
                else lease
                for lease in snapshot.leases
            ),
        )
        start = Start(limited, middle(policy).work)
        found, slow = go_on(PresentState(start), until_us=FOR_EVER_US), asked(start)
        assert found.books.sha256() == slow.books.sha256()
        assert found.rounds == slow.rounds
        assert "drained" in {row.reason for row in slow.books.leases}


class TestPresentState:
    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_returns_same_snapshot_at_start(self, policy: str) -> None:
        start = middle(policy)
        there = PresentState(start)
        assert canonical_bytes(there.snapshot()) == canonical_bytes(start.snapshot)
        go_on(there, until_us=start.snapshot.at_us)
        assert canonical_bytes(there.snapshot()) == canonical_bytes(start.snapshot)
        assert there.books.leases == []

    def test_other_policy_starts_without_memory(self) -> None:
        start = middle("ltgf")
        remembers = msgspec.structs.replace(start.snapshot, memory={"something": 1})
        kept = PresentState(Start(remembers, start.work))
        assert kept.memory == {"something": 1}
        other = PresentState(Start(remembers, start.work), rules("fifo"))
        assert other.memory == {}
        assert other.snapshot().service == start.snapshot.service


class TestGrantedLeaseBeforeStart:
    @pytest.mark.parametrize("policy", sorted(SITE_POLICIES))
    def test_starts_at_once(self, policy: str) -> None:
        """A live snapshot counts no GPUs for the job, neither in the sums nor in the changes."""
        start = middle(policy)
        late = {lease.job for lease in start.snapshot.leases[::2]}
        waiting: Snapshot = msgspec.structs.replace(
            start.snapshot,
            changes=tuple(
                change
                for change in start.snapshot.changes
                if not (change.kind is ChangeKind.HOLD and change.job in late)
            ),
            service=unheld(start.snapshot.service, late),
        )
        result = go_on(PresentState(Start(waiting, start.work)), until_us=FOR_EVER_US)
        assert not result.stranded
        assert late <= {row.job for row in result.books.leases}
        gpus = {lease.job: lease.gpus for lease in start.snapshot.leases}
        changes = PresentState(Start(waiting, start.work)).changes
        assert {
            change.job: change.gpus
            for change in changes
            if change.kind is ChangeKind.HOLD and change.at_us == start.snapshot.at_us
        } == {job: gpus[job] for job in late}


def unheld(service: Service, jobs: set[int]) -> Service:
    """Return sums in which these jobs hold no GPUs."""
    held = Counter[tuple[int, str]]()
    for row in service.jobs:
        if row.job in jobs:
            held[row.tenant, row.gpu_type] += row.held
    return msgspec.structs.replace(
        service,
        jobs=tuple(
            msgspec.structs.replace(row, held=0) if row.job in jobs else row for row in service.jobs
        ),
        claims=tuple(
            msgspec.structs.replace(row, held=row.held - held[row.tenant, row.gpu_type])
            for row in service.claims
        ),
    )


class TestJobBeingCancelled:
    def test_is_ignored(self) -> None:
        start = middle("ltgf")
        gone = start.snapshot.leases[0].job
        left: Snapshot = msgspec.structs.replace(
            start.snapshot,
            jobs=tuple(job for job in start.snapshot.jobs if job.id != gone),
            leases=start.snapshot.leases[1:],
        )
        result = go_on(PresentState(Start(left, start.work)), until_us=FOR_EVER_US)
        assert not result.stranded
        assert gone not in {row.job for row in result.books.leases}


@pytest.fixture(scope="module")
def start() -> Start:
    return middle("ltgf")


class TestOutlook:
    def test_counts_finished_running_and_waiting_jobs(self, start: Start) -> None:
        until_us = MIDDLE_US + HOUR_US
        row = look_ahead(start, start.rules, until_us=until_us).row
        assert row["jobs"] == len(start.snapshot.jobs)
        assert row["jobs"] == row["finished"] + row["running"] + row["waiting"]
        assert row["finished"] > 3
        assert row["running"] > 0

    def test_unfinished_job_counts_until_end(self, start: Start) -> None:
        """A longer forecast only raises the averages, because no job is left out."""
        rows = [
            look_ahead(start, start.rules, until_us=MIDDLE_US + hours * HOUR_US).row
            for hours in (1, 2, 4)
        ]
        jct = [row["avg_jct_s"] for row in rows]
        assert jct == sorted(jct)
        waits = [row["avg_queue_s"] for row in rows]
        assert waits == sorted(waits)

    @pytest.mark.parametrize("hours", [1, 3, 400])
    def test_averages_match_uninterrupted_run(self, start: Start, hours: int) -> None:
        _, whole = played(CLUSTER, rules("ltgf"))
        until_us = MIDDLE_US + hours * HOUR_US
        row = look_ahead(start, start.rules, until_us=until_us).row
        ends = {one.job: min(one.end_us, until_us) for one in whole.books.jobs}
        jobs = {job.id: job for job in WORK.jobs if job.id in start.work}
        held = dict.fromkeys(jobs, 0)
        for lease in whole.books.leases:
            if lease.job in jobs:
                held[lease.job] += max(0, min(lease.end_us, until_us) - lease.start_us)
        jct = {job: ends[job] - one.submitted_us for job, one in jobs.items()}
        queue = [jct[job] - held[job] for job in jobs]
        slowdown = [jct[job] / one.duration_us for job, one in jobs.items()]
        assert row["avg_jct_s"] * SECOND_US == pytest.approx(sum(jct.values()) / len(jobs))
        assert row["avg_queue_s"] * SECOND_US == pytest.approx(sum(queue) / len(jobs))
        assert row["avg_slowdown"] == pytest.approx(sum(slowdown) / len(jobs))
        assert (row["finished"] == row["jobs"]) is (hours == 400)

    def test_course_sums_to_held_gpu_time(self, start: Start) -> None:
        until_us = MIDDLE_US + HOUR_US
        told = look_ahead(start, start.rules, until_us=until_us)
        held = sum(point["gpus"] for point in told.course) / len(told.course)
        assert held == pytest.approx(told.row["gpu_utilisation"] * CLUSTER.capacity)
        assert told.course[-1]["finished"] == told.row["finished"]

    def test_job_without_gpu_time_counts_as_sharing_loss(self, start: Start) -> None:
        """In six minutes in a strict queue, waiting jobs get none of the GPU-time they deserve."""
        until_us = MIDDLE_US + HOUR_US // 10
        fifo = look_ahead(start, rules("fifo"), until_us=until_us).row
        assert fifo["waiting"] > 0
        assert fifo["sharing_loss_jobs"] > 0

    def test_is_deterministic_and_reports_progress(self, start: Start) -> None:
        until_us = MIDDLE_US + HOUR_US
        instants: list[int] = []
        first = look_ahead(start, start.rules, until_us=until_us, progress=instants.append)
        again = look_ahead(start, start.rules, until_us=until_us)
        assert first.row == again.row
        assert instants == sorted(instants)
        assert MIDDLE_US <= instants[0] < instants[-1] < until_us

    def test_empty_pool_has_no_averages(self, start: Start) -> None:
        empty = msgspec.structs.replace(start.snapshot, jobs=(), leases=())
        told = look_ahead(Start(empty, {}), start.rules, until_us=MIDDLE_US + HOUR_US)
        assert told.row["avg_jct_s"] is None
        assert told.row["sharing_loss_jobs"] is None
        assert told.row["jobs"] == 0
        assert told.tenants == []
