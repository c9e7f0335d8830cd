"""Test real jobs on a real Slurm, round by round: shared, moved, lost, found, charged once."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections

from billing.checks import run_checks
from billing.models import UsageLine
from scheduling.engine.executors.slurm import commands
from scheduling.models import Intent, Job, Lease, LeaseEvent, LeaseSlot, Pool
from scheduling.selectors.rounds.replay import find_rounds, replay_stored_round
from tenants.faults import POINTS, arm_faults
from tests.integration.injected import CUT_OFF, InjectedError, cut_database, fail, once
from tests.integration.slurm_rounds import SlurmRounds, ended_events, slurm_rounds
from tests.slurm import declare_down, kill_node, own_slurm
from tests.tools import eventually

pytestmark = pytest.mark.usefixtures("committed_db")

POLICIES = ("ltgf", "evenshare", "oef")
HOWS = ("cut", "kill", "exception")
# Each of two tenants owns all GPUs of one type.
OWNERS = {"a100": "a", "v100": "b"}
# The number of jobs in each test; the first job borrows another tenant's GPUs.
JOBS = 9
# Points close to an executor call; the other points do not depend on Slurm.
CONCERNED = [
    point
    for point in POINTS
    if point.startswith(("round.after_commit", "dispatch.", "reconcile.", "observe.", "cancel."))
]
OF_A_ROUND = [point for point in POINTS if point.startswith("round.") or point in CONCERNED]
# The steps of a job that its test stops before it ends.
ENDLESS = 60_000
# The number of jobs to cancel. They wait in the queue, so that one of them runs at each point.
STOCK = 4


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SlurmRounds]:
    with (
        own_slurm(tmp_path / "slurm") as slurm,
        slurm_rounds(tmp_path / "jobs", slurm) as made,
    ):
        yield made


def active(world: SlurmRounds) -> bool:
    return world.lab.pool.jobs.filter(state__in=Job.ACTIVE_STATES).exists()


def runs(job: Job) -> bool:
    return job.leases.filter(state="running").exists()


def assert_ended_once(job: Job, code: int) -> None:
    """Check that a job ended once, by its program, and that its leases did not overlap."""
    job.refresh_from_db()
    assert (job.state, job.exit_code) == ("failed" if code else "succeeded", code)
    *before, last = ended_events(job)
    assert last == ("failed" if code else "finished")
    assert not {"failed", "finished"} & set(before)
    leases = list(Lease.objects.filter(job=job, started_at__isnull=False).order_by("number"))
    for earlier, later in itertools.pairwise(leases):
        assert earlier.ended_at is not None
        assert later.started_at is not None
        assert earlier.ended_at <= later.started_at


def story(lease: Lease) -> list[object]:
    """Return a lease's history, for the message of a failed test."""
    events = LeaseEvent.objects.filter(lease=lease).order_by("number")
    return [lease, *events.values_list("number", "kind", "round", "at", "term", "data")]


def assert_books_and_rounds(pool: Pool) -> None:
    """Check that each held GPU-second is on one usage line, and that every round replays."""
    for lease in Lease.objects.filter(pool=pool, started_at__isnull=False):
        assert lease.started_at is not None
        assert lease.ended_at is not None
        held = (lease.ended_at - lease.started_at) * lease.gpus
        lines = UsageLine.objects.filter(lease=lease)
        used = [(line.ends_at - line.starts_at) * line.gpus for line in lines]
        assert sum(used, start=held - held) == held, story(lease)
    assert [check.name for check in run_checks() if check.violations] == []
    replays = [replay_stored_round(row) for row in find_rounds(pool.name, [], every=True)]
    assert replays
    assert all(one.same and one.certified for one in replays)


