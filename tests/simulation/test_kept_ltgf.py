"""LTGF on kept queues decides in every round what it decides from a whole snapshot."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from msgspec.structs import replace as with_fields

from evenshare_core.domain.cluster import Node
from evenshare_core.policies.base import decide_round
from evenshare_core.simulation.resting import Resting
from evenshare_core.simulation.workloads import Cluster, SimJob, quotas_by_demand, synthetic
from evenshare_core.simulation.world import Rules, World
from evenshare_core.units import SECOND_US

MINUTE_US = 60 * SECOND_US


def drawn(seed: int) -> tuple[Cluster, tuple[SimJob, ...], Rules]:
    """A pool that is overloaded for hours, with gangs that span nodes and some that never fit."""
    rng = random.Random(seed)  # noqa: S311 - a seeded workload, not a secret
    types = ("k80", "v100")[: 1 + seed % 2]
    nodes = tuple(
        Node(index, rng.choice(types), rng.choice((4, 8)))
        for index in range(1, 4 + rng.randrange(4))
    )
    known = {node.gpu_type for node in nodes}
    work = synthetic(seed=seed, jobs=200, tenants=4, hours=1, failed=0.1, cancelled=0.1)
    jobs = []
    for job in work.jobs:
        accepted = rng.choice(((), (), tuple(sorted(known)), (rng.choice(sorted(known)),), ("t4",)))
        gpus = rng.choice((job.gpus, job.gpus, job.gpus, 8, 12, 60))
        weight = rng.choice((1, 1, 3))
        duration_us = min(job.duration_us, 40 * MINUTE_US)
        jobs.append(
            replace(job, gpus=gpus, gpu_types=accepted, weight=weight, duration_us=duration_us)
        )
    quotas = tuple(
        with_fields(row, gpus=rng.randrange(row.gpus + 2))
        for row in quotas_by_demand(tuple(jobs), nodes)
    )
    rules = Rules(
        round_us=rng.choice((20, 60)) * SECOND_US, lease_us=rng.choice((2, 7)) * MINUTE_US,
        cold_us=rng.choice((0, 20 * SECOND_US)), checkpoint_us=rng.choice((0, SECOND_US)),
    )  # fmt: skip
    return Cluster(nodes, quotas), tuple(jobs), rules


def state(world: World) -> tuple[object, ...]:
    """All that the next round depends on, but for the sums."""
    return (
        world.number, world.leases, world.prices, world.memory, world.queue, world.held,
        world.own_held, [free.free for free in world.free.values()], world.changes,
    )  # fmt: skip


class TestKeptQueues:
    @pytest.mark.parametrize("seed", range(11))
    def test_decide_what_a_snapshot_of_everything_decides(self, seed: int) -> None:
        cluster, jobs, rules = drawn(seed)
        asked, kept = World(cluster, jobs, rules), World(cluster, jobs, rules)
        resting = Resting(kept, asks=True)
        assert Resting.suits(kept)
        seen = {"kept": 0, "remembered": 0, "held back": 0}
        for step in range(400):
            at_us = step * rules.round_us
            asked.advance(at_us)
            kept.advance(at_us)
            if asked.is_quiet:
                assert kept.is_quiet
                continue
            asked.apply(decide_round(asked.snapshot()))
            if resting.round() is None:
                kept.apply(decide_round(kept.snapshot()))
            else:
                seen["kept"] += 1
            assert state(kept) == state(asked)
            seen["remembered"] += bool(kept.memory)
            seen["held back"] += "reserved" in kept.memory
            if step % 45 == 44:  # often enough to see the sums, seldom enough that they lag
                resting.give_back()
                assert kept.service == asked.service
        assert all(seen.values()), seen
        assert kept.books.sha256() == asked.books.sha256()
