"""Test deadlines in snapshots and rounds, from traces, and in exported pools."""

from __future__ import annotations

import csv
import gzip
import io
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, transaction

from evenshare_core.deadlines.rewards import soft_deadlines
from evenshare_core.domain.deadlines import Deadline, DeadlineClass, DeadlineStep
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.workloads import read_workload
from evenshare_core.units import HOUR_US, REWARD_MICRO
from scheduling.engine.feeder import feed
from scheduling.engine.rounds import RoundOutcome
from scheduling.engine.snapshots import next_number, read_snapshot
from scheduling.models import Job, PoolClock, TraceFeed
from scheduling.selectors.jobs.past_work import past_jobs
from scheduling.services.pool_export import export_pool
from tenants.scopes import site_scope
from tests.factories import BEGIN, Cluster, cluster

HOUR = timedelta(hours=1)
STEPS = [["100", "100"], ["150", "12.5"]]
BEGIN_US = to_us(BEGIN)
HEADER = "name,tenant,gpus,submit_s,duration_s,deadline_s,values\n"
LINES = (
    "firm,north,1,0,60,3600,7",
    "soft,south,1,30,60,600-660-720-900,100-80-50-20",
    "odd,south,1,30,60,700-1000,3-1",
    "free,north,1,60,60,,",
)


@pytest.fixture
def lab(committed_db: str) -> Cluster:
    assert committed_db
    pool = cluster({"north": 4, "south": 4})
    PoolClock.objects.update(paused=True, anchor_pool=BEGIN)
    return pool


def seen(lab: Cluster) -> Snapshot:
    return read_snapshot(lab.pool.pk, number=next_number(lab.pool.pk), at=lab.at)


def strict(lab: Cluster, **more: Any) -> Job:
    fields = {"job_class": "strict_slo", "deadline_at": BEGIN + HOUR, **more}
    return lab.submit("north", 1, 600, **fields)