class TestJobsOfThreeTenants:
    """Each policy runs with its own fault: a killed worker, a lost node, or a killed controller."""

    @pytest.mark.parametrize("policy", POLICIES)
    def test_end_once_and_are_charged_once(self, policy: str, world: SlurmRounds) -> None:
        chance = random.Random(17)  # noqa: S311 - any jobs, the same each time
        wanted: dict[int, tuple[Job, int]] = {}
        Pool.objects.update(policy=policy, options={})
        # This tenant borrows all GPUs of another tenant for longer than a lease.
        self.submit(world, wanted, "c", 8, 90)
        eventually(lambda: world.turn() and self.runs(world))
        while len(wanted) < JOBS:
            gpus = chance.choice((1, 1, 2, 3, 4, 6, 8))
            self.submit(world, wanted, chance.choice("abc"), gpus, chance.randint(5, 20))
        world.turn()
        self.disturb(world, policy)
        eventually(lambda: world.turn() and not active(world))
        for job, code in wanted.values():
            assert_ended_once(job, code)
        eventually(lambda: not world.in_slurm())
        assert not LeaseSlot.objects.filter(holding=True).exists()
        assert not Intent.objects.filter(state="open").exists()
        world.turn()
        assert_books_and_rounds(world.lab.pool)

    def submit(
        self, world: SlurmRounds, wanted: dict[int, tuple[Job, int]], tenant: str, *what: int
    ) -> None:
        gpus, steps = what
        code = 3 if len(wanted) % 3 == 2 else 0
        job = world.submit(tenant, gpus, steps, code)
        wanted[job.pk] = (job, code)

    def runs(self, world: SlurmRounds) -> bool:
        return world.lab.pool.leases.filter(state="running").exists()

    def disturb(self, world: SlurmRounds, policy: str) -> None:
        """Cause the fault that belongs to the policy."""
        if policy == "ltgf":
            eventually(lambda: world.turn_that_is_killed("dispatch.after_call"))
        elif policy == "evenshare":
            lost = self.busy_node(world)
            kill_node(world.slurm, lost)
            declare_down(world.slurm, lost)
            eventually(lambda: world.turn() and self.lost(world))
            world.slurm.start_daemon(lost)
        else:
            lost_before = self.lost(world)
            # Wait until the controller saves its state; another test covers unsaved state.
            saved = world.slurm.conf.parent / "state/job_state"
            before = saved.stat().st_mtime_ns if saved.exists() else 0
            eventually(lambda: saved.exists() and saved.stat().st_mtime_ns > before)
            world.slurm.kill_controller()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(commands, "CALL_S", 1.0)  # the timeout of each Slurm call
                for _ in range(3):
                    world.turn()
            assert self.lost(world) == lost_before
            world.slurm.start_controller()

    def busy_node(self, world: SlurmRounds) -> str:
        def busy() -> str:
            world.turn()
            running = LeaseSlot.objects.filter(holding=True, lease__state="running")
            return str(running.values_list("node__name", flat=True).first() or "")

        return eventually(busy)

    def lost(self, world: SlurmRounds) -> int:
        return world.lab.pool.leases.filter(state="ended", end_reason="lost").count()


class TestBorrower:
    def test_yields_to_owner_and_resumes_on_other_nodes(self, world: SlurmRounds) -> None:
        job = world.submit("c", 4, ENDLESS, gpu_types=list(OWNERS))
        eventually(lambda: world.turn() and runs(job))
        held = job.leases.get().gpu_type.name
        owner = world.submit(OWNERS[held], 8, ENDLESS, gpu_types=[held])
        eventually(lambda: world.turn() and runs(owner))
        eventually(lambda: world.turn() and len(world.starts(job)) > 1)
        for one in (job, owner):
            world.end(one)
        eventually(lambda: world.turn() and not active(world))
        assert_ended_once(job, 0)
        assert_ended_once(owner, 0)
        first, *_, last = world.starts(job)
        assert first == (1, 0)
        assert last[1] > 0
        assert not set(nodes_of(job, 1)) & set(nodes_of(job, last[0]))
        world.turn()
        assert_books_and_rounds(world.lab.pool)


def nodes_of(job: Job, number: int) -> list[str]:
    slots = LeaseSlot.objects.filter(lease__job=job, lease__number=number)
    return list(slots.values_list("node__name", flat=True))


class TestEveryFaultPoint:
    """While jobs run, a round fails at each point in turn, by an error, a lost database, or a kill.

    tests/integration/test_fault_matrix.py combines each point with each of these faults.
    """

    def test_loses_nothing_and_starts_nothing_twice(self, world: SlurmRounds) -> None:
        short: list[Job] = []
        doomed = [world.submit("a", 1, 6000) for _ in range(STOCK)]
        for point, how in zip(CONCERNED, itertools.cycle(HOWS), strict=False):
            oldest = doomed[-STOCK]
            eventually(lambda: world.turn() and runs(oldest))  # noqa: B023 - called at once
            # A launch, a cancellation and its stop are needed to reach every point.
            short.append(world.submit("b", 1, 2))
            Job.objects.filter(pk=oldest.pk).update(cancel_asked_at=world.lab.at)
            doomed.append(world.submit("a", 1, 6000))
            self.fail_at(world, point, how)
        left = doomed[-STOCK:]
        eventually(lambda: world.turn() and all(map(runs, left)))
        Job.objects.filter(pk__in=[job.pk for job in left]).update(cancel_asked_at=world.lab.at)
        eventually(lambda: world.turn() and not active(world))
        for job in short:
            assert_ended_once(job, 0)
            assert world.starts(job) == [(1, 0)]
        assert {job.state for job in Job.objects.filter(pk__in=[j.pk for j in doomed])} == {
            "cancelled"
        }
        assert not Intent.objects.filter(state="open").exists()
        eventually(lambda: not world.in_slurm())
        world.turn()
        assert_books_and_rounds(world.lab.pool)

    def fail_at(self, world: SlurmRounds, point: str, how: str) -> None:
        if how == "kill":
            eventually(lambda: world.turn_that_is_killed(point))
            return
        hook, reached = once(point, fail if how == "exception" else cut_database)

        def failed() -> bool:
            with arm_faults(hook), contextlib.suppress(InjectedError, *CUT_OFF):
                world.turn()
            return bool(reached)

        eventually(failed)
        connections.close_all()
        world.take_over()
