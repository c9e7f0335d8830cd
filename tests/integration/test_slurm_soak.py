"""Run a pool on a real Slurm cluster for minutes with random faults, for `make soak`.

EVENSHARE_SOAK_MINUTES sets the duration (10), EVENSHARE_SOAK_SEED the faults. Without a seed they
differ in each run; the output of a failed run contains the seed.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from django.db.models import Max

from portal.demo.slurm.cluster import SlurmError
from portal.demo.slurm.processes import processes
from scheduling.engine.clock import read_clock
from scheduling.models import Intent, Job, LeaseSlot, Node, Pool, PoolFence
from scheduling.services.jobs import cancel_job
from scheduling.services.nodes import drain_node, resume_node
from tenants.audit import Actor
from tenants.models import User
from tests.integration.local_world import processes_below
from tests.integration.slurm_rounds import SlurmRounds, ended_events, slurm_rounds
from tests.integration.test_slurm_rounds import (
    OF_A_ROUND,
    POLICIES,
    active,
    assert_books_and_rounds,
    assert_ended_once,
)
from tests.integration.tree import processes_of
from tests.slurm import own_slurm
from tests.tools import eventually

MINUTES = float(os.environ.get("EVENSHARE_SOAK_MINUTES", "10"))
SEED = int(os.environ.get("EVENSHARE_SOAK_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
MOST_ACTIVE = 14
# The faults between two rounds, and their relative frequency.
WEIGHTS = {
    "submit": 30, "cancel": 6, "drain": 4, "resume": 6, "drain_in_slurm": 3, "resume_in_slurm": 5,
    "kill_worker": 4, "kill_controller": 1, "change_policy": 2, "nothing": 40,
}  # fmt: skip
# The maximum number of drained nodes, so that most of the cluster keeps working.
MOST_DRAINED = 2
STATE_SAVED_S = 8.0


@dataclass
class Soak:
    """A pool and the actions on it so far; `codes` has each job's expected exit code by id."""

    world: SlurmRounds
    actor: Actor
    chance: random.Random
    codes: dict[int, int] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    drained_in_slurm: set[str] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)

    @property
    def pool(self) -> Pool:
        return self.world.lab.pool

    def step(self) -> None:
        """Do a random action, and run the due round."""
        (what,) = self.chance.choices([*WEIGHTS], [*WEIGHTS.values()])
        if getattr(self, what)() is not False:
            self.done[what] += 1
            if what != "nothing":
                print(f"{time.monotonic():.1f}", what, flush=True)
        self.world.turn()

    def nothing(self) -> None:
        """Change nothing while jobs run."""

    def submit(self) -> bool:
        if self.pool.jobs.filter(state__in=Job.ACTIVE_STATES).count() >= MOST_ACTIVE:
            return False
        gpus = self.chance.choice((1, 1, 1, 2, 2, 3, 4, 4, 6, 8))
        types = self.chance.choice(([], [], ["a100"], ["v100"], ["a100", "v100"]))
        code = self.chance.choice((0, 0, 0, 3))
        steps = self.chance.choice((5, 20, 60, 200))
        job = self.world.submit(self.chance.choice("abc"), gpus, steps, code, types)
        self.codes[job.pk] = code
        return True

    def cancel(self) -> bool:
        jobs = [*self.pool.jobs.filter(state__in=Job.ACTIVE_STATES).order_by("id")]
        if not jobs:
            return False
        job = self.chance.choice(jobs)
        cancel_job(job=job, now=read_clock(self.pool.pk))
        self.cancelled.add(job.pk)
        return True

    def drain(self) -> bool:
        names = self._nodes(state="up")
        if len(names) <= len(self.world.slurm.nodes) - MOST_DRAINED:
            return False
        name = self.chance.choice(names)
        return drain_node(actor=self.actor, pool=self.pool, name=name, reason="soak")

    def resume(self) -> bool:
        names = self._nodes(state="drained")
        if not names:
            return False
        return resume_node(actor=self.actor, pool=self.pool, name=self.chance.choice(names))

    def drain_in_slurm(self) -> bool:
        """Drain a node as an administrator would, but never one that the portal drained."""
        names = sorted(set(self._nodes(state="up")) - self.drained_in_slurm)
        if self.drained_in_slurm or not names:
            return False
        name = self.chance.choice(names)
        self._update(name, "State=DRAIN", "Reason=disk")
        self.drained_in_slurm.add(name)
        return True

    def resume_in_slurm(self) -> bool:
        for name in self.drained_in_slurm:
            # Slurm refuses this if a killed controller has forgotten the drain.
            with contextlib.suppress(SlurmError):
                self._update(name, "State=RESUME")
            if not self.world.slurm.node_states()[name].startswith("drain"):
                self.drained_in_slurm.remove(name)
                return True
        return False

    def kill_worker(self) -> bool:
        """Kill a worker at a point if this round reaches the point."""
        return self.world.turn_that_is_killed(self.chance.choice(OF_A_ROUND))

    def kill_controller(self) -> bool:
        """Kill the controller after it saved its state. Jobs that it forgets are lost later."""
        saved = self.world.slurm.conf.parent / "state/job_state"
        before = saved.stat().st_mtime_ns if saved.exists() else 0
        deadline = time.monotonic() + STATE_SAVED_S
        while not saved.exists() or saved.stat().st_mtime_ns == before:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        self.world.slurm.kill_controller()
        for _ in range(self.chance.randint(1, 5)):
            self.world.turn()
        self.world.slurm.start_controller()
        return True

    def change_policy(self) -> None:
        Pool.objects.filter(pk=self.pool.pk).update(policy=self.chance.choice(POLICIES))

    def finish(self) -> None:
        """Undo all drains, and wait for the end of all jobs."""
        while self.resume():
            pass
        eventually(lambda: self.resume_in_slurm() or not self.drained_in_slurm)
        eventually(lambda: self.world.turn() and not active(self.world))
        eventually(lambda: self.world.turn() and not self.world.in_slurm())
        # The last ends are charged only after a later check of the pool.
        last = self.pool.leases.aggregate(at=Max("ended_at"))["at"]
        fence = PoolFence.objects.filter(pool=self.pool, last_checked_at__gt=last)
        eventually(lambda: self.world.turn() and fence.exists())
        self.world.turn()

    def assert_all_is_well(self) -> None:
        for job in self.pool.jobs.order_by("id"):
            if job.pk in self.cancelled and job.state == Job.State.CANCELLED:
                assert not {"failed", "finished"} & set(ended_events(job)), job
            else:
                assert_ended_once(job, self.codes[job.pk])
            # A job that was stopped at once has not printed its first line.
            said = self.world.root / str(job.pk) / "starts"
            leases = [lease for lease, _ in self.world.starts(job)] if said.exists() else []
            assert len(leases) == len(set(leases)), f"{job} was started twice by a lease"
        assert not LeaseSlot.objects.filter(holding=True).exists()
        assert not Intent.objects.filter(state="open").exists()
        assert not processes_below(self.world.root)
        assert_books_and_rounds(self.pool)

    def _nodes(self, **fields: str) -> list[str]:
        rows = Node.objects.filter(pool=self.pool, **fields).order_by("name")
        return list(rows.values_list("name", flat=True))

    def _update(self, name: str, *changes: str) -> None:
        self.world.slurm.run("scontrol", "update", f"NodeName={name}", *changes)


@pytest.mark.soak
@pytest.mark.usefixtures("committed_db")
def test_random_faults_lose_nothing_and_charge_nothing_twice(tmp_path: Path) -> None:
    print(f"EVENSHARE_SOAK_SEED={SEED}", flush=True)
    operator = User.objects.create(username="otto", site_role=User.SiteRole.OPERATOR)
    with (
        own_slurm(tmp_path / "slurm") as slurm,
        slurm_rounds(tmp_path / "jobs", slurm) as world,
    ):
        soak = Soak(world, Actor(operator), random.Random(SEED))  # noqa: S311 - any mishaps, the same again
        until = time.monotonic() + MINUTES * 60
        while time.monotonic() < until:
            soak.step()
        soak.finish()
        soak.assert_all_is_well()
        print(len(soak.codes), "jobs", dict(soak.done), flush=True)
    assert processes(slurm.conf) == set()
    assert processes_of(tmp_path) == {}
