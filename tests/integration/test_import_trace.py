"""Test that traces are imported at once or at their own times, and that no valid line is lost."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scheduling.engine.rounds import RoundOutcome
from scheduling.models import Arrival, Job, PoolClock, VirtualWork
from scheduling.selectors.jobs.tenant_jobs import JobFilter, active_counts, jobs_page
from scheduling.selectors.tenants.dashboard import job_counts
from tenants.models import Tenant
from tests.factories import BEGIN, Cluster, cluster

DATA = Path(__file__).resolve().parents[1] / "data"
HEADER = "name,tenant,gpus,submit_s,duration_s\n"


@pytest.fixture
def place(committed_db: str) -> Cluster:
    assert committed_db
    town = cluster({"north": 4, "south": 4})
    # The clock is stopped at the start, so the times are predictable.
    PoolClock.objects.update(paused=True, anchor_pool=BEGIN)
    return town


def run(place: Cluster, file: Path, *words: str, status: int = 0) -> tuple[str, str]:
    """Run the command; check its status and return its two outputs."""
    out, err = io.StringIO(), io.StringIO()
    streams: dict[str, Any] = {"stdout": out, "stderr": err}
    try:
        call_command("import_trace", str(file), "--pool", place.pool.name, *words, **streams)
        came = 0
    except SystemExit as ended:
        came = int(str(ended.code))
    assert came == status, err.getvalue()
    return out.getvalue(), err.getvalue()


def written(tmp_path: Path, *lines: str, header: str = HEADER) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(header + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


class TestBacklog:
    def test_is_submitted_immediately_and_runs(self, place: Cluster, tmp_path: Path) -> None:
        run(place, written(tmp_path, "a,north,2,500,90", "b,south,1,0,30"))
        jobs = list(Job.objects.order_by("id"))
        assert [(job.name, job.gpus) for job in jobs] == [("a", 2), ("b", 1)]
        assert {job.submitted_at for job in jobs} == {BEGIN}
        assert {job.source for job in jobs} == {"trace"}
        assert place.round().outcome is RoundOutcome.COMMITTED
        place.round(after_s=100)
        assert set(Job.objects.values_list("state", flat=True)) == {Job.State.SUCCEEDED}

    def test_philly_format_creates_requested_tenants(self, place: Cluster) -> None:
        out, _ = run(place, DATA / "philly_slice.csv.gz", "--create-tenants")
        assert "imported 60 jobs" in out
        assert "format philly, 0 bad lines" in out
        assert Job.objects.count() == VirtualWork.objects.count() == 60
        assert Tenant.objects.filter(slug="ee9e8c").exists()

    def test_reports_missing_tenants(self, place: Cluster) -> None:
        before = Tenant.objects.count()
        _, err = run(place, DATA / "philly_slice.csv.gz", status=1)
        assert "no tenant 'ee9e8c':" in err
        assert "--create-tenants" in err
        assert (Job.objects.count(), Tenant.objects.count()) == (0, before)

    def test_maps_tenants_to_other_names(self, place: Cluster, tmp_path: Path) -> None:
        names = tmp_path / "names.csv"
        names.write_text("teamA,north\nteamB,south\n")
        file = written(tmp_path, "a,teamA,1,0,60", "b,teamB,1,0,60", "c,north,1,0,60")
        run(place, file, "--tenant-map", str(names))
        tenants = Job.objects.order_by("id").values_list("tenant__slug", flat=True)
        assert list(tenants) == ["north", "south", "north"]

    def test_failed_jobs_fail_again(self, place: Cluster) -> None:
        out, _ = run(place, DATA / "helios_like.csv", "--create-tenants")
        assert "1 line requests no GPU and is skipped (line 3)" in out
        assert "1 job failed, and fails here too" in out
        codes = VirtualWork.objects.order_by("job_id").values_list("exit_code", flat=True)
        assert list(codes) == [0, 1, 143]

    def test_accepts_sacct_format(self, place: Cluster) -> None:
        out, _ = run(place, DATA / "jobs_dump.txt", "--create-tenants")
        assert "imported 7 jobs" in out
        assert "format sacct, 0 bad lines" in out
        assert "2 lines are parts of jobs" in out

    def test_reads_optional_columns(self, place: Cluster, tmp_path: Path) -> None:
        header = HEADER.strip() + ",weight,gpu_types,max_price,estimate_s,cpus\n"
        run(place, written(tmp_path, "a,north,1,0,60,3,v100,1.25,90,8", header=header))
        job = Job.objects.get()
        assert (job.weight, job.gpu_types, str(job.max_price)) == (3, ["v100"], "1.250000")
        assert (job.estimate_s, job.estimate_source, job.cpus) == (90, "trace", 8)

    def test_reads_one_set_of_several_in_file(self, place: Cluster) -> None:
        run(place, DATA / "chronus_slice.csv", "--set", "MIX1", "--create-tenants")
        assert Job.objects.count() == 16
        first = VirtualWork.objects.get(job__name="chronus-0")
        assert first.duration_us == 747 * 60 * 1_000_000

    def test_limit_option_bounds_number_of_jobs(self, place: Cluster) -> None:
        run(place, DATA / "philly_slice.csv.gz", "--create-tenants", "--limit", "7")
        assert Job.objects.count() == 7

    def test_query_count_is_independent_of_jobs(self, place: Cluster, tmp_path: Path) -> None:
        counts = []
        for jobs in (1, 500):
            file = written(tmp_path, *(f"{n},north,1,0,60" for n in range(jobs)))
            with CaptureQueriesContext(connection) as asked:
                run(place, file)
            counts.append(len(asked))
        assert counts[0] == counts[1]


class TestBadLine:
    def test_is_reported_and_valid_lines_are_imported(self, place: Cluster) -> None:
        out, err = run(place, DATA / "own_broken.csv", status=1)
        assert list(Job.objects.order_by("id").values_list("name", flat=True)) == [
            "good-1",
            "good-2",
            "good-3",
        ]
        for words in (
            "line 4, gpus: is not a number of GPUs of at least 0: 'many'",
            "line 5: has 3 cells, the header has 7",
            "line 8: is not CSV",
            "line 10, tenant: there is no tenant 'west'",
            "line 11, gpu_types: there is no type 'h100'",
        ):
            assert words in err
        assert "7 bad lines" in out

    def test_is_only_counted_after_the_first_20(self, place: Cluster, tmp_path: Path) -> None:
        file = written(tmp_path, *["x,north,x,0,1"] * 30, "good,north,1,0,1")
        out, err = run(place, file, status=1)
        assert err.count("is not a number of GPUs") == 20
        assert "and 10 more bad lines" in err
        assert "imported 1 jobs" in out

    def test_strict_mode_imports_nothing(self, place: Cluster) -> None:
        out, _ = run(place, DATA / "own_broken.csv", "--strict", "--create-tenants", status=1)
        assert "undone" in out
        assert Job.objects.count() == VirtualWork.objects.count() == 0
        assert not Tenant.objects.filter(slug="west").exists()


class TestDryRun:
    def test_reports_result_and_writes_nothing(self, place: Cluster) -> None:
        out, _ = run(place, DATA / "philly_slice.csv.gz", "--create-tenants", "--dry-run")
        assert "could import 60 jobs" in out
        assert Job.objects.count() == 0
        assert not Tenant.objects.filter(slug="ee9e8c").exists()


class TestReplay:
    LINES = ("late,north,1,1060,600", "first,north,1,1000,600", "last,south,2,1300,60")

    def test_submits_each_job_at_its_own_time(self, place: Cluster, tmp_path: Path) -> None:
        out, _ = run(place, written(tmp_path, *self.LINES), "--as", "replay")
        assert "over 0:05:00 of pool time" in out
        came = dict(Arrival.objects.values_list("name", "at"))
        assert came == {
            "first": BEGIN,
            "late": BEGIN + timedelta(seconds=60),
            "last": BEGIN + timedelta(seconds=300),
        }
        place.round()
        assert list(Job.objects.values_list("name", flat=True)) == ["first"]
        place.round(after_s=70)
        place.round(after_s=300)
        jobs = Job.objects.order_by("id")
        assert [(job.name, job.submitted_at) for job in jobs] == [
            ("first", BEGIN),
            ("late", BEGIN + timedelta(seconds=60)),
            ("last", BEGIN + timedelta(seconds=300)),
        ]
        assert not Arrival.objects.exists()
        place.round(after_s=700)
        assert set(Job.objects.values_list("state", flat=True)) == {Job.State.SUCCEEDED}

    def test_hides_jobs_before_their_time(self, place: Cluster, tmp_path: Path) -> None:
        run(place, written(tmp_path, *self.LINES), "--as", "replay")
        north = place.tenants["north"].pk
        assert active_counts(north).waiting == 0
        assert job_counts(place.pool.pk, north).ever is False
        assert jobs_page(north, JobFilter()).rows == ()

    def test_withdraw_removes_pending_arrivals(self, place: Cluster, tmp_path: Path) -> None:
        run(place, written(tmp_path, *self.LINES), "--as", "replay")
        place.round()
        out = io.StringIO()
        call_command("import_trace", "--withdraw", "--pool", place.pool.name, stdout=out)
        assert "2 jobs" in out.getvalue()
        assert (Job.objects.count(), Arrival.objects.count()) == (1, 0)

    def test_keeps_price_limit_exit_code_and_duration(self, place: Cluster, tmp_path: Path) -> None:
        header = HEADER.strip() + ",max_price,exit_code\n"
        file = written(tmp_path, "a,north,1,0,60,1.5,3", header=header)
        run(place, file, "--as", "replay")
        place.round()
        job = Job.objects.get()
        assert (str(job.max_price), job.virtual_work.exit_code) == ("1.500000", 3)
        assert job.virtual_work.duration_us == 60_000_000


class TestCommandError:
    def test_is_reported_in_one_line(self, place: Cluster, tmp_path: Path) -> None:
        file = written(tmp_path, "a,north,1,0,60")
        place.pool.executor = "local"
        place.pool.save()
        with pytest.raises(CommandError, match="runs real processes"):
            run(place, file)
        with pytest.raises(CommandError, match="there is no pool nowhere"):
            call_command("import_trace", str(file), "--pool", "nowhere")
        with pytest.raises(CommandError, match="No such file"):
            run(place, tmp_path / "nothing.csv")
        with pytest.raises(CommandError, match="must be COLUMN=FIELD"):
            run(place, file, "--map", "tenant")

    def test_unknown_columns_explain_mapping(self, place: Cluster, tmp_path: Path) -> None:
        file = written(tmp_path, "north,1,0,60", header="team,gpus,submit_s,duration_s\n")
        with pytest.raises(CommandError, match="no column for tenant"):
            run(place, file)
        run(place, file, "--map", "team=tenant")
        assert Job.objects.get().name == "line-2"
