"""Test workloads from files and seeds, and the histories of nodes."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evenshare_core.domain.cluster import Node
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.trace_reads import BadLine, HeaderError, LeftOut
from evenshare_core.simulation.workload_files import workload_csv
from evenshare_core.simulation.workloads import (
    NodeChange,
    SimJob,
    Workload,
    make_nodes,
    read_churn,
    read_workload,
    synthetic,
)
from evenshare_core.units import HOUR_US, SECOND_US

DATA = Path(__file__).resolve().parents[2] / "data"
MINUTE_US = 60 * SECOND_US


def again(workload: Workload) -> Workload:
    return read_workload(trace_lines(io.BytesIO(workload_csv(workload).encode()))[1])


def chronus(chosen: str) -> Workload:
    with (DATA / "chronus_slice.csv").open("rb") as file:
        return read_workload(trace_lines(file, chosen=chosen)[1])


class TestChronus:
    def test_reads_chosen_set_with_times_in_minutes(self) -> None:
        workload = chronus("SLO")
        assert len(workload.jobs) == 16
        assert not workload.bad
        first = next(job for job in workload.jobs if job.name == "chronus-0")
        assert (first.gpus, first.model, first.job_class) == (4, "resnet101", "strict_slo")
        assert first.submitted_us == 12_198 * MINUTE_US
        assert first.duration_us == 211 * MINUTE_US
        assert first.deadline_us == (12_198 + 282) * MINUTE_US

    def test_recognizes_best_effort_jobs_by_class(self) -> None:
        # In the file, best-effort jobs have a deadline too, which is the minute of their
        # submission.
        classes = {job.name: job.job_class for job in chronus("MIX1").jobs}
        assert classes["chronus-2"] == "best_effort"
        assert set(classes.values()) == {"best_effort", "strict_slo"}

    def test_reads_values_of_soft_deadline(self) -> None:
        job = next(job for job in chronus("MIX2").jobs if job.name == "chronus-0")
        after = [
            ((until_us - job.submitted_us) // MINUTE_US, value) for until_us, value in job.values
        ]
        assert after == [(159, 10), (189, 8), (229, 5), (289, 2)]
        assert job.job_class == "soft_slo"
        assert job.deadline_us == job.values[0][0]

    def test_skips_job_without_gpus(self) -> None:
        with (DATA / "chronus_slice.csv").open("rb") as file:
            lines = list(trace_lines(file, chosen="SLO")[1])
        assert sum(isinstance(line, LeftOut) for line in lines) == 1

    def test_requires_set_only_for_files_with_sets(self) -> None:
        with pytest.raises(HeaderError, match="choose one with --set"):
            chronus("")
        with pytest.raises(HeaderError, match="no column for sets"):
            trace_lines(io.BytesIO(b"tenant,gpus,submit_s,duration_s\n"), chosen="SLO")

    @pytest.mark.parametrize(
        ("deadlines", "values", "field"),
        [("20-10", "2-1", "deadline_s"), ("10-20", "2", "values"), ("10-20", "1-2", "values"),
         ("10", "0", "values"), ("x", "1", "deadline_s")],
    )  # fmt: skip
    def test_reports_field_of_invalid_deadline(
        self, deadlines: str, values: str, field: str
    ) -> None:
        text = f"tenant,gpus,submit_s,duration_s,deadline_s,values\na,1,0,1,{deadlines},{values}\n"
        (line,) = trace_lines(io.BytesIO(text.encode()))[1]
        assert isinstance(line, BadLine)
        assert line.field == field


class TestLostValue:
    SOFT = SimJob(1, 1, 1, 0, 1, deadline_us=10, values=((10, 10), (20, 8), (30, 2)))

    @pytest.mark.parametrize(
        ("end_us", "lost"), [(10, 0), (11, 0.2), (20, 0.2), (30, 0.8), (31, 1), (None, 1)]
    )
    def test_grows_after_soft_deadline(self, end_us: int | None, lost: float) -> None:
        assert self.SOFT.value_lost(end_us) == pytest.approx(lost)

    def test_is_all_or_nothing_for_strict_deadline(self) -> None:
        strict = replace(self.SOFT, values=())
        assert [strict.value_lost(end_us) for end_us in (10, 11)] == [0, 1]

    def test_is_zero_without_deadline(self) -> None:
        assert SimJob(1, 1, 1, 0, 1).value_lost(None) == 0


class TestWorkloadFile:
    @pytest.mark.parametrize("chosen", ["SLO", "MIX1", "MIX2"])
    def test_round_trips_deadlines_and_values(self, chosen: str) -> None:
        workload = chronus(chosen)
        assert again(workload) == replace(workload, remarks=())

    def test_round_trips_failures_cancellations_and_models(self) -> None:
        workload = synthetic(
            seed=3, jobs=300, tenants=12, hours=4, failed=0.2, cancelled=0.2, models=("a", "b c")
        )
        assert {job.failed for job in workload.jobs} == {True, False}
        assert {job.cancel_us is None for job in workload.jobs} == {True, False}
        assert {job.model for job in workload.jobs} == {"a", "b c"}
        assert again(workload) == workload

    def test_round_trips_other_fields(self) -> None:
        job = SimJob(
            1, 1, 4, 1_500_000, 2_000_001, ("k80", "v100"), 3, 1_250_000, estimate_us=7 * SECOND_US,
            name="odd, name", cpus=12, memory_mb=65_536,
        )  # fmt: skip
        workload = Workload((job,), {1: "a"})
        assert again(workload) == workload


class TestSynthetic:
    def test_draws_same_jobs_with_and_without_models(self) -> None:
        plain = synthetic(seed=1, jobs=50, tenants=3, hours=2)
        modelled = synthetic(seed=1, jobs=50, tenants=3, hours=2, models="abcdefgh")
        assert tuple(replace(job, model="") for job in modelled.jobs) == plain.jobs
        for tenant in plain.tenants:
            assert 1 < len({job.model for job in modelled.jobs if job.tenant == tenant}) <= 3


class TestChurn:
    NODES = make_nodes({"gpu": 42}, 8)

    def history(self, begin: datetime | None = None) -> tuple[NodeChange, ...]:
        with (DATA / "philly_nodes_slice.csv").open() as file:
            return read_churn(file, self.NODES, 1, begin=begin)

    def up(self, changes: tuple[NodeChange, ...], at_us: int) -> int:
        gpus = {node.id: node.gpus for node in self.NODES}
        gpus |= {change.node: change.gpus for change in changes if change.at_us <= at_us}
        return sum(count > 0 for count in gpus.values())

    def test_follows_file_including_gaps(self) -> None:
        changes = self.history()
        assert self.up(changes, 0) == 42 * 313 // 420
        # From 14:00 on, the file has no line for ten hours. Then an outage lasts until 18:06.
        assert self.up(changes, HOUR_US) == 42 * 317 // 420
        assert self.up(changes, 21 * HOUR_US // 2 - 1) == 42 * 317 // 420
        assert self.up(changes, 21 * HOUR_US // 2) == 0
        assert self.up(changes, 57 * HOUR_US // 2 + 6 * MINUTE_US) == 42 * 248 // 420

    def test_can_start_in_middle_of_history(self) -> None:
        changes = self.history(datetime(2017, 10, 26, 18, 6, tzinfo=UTC))
        assert self.up(changes, 0) == 42 * 248 // 420
        assert len({change.node for change in changes if change.at_us == 0}) == 42 - 24
        assert self.up(changes, 6 * HOUR_US - 6 * MINUTE_US) == 42 * 307 // 420

    def test_restores_last_lost_node_first(self) -> None:
        text = ["time,active,total", "0,3,3", "1,2,3", "2,1,3", "3,2,3"]
        nodes = (Node(1, "gpu", 8), Node(2, "gpu", 8), Node(3, "gpu", 8))
        changes = read_churn(text, nodes, 5)
        assert [change.gpus for change in changes] == [0, 0, 8]
        assert changes[1].node == changes[2].node != changes[0].node

    @pytest.mark.parametrize(
        ("lines", "says"),
        [
            (["when,active,total"], "columns time, active and total"),
            (["time,active,total", "soon,1,2"], "line 2"),
            (["time,active,total", "0,3,2"], "line 2: 3 of 2 nodes"),
            (["time,active,total", "0,0,0"], "line 2: 0 of 0 nodes"),
            (["time,active,total", "1,1,2", "3,1,2", "2,1,2"], "line 4: its time is before"),
            (["time,active,total", "0,1"], "line 2"),
        ],
    )
    def test_error_names_invalid_line(self, lines: list[str], says: str) -> None:
        with pytest.raises(ValueError, match=says):
            read_churn(lines, self.NODES, 1)