class TestSnapshot:
    def test_has_steps_of_jobs_with_deadlines_only(self, lab: Cluster) -> None:
        lab.submit("south", 1, 600)
        hard = strict(lab)
        soft = strict(lab, job_class="soft_slo")
        own = strict(lab, job_class="soft_slo", deadline_steps=STEPS)
        snapshot = seen(lab)
        end_us = BEGIN_US + HOUR_US
        assert snapshot.deadlines == (
            Deadline(hard.pk, DeadlineClass.STRICT, (DeadlineStep(end_us, 100 * REWARD_MICRO),)),
            Deadline(
                soft.pk,
                DeadlineClass.SOFT,
                tuple(DeadlineStep(*row) for row in soft_deadlines(BEGIN_US, end_us)),
            ),
            Deadline(
                own.pk,
                DeadlineClass.SOFT,
                (
                    DeadlineStep(end_us, 100 * REWARD_MICRO),
                    DeadlineStep(end_us + HOUR_US // 2, 25 * REWARD_MICRO // 2),
                ),
            ),
        )
        assert [job.deadline_us for job in snapshot.jobs] == [None, end_us, end_us, end_us]
        assert snapshot.schema == 8
        assert decode(canonical_bytes(snapshot), Snapshot) == snapshot
        assert lab.round().outcome is RoundOutcome.COMMITTED

    def test_keeps_its_bytes_without_deadlines(self, lab: Cluster) -> None:
        lab.submit("south", 1, 600, estimate_s=60, iterations=5)
        snapshot = seen(lab)
        assert (snapshot.schema, snapshot.deadlines) == (2, ())
        cells = json.loads(canonical_bytes(snapshot))
        fields = Snapshot.__struct_fields__
        assert len(cells) == len(fields) - len(Snapshot.newest)
        assert cells[fields.index("schema")] == 2

    def test_keeps_past_deadline(self, lab: Cluster) -> None:
        job = strict(lab)
        lab.at = BEGIN + 2 * HOUR
        assert [row.id for row in seen(lab).deadlines] == [job.pk]


class TestJobRow:
    @pytest.mark.parametrize(
        ("name", "fields"),
        [
            ("job_deadline_of_its_class", {"deadline_at": BEGIN}),
            ("job_deadline_of_its_class", {"job_class": "strict_slo"}),
            ("job_deadline_of_its_class", {"job_class": "prompt", "deadline_at": BEGIN}),
            ("job_steps_of_a_soft_deadline", {"deadline_steps": STEPS}),
            ("job_iterations_at_least_1", {"iterations": 0}),
            ("job_metric_whole_and_capped", {"stop_metric": "loss"}),
            ("job_metric_whole_and_capped",
             {"stop_metric": "loss", "stop_rule": "at_most", "stop_value": 1}),
        ],
    )  # fmt: skip
    def test_database_rejects_incomplete_deadline(
        self, lab: Cluster, name: str, fields: dict[str, Any]
    ) -> None:
        with pytest.raises(IntegrityError, match=name), transaction.atomic():
            lab.submit("north", 1, 60, **fields)


def deadlines_of(job: Job) -> tuple[str, timedelta | None, object]:
    length = None if job.deadline_at is None else job.deadline_at - job.submitted_at
    return job.job_class, length, job.deadline_steps


def check_lines(lab: Cluster) -> None:
    """Check the jobs of `LINES`, which were submitted in one of several ways."""
    jobs = {job.name.partition("-")[0]: job for job in Job.objects.filter(pool=lab.pool)}
    assert deadlines_of(jobs["firm"]) == ("strict_slo", HOUR, None)
    soft = [["100", "100"], ["110", "80"], ["120", "50"], ["150", "20"]]
    assert deadlines_of(jobs["soft"]) == ("soft_slo", timedelta(seconds=600), soft)
    # Not a whole percentage, so it is stored as exact times.
    job_class, length, steps = deadlines_of(jobs["odd"])
    assert (job_class, length) == ("soft_slo", timedelta(seconds=700))
    assert steps == [["100", "100"], ["142.857142857143", "33.333333"]]
    assert deadlines_of(jobs["free"]) == ("best_effort", None, None)
    with site_scope():
        values = {job.id: job.values for job in past_jobs(lab.pool.pk, {}).jobs}
    at_us = to_us(jobs["odd"].submitted_at)
    assert values[jobs["odd"].pk] == (
        (at_us + 700 * REWARD_MICRO, 100 * REWARD_MICRO),
        (at_us + 1000 * REWARD_MICRO, 33_333_333),
    )


class TestTrace:
    def run(self, lab: Cluster, folder: Path, *words: str) -> None:
        path = folder / "trace.csv"
        path.write_text(HEADER + "".join(f"{line}\n" for line in LINES), encoding="utf-8")
        streams: dict[str, Any] = {"stdout": io.StringIO(), "stderr": io.StringIO()}
        call_command("import_trace", str(path), "--pool", lab.pool.name, *words, **streams)

    def test_backlog_imports_deadlines(self, lab: Cluster, tmp_path: Path) -> None:
        self.run(lab, tmp_path)
        check_lines(lab)
        assert lab.round().outcome is RoundOutcome.COMMITTED

    def test_replay_imports_deadlines_at_submission_times(
        self, lab: Cluster, tmp_path: Path
    ) -> None:
        self.run(lab, tmp_path, "--as", "replay")
        feed(lab.pool.pk, until=BEGIN + HOUR)
        check_lines(lab)
        submitted: list[datetime] = list(
            Job.objects.order_by("id").values_list("submitted_at", flat=True)
        )
        assert submitted[1] == BEGIN + timedelta(seconds=30)

    def test_bundled_trace_imports_deadlines(
        self, lab: Cluster, tmp_path: Path, settings: Any
    ) -> None:
        settings.BUNDLED_TRACES = tmp_path
        with gzip.open(tmp_path / "dated_1h.csv.gz", "wt") as file:
            file.write("trace_id,tenant,submit_s,duration_s,gpus,estimate_s,deadline_s,values\n")
            file.write("1,x,5,600,1,550,700-1000,3-1\n2,x,6,600,1,,,\n")
        type(lab.tenants["north"]).objects.filter(slug="north").update(slug="vc-x")
        TraceFeed.objects.create(pool=lab.pool, trace="dated_1h", started_at=BEGIN, length_s=3600)
        feed(lab.pool.pk, until=BEGIN + timedelta(minutes=1))
        first, second = Job.objects.order_by("id")
        assert deadlines_of(first)[:2] == ("soft_slo", timedelta(seconds=700))
        assert (first.estimate_s, first.estimate_source) == (550, "trace")
        assert deadlines_of(second) == ("best_effort", None, None)
        assert second.estimate_s is None
        # While more than `max_pending` jobs wait, the trace is held back; held jobs do not count.
        TraceFeed.objects.update(max_pending=1)
        Job.objects.filter(pk=first.pk).update(holds=["sweep"])
        feed(lab.pool.pk, until=BEGIN + timedelta(minutes=2))
        assert TraceFeed.objects.get().held_back == 0
        Job.objects.update(holds=[])
        feed(lab.pool.pk, until=BEGIN + timedelta(minutes=2))
        assert TraceFeed.objects.get().held_back == 1


class TestExportedPool:
    def test_contains_deadlines(self, lab: Cluster) -> None:
        strict(lab)
        strict(lab, job_class="soft_slo", deadline_steps=[["100", "90"], ["150", "45"]])
        lab.submit("south", 1, 60)
        lab.round()
        pool = export_pool(lab.pool.name)
        rows = list(csv.DictReader(io.StringIO(pool.files["jobs.csv"])))
        assert [(row["deadline_s"], row["values"]) for row in rows] == [
            ("3600", "100"), ("3600-5400", "90-45"), ("", ""),
        ]  # fmt: skip
        # Only the ratios of a trace's values matter.
        assert any(
            "fewer than 100 points" in remark and ": 1." in remark for remark in pool.remarks
        )

    def test_has_no_deadline_before_a_late_release(self, lab: Cluster) -> None:
        steps = [["100", "90"], ["150", "45"], ["300", "9"]]
        strict(lab, job_class="soft_slo", deadline_steps=steps, eligible_at=BEGIN + 2 * HOUR)
        pool = export_pool(lab.pool.name)
        (row,) = csv.DictReader(io.StringIO(pool.files["jobs.csv"]))
        assert row["deadline_s"] == "0.000001-0.000002-3600"
        (line,) = read_workload(trace_lines(io.BytesIO(pool.files["jobs.csv"].encode()))[1]).jobs
        assert [points for _, points in line.values] == [90, 45, 9]

    def test_leaves_out_jobs_cancelled_while_held(self, lab: Cluster) -> None:
        lab.submit("south", 1, 60)
        lab.submit("south", 1, 60, state="cancelled", ended_at=BEGIN + HOUR, holds=["sweep"])
        with site_scope():
            assert [job.id for job in past_jobs(lab.pool.pk, {}).jobs] == [
                Job.objects.get(state="pending").pk
            ]
