"""Test baselines on small pools, and FIFO and SJF against another simulator, job by job."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.placement.consolidated import FreeGpus, find_place, fits_whole_nodes
from evenshare_core.simulation.simulator import SimulationResult, simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import Cluster, SimJob, make_nodes, read_partitions
from evenshare_core.units import SECOND_US

DATA = Path(__file__).parent.parent / "data"
FOREVER_US = 100 * 366 * 86_400 * SECOND_US


class Times(NamedTuple):
    """The start and end of a job, in seconds."""

    start_s: float
    end_s: float


def job(id_: int, gpus: int, duration_s: int, *, at_s: int = 0, **fields: Any) -> SimJob:
    duration_us = duration_s * SECOND_US
    fields = {"tenant": 1, "estimate_us": duration_us, **fields}
    return SimJob(
        id=id_, gpus=gpus, submitted_us=at_s * SECOND_US, duration_us=duration_us, **fields
    )


def run(
    policy: str, jobs: list[SimJob], quotas: dict[int, int], *, nodes: int = 1, **options: Any
) -> dict[int, Times]:
    """Run jobs on nodes of 4 GPUs with leases of 100 s, and decide at every event."""
    lease_us = options.pop("lease_us", 100 * SECOND_US)
    cluster = Cluster(
        tuple(Node(index, "v100", 4) for index in range(1, nodes + 1)),
        tuple(Entitlement(tenant, "v100", gpus) for tenant, gpus in quotas.items()),
    )
    result = simulate(cluster, tuple(jobs), Rules(policy, options, lease_us=lease_us))
    return times(result)


def times(result: SimulationResult) -> dict[int, Times]:
    return {
        row.job: Times(row.start_us / SECOND_US, row.end_us / SECOND_US)
        for row in result.books.jobs
        if row.start_us is not None
    }


class TestFifo:
    JOBS = [job(1, 3, 150), job(2, 2, 10, at_s=1), job(3, 1, 10, at_s=2)]

    def test_blocked_job_blocks_later_jobs(self) -> None:
        assert run("fifo", self.JOBS, {1: 4})[3] == Times(150, 160)

    def test_backfill_passes_blocked_job(self) -> None:
        found = run("fifo", self.JOBS, {1: 4}, backfill=True)
        assert (found[2], found[3]) == (Times(150, 160), Times(2, 12))

    def test_tenant_scope_blocks_only_same_tenant(self) -> None:
        jobs = [*self.JOBS, job(4, 1, 10, at_s=3, tenant=2)]
        assert run("fifo", jobs, {1: 2, 2: 2}, scope="tenant")[4] == Times(3, 13)
        assert run("fifo", jobs, {1: 2, 2: 2})[4] == Times(150, 160)

    def test_never_preempts(self) -> None:
        found = run("fifo", [job(1, 4, 1000), job(2, 4, 10, at_s=5)], {1: 4})
        assert found == {1: Times(0, 1000), 2: Times(1000, 1010)}

    def test_oversized_gang_does_not_block(self) -> None:
        found = run("fifo", [job(1, 99, 10), job(2, 1, 10, at_s=1)], {1: 4})
        assert found == {2: Times(1, 11)}

    def test_places_large_gang_on_whole_nodes(self) -> None:
        jobs = [job(1, 1, 50), job(2, 1, 60), job(3, 6, 10, at_s=1)]
        found = run("fifo", jobs, {1: 12}, nodes=2)
        # a whole node, and two GPUs of the node with the other jobs
        assert found[3] == Times(1, 11)
        jobs = [job(1, 3, 50), job(2, 3, 60), job(3, 2, 70), job(4, 7, 10, at_s=1)]
        assert run("fifo", jobs, {1: 12}, nodes=3)[4].start_s == 60
        assert run("fifo", jobs, {1: 12}, nodes=3, whole_nodes=False)[4].start_s == 50


class TestSjf:
    def test_runs_shortest_estimate_first_without_preemption(self) -> None:
        jobs = [job(1, 4, 100), job(2, 4, 50, at_s=1), job(3, 4, 20, at_s=2), job(4, 4, 1, at_s=99)]
        found = run("sjf", jobs, {1: 4})
        assert [found[i].start_s for i in (1, 4, 3, 2)] == [0, 100, 101, 121]

    def test_runs_jobs_without_estimate_last(self) -> None:
        jobs = [job(1, 4, 9), job(2, 4, 1, at_s=1, estimate_us=None), job(3, 4, 50, at_s=2)]
        found = run("sjf", jobs, {1: 4})
        assert [found[i].start_s for i in (3, 2)] == [9, 59]


class TestSrtf:
    def test_preempts_at_lease_end(self) -> None:
        found = run("srtf", [job(1, 4, 500), job(2, 4, 20, at_s=5)], {1: 4})
        assert found == {1: Times(0, 520), 2: Times(100, 120)}

    def test_keeps_running_job_with_less_remaining(self) -> None:
        found = run("srtf", [job(1, 4, 110), job(2, 4, 20, at_s=5)], {1: 4})
        assert found == {1: Times(0, 110), 2: Times(110, 130)}


class TestYarnCs:
    def test_does_not_lend_idle_quota(self) -> None:
        jobs = [job(1, 2, 100), job(2, 1, 10, at_s=1), job(3, 1, 10, at_s=2, tenant=2)]
        found = run("yarn_cs", jobs, {1: 2, 2: 2})
        assert (found[2], found[3]) == (Times(100, 110), Times(2, 12))

    def test_is_fifo_within_a_tenant(self) -> None:
        jobs = [job(1, 1, 100), job(2, 2, 10, at_s=1), job(3, 1, 10, at_s=2)]
        assert run("yarn_cs", jobs, {1: 2, 2: 2})[3].start_s == 110

    def test_gang_above_quota_runs_exclusively(self) -> None:
        jobs = [job(1, 1, 100), job(2, 3, 10, at_s=1), job(3, 1, 10, at_s=2)]
        found = run("yarn_cs", jobs, {1: 2, 2: 2})
        assert (found[2], found[3]) == (Times(100, 110), Times(110, 120))
        assert run("yarn_cs", jobs, {1: 2, 2: 2}, oversized=False) == {
            1: Times(0, 100),
            3: Times(2, 12),
        }


class TestWholeNodes:
    @pytest.mark.parametrize(
        ("free", "gpus", "fits"),
        [
            ({1: 8, 2: 8}, 16, True),
            ({1: 8, 2: 7, 3: 7}, 16, False),
            ({1: 8, 2: 5}, 12, True),
            ({1: 7, 2: 7}, 12, False),
            ({1: 8, 2: 3, 3: 3}, 12, False),
            ({1: 3, 2: 5}, 5, True),
        ],
    )
    def test_placement_uses_fewest_nodes(self, free: dict[int, int], gpus: int, fits: bool) -> None:
        found = find_place(FreeGpus(free, 8), gpus, whole_nodes=True)
        assert (found is not None) is fits
        assert found is None or fits_whole_nodes(found, gpus, 8)


ORACLES = [("fifo", 1, "fifo"), ("fifo", 4, "fifo_quarter"), ("sjf", 4, "sjf_quarter")]


class TestHeliosComparison:
    """Comparison with HeliosArtifact's simulator: strict order per tenant, best fit."""

    @pytest.mark.parametrize(("policy", "divisor", "column"), ORACLES)
    def test_jobs_start_and_end_at_same_second(
        self, policy: str, divisor: int, column: str
    ) -> None:
        with gzip.open(DATA / "philly_oracle_slice.csv.gz", "rt") as file:
            rows = list(csv.DictReader(file))
        with (DATA / "philly_oracle_nodes.csv").open() as file:
            partitions = read_partitions(file)
        queued = 0
        for tenant, nodes in partitions.items():
            mine = [row for row in rows if row["tenant"] == tenant]
            found = self.times_alone(mine, nodes // divisor, policy)
            for index, row in enumerate(mine, start=1):
                start_s = int(row["submit_time_s"]) + int(row[f"{column}_queue_s"])
                assert found[index] == Times(start_s, int(row[f"{column}_end_s"])), row
                queued += row[f"{column}_queue_s"] != "0"
        assert len(rows) == 715
        assert queued > 100 or divisor == 1

    def times_alone(self, rows: list[dict[str, str]], nodes: int, policy: str) -> dict[int, Times]:
        """Simulate a single tenant on its nodes with leases that never end."""
        jobs = tuple(
            job(index, int(row["gpus"]), int(row["duration_s"]), at_s=int(row["submit_time_s"]))
            for index, row in enumerate(rows, start=1)
        )
        machines = make_nodes({"v100": nodes}, 8)
        quota = (Entitlement(1, "v100", 8 * nodes),)
        return times(simulate(Cluster(machines, quota), jobs, Rules(policy, lease_us=FOREVER_US)))
