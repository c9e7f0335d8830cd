"""Test how many starts the p50 and p90 of start estimates cover in seeded histories.

The promise: p90 covers 85 %, and p50 covers half, within a twentieth.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.money.fixed_point import largest_remainder
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.workloads import (
    Cluster,
    SimJob,
    make_nodes,
    noisy_estimates,
    quotas_by_demand,
    read_partitions,
    read_workload,
    synthetic,
)
from evenshare_core.units import HOUR_US, MINUTE_US, SECOND_US
from portal.demo.data import DATA
from tests.simulation.start_replay import Replay

PROMISED, NEAR = 0.85, 0.06
LEASE_US = 15 * MINUTE_US
# The share in the history in which a new job makes a forecast wrong; see `TestNewcomer`.
COUNTEREXAMPLE = 0.8
MADE = 60  # the share is not reliable with fewer estimates


@cache
def philly() -> tuple[Cluster, tuple[SimJob, ...]]:
    """Return the demo's slice of Philly with its nodes and quotas, without estimates."""
    with (DATA / "philly_2017-10-20.csv.gz").open("rb") as file:
        workload = read_workload(list(trace_lines(file)[1]))
    nodes = make_nodes({"gpu": 60}, 8)
    with (DATA / "philly_vc_nodes.csv").open(encoding="utf-8") as lines:
        parts = read_partitions(lines)
    ids = {name: tenant for tenant, name in workload.tenants.items()}
    names = sorted(set(parts) & set(ids), key=lambda name: ids[name])
    gpus = largest_remainder(480, [parts[name] for name in names])
    quotas = [Entitlement(ids[name], "gpu", count) for name, count in zip(names, gpus, strict=True)]
    jobs = tuple(replace(job, estimate_us=None) for job in workload.jobs)
    return Cluster(nodes, tuple(quotas)), jobs


def drawn(seed: int, *, estimates: float | None = None) -> tuple[Cluster, tuple[SimJob, ...]]:
    """Return three days of log-normal durations on 32 GPUs; `estimates`: their error, if any."""
    work = synthetic(seed=seed, jobs=900, tenants=4, hours=72)
    nodes = make_nodes({"v100": 4}, 8)
    if estimates is None:
        jobs = tuple(replace(job, estimate_us=None) for job in work.jobs)
    else:
        jobs = noisy_estimates(work.jobs, seed, estimates)
    return Cluster(nodes, quotas_by_demand(jobs, nodes)), jobs


def played(policy: str, seed: int, estimates: float | None) -> Replay:
    """Run three days of a synthetic history, with estimates every two hours."""
    cluster, jobs = drawn(seed, estimates=estimates)
    replay = Replay(cluster, jobs, Rules(policy, round_us=MINUTE_US, lease_us=LEASE_US))
    replay.play(every_us=2 * HOUR_US, until_us=72 * HOUR_US)
    return replay


def bursts(seed: int) -> tuple[Cluster, tuple[SimJob, ...]]:
    """Return two days with bursts of 40 jobs within 20 minutes, every six hours."""
    rng = Random(seed)  # noqa: S311 - draws of a test
    rows = []
    for number in range(8 * 40):
        at_us = number // 40 * 6 * HOUR_US + rng.randrange(20 * MINUTE_US)
        tenant, gpus = 1 + rng.randrange(3), rng.choice((1, 1, 2, 4))
        work_us = int(rng.lognormvariate(7.5, 1.0) * SECOND_US)
        rows.append((at_us, tenant, gpus, work_us))
    jobs = tuple(
        SimJob(number, tenant, gpus, at_us, work_us)
        for number, (at_us, tenant, gpus, work_us) in enumerate(sorted(rows), start=1)
    )
    nodes = make_nodes({"v100": 2}, 8)
    return Cluster(nodes, quotas_by_demand(jobs, nodes)), jobs


def shares(name: str, *replays: Replay) -> dict[str, float]:
    """Return the shares of starts up to p50 and p90, and print them for the document."""
    found: dict[str, float] = {}
    for level in ("p50", "p90"):
        counts = sum((replay.covered(level) for replay in replays), Counter[str]())
        assert counts["all"] >= MADE
        found |= {f"{word} {level}": counts[word] / counts["all"] for word in ("by", "before")}
        print(f"{name}: {counts['all']} whose {level} passed", end="; ")
    print(", ".join(f"{share:.3f} {what}" for what, share in found.items()))
    return found


def check(found: dict[str, float]) -> None:
    """Check the promise. If many starts are exactly at p50, half lies between two shares."""
    assert found["by p90"] >= PROMISED
    assert found["by p50"] >= 0.5 - NEAR
    assert found["before p50"] <= 0.5 + NEAR


class TestStartCoverage:
    def test_covers_demo_trace(self) -> None:
        cluster, jobs = philly()
        replay = Replay(cluster, jobs, Rules("ltgf", round_us=5 * MINUTE_US, lease_us=LEASE_US))
        replay.play(every_us=3 * HOUR_US, until_us=36 * HOUR_US)
        check(shares("philly, ltgf", replay))

    @pytest.mark.parametrize(
        ("policy", "seed", "estimates"),
        [
            ("fifo", 2, None),
            pytest.param("ltgf", 1, None, marks=pytest.mark.soak),
            pytest.param("fifo", 2, 0.8, marks=pytest.mark.soak),
        ],
        ids=["fifo", "ltgf", "fifo-with-wrong-estimates"],
    )
    def test_covers_synthetic_workload(
        self, policy: str, seed: int, estimates: float | None
    ) -> None:
        check(shares(f"synthetic, {policy}", played(policy, seed, estimates)))

    def test_covers_bursts(self) -> None:
        cluster, jobs = bursts(1)
        replay = Replay(cluster, jobs, Rules("fifo", round_us=MINUTE_US, lease_us=LEASE_US))
        replay.play(every_us=HOUR_US, until_us=48 * HOUR_US)
        check(shares("bursts, fifo", replay))

    @pytest.mark.soak
    def test_covers_several_histories_under_sjf(self) -> None:
        replays = [played("sjf", seed, 0.8) for seed in (1, 2, 3)]
        found = shares("synthetic, sjf, three histories", *replays)
        assert found["by p90"] >= PROMISED


class TestNewcomer:
    """The counterexample: under SJF without backfill, one unpredictable gang.

    It needs half of the pool and has a short estimate, so it is first as soon as it arrives. All
    jobs wait until enough GPUs are free together. The past day had no such gang, so no run draws
    one. All estimates of that forecast are too early at once.
    """

    AT_H = 50

    @pytest.mark.soak
    def test_lowers_coverage_just_below_promise(self) -> None:
        found = shares("synthetic, sjf, the counterexample", played("sjf", 2, 0.8))
        assert COUNTEREXAMPLE <= found["by p90"] < PROMISED

    def test_is_only_cause_of_missed_estimates(self) -> None:
        cluster, jobs = drawn(2, estimates=0.8)
        at_us = self.AT_H * HOUR_US
        gang = next(job for job in jobs if job.submitted_us > at_us and job.gpus == 16)
        assert gang.submitted_us < at_us + 2 * HOUR_US
        assert gang.estimate_us is not None
        assert gang.estimate_us < HOUR_US / 4
        past = [job for job in jobs if at_us - 24 * HOUR_US < job.submitted_us <= at_us]
        assert max(job.gpus for job in past) == 8
        count, by_p90 = self.foretold(cluster, jobs)
        assert by_p90 < 0.2 * count
        others = tuple(job for job in jobs if job.id != gang.id)
        again, by_p90 = self.foretold(cluster, others)
        assert again == count
        assert by_p90 >= PROMISED * count

    def foretold(self, cluster: Cluster, jobs: tuple[SimJob, ...]) -> tuple[int, int]:
        """Return the outcome of the forecast made before the gang's arrival."""
        replay = Replay(cluster, jobs, Rules("sjf", round_us=MINUTE_US, lease_us=LEASE_US))
        replay.play(every_us=self.AT_H * HOUR_US, until_us=72 * HOUR_US)
        counts = replay.covered("p90")
        return counts["all"], counts["by"]
