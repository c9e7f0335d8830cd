"""Test that a row that cannot be read stops its own job, but never the pool's round."""

from __future__ import annotations

from typing import NamedTuple

import psycopg
import pytest

from scheduling.engine.rounds import RoundOutcome
from scheduling.engine.snapshot_rows import unreadable_jobs
from scheduling.models import Job, Lease
from scheduling.selectors.rounds.states import MissingStateError
from tests.factories import Cluster, cluster
from tests.plugin import Services


class Damage(NamedTuple):
    """SQL statements that damage a job's rows in the database."""

    table: str
    change: str
    needs_lease: bool = False


JOB, LEASE, PROFILE = "scheduling_job", "scheduling_lease", "scheduling_profile"
DAMAGE = {
    "a price that is not a number": Damage(JOB, "max_price = 'NaN'"),
    "a price too great for its unit": Damage(JOB, "max_price = 99999999999999"),
    "an infinite submission": Damage(JOB, "submitted_at = '-infinity'"),
    "an infinite deadline": Damage(JOB, "deadline_at = 'infinity'"),
    "an unknown class": Damage(JOB, "job_class = 'prompt', deadline_at = now()"),
    "a class without its deadline": Damage(JOB, "job_class = 'strict_slo'"),
    "malformed steps": Damage(
        JOB, "job_class = 'soft_slo', deadline_at = now(), deadline_steps = '7'"
    ),
    "steps without an end": Damage(
        JOB, "job_class = 'soft_slo', deadline_at = now(), deadline_steps = '[[1e30, \"1\"]]'"
    ),
    "an endless estimate": Damage(JOB, "estimate_s = 9000000000000000000"),
    "a type without a name": Damage(JOB, "gpu_types = ARRAY[NULL]::varchar[]"),
    "a job type that is a list": Damage(PROFILE, "speedups = '[1]'"),
    "a job type that is a text": Damage(PROFILE, """speedups = '"fast"'"""),
    "a job type without numbers": Damage(PROFILE, """speedups = '{"v100": null}'"""),
    "a placement that is null": Damage(LEASE, "placement = 'null'", needs_lease=True),
    "a placement of other things": Damage(LEASE, """placement = '{"a": 1}'""", needs_lease=True),
    "a lease at no price": Damage(LEASE, "price = 'NaN'", needs_lease=True),
}


@pytest.fixture
def vandal(committed_db: str, services: Services) -> psycopg.Connection:
    """Yield a superuser's connection to a database whose constraints were dropped."""
    connection = services.postgres.connect(committed_db)
    names = connection.execute(
        "SELECT conrelid::regclass::text, conname FROM pg_constraint"
        " WHERE contype = 'c' AND conrelid::regclass::text = ANY(%s)",
        [[JOB, LEASE, PROFILE]],
    ).fetchall()
    for table, name in names:
        connection.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
    return connection


def damage(vandal: psycopg.Connection, what: Damage, job: Job) -> None:
    row = {JOB: "id = %s", LEASE: "job_id = %s", PROFILE: "id = %s"}[what.table]
    pk = job.profile_id if what.table == PROFILE else job.pk
    query = f"UPDATE {what.table} SET {what.change} WHERE {row}"  # noqa: S608 - this file's words
    vandal.execute(query, [pk])


def lab_with_a_job(*, running: bool) -> tuple[Cluster, Job]:
    """Return a pool in which one job runs or waits, together with others."""
    lab = cluster({"a": 4, "b": 4})
    profile = lab.profile("a", "net", v100=1000)
    if not running:
        lab.submit("b", 4, 10_000)
    job = lab.submit("a", 4, 10_000, profile=profile)
    if running:
        lab.round()
        job.refresh_from_db()
        assert job.state == "running"
    return lab, job


@pytest.mark.parametrize("running", [False, True], ids=["waits", "runs"])
def test_unreadable_row_stops_only_its_own_job(
    vandal: psycopg.Connection, *, running: bool
) -> None:
    with vandal:
        for name, what in DAMAGE.items():
            if what.needs_lease and not running:
                continue
            lab, job = lab_with_a_job(running=running)
            damage(vandal, what, job)
            others = [lab.submit("b", 2, 10_000, after_s=1) for _ in range(2)]
            results = [lab.round(after_s=10) for _ in range(3)]
            assert {one.outcome for one in results} <= {RoundOutcome.COMMITTED, RoundOutcome.QUIET}
            assert results[0].outcome is RoundOutcome.COMMITTED, name
            shown = Job.objects.filter(pk=job.pk).values("state", "reason_code", "quarantine")[0]
            assert (shown["state"], shown["reason_code"]) == ("pending", "quarantined"), name
            assert ": " in shown["quarantine"], (name, shown)
            # The job holds no GPUs any more, and no other tenant paid for it.
            assert not Lease.objects.filter(job=job).exclude(state="ended").exists(), name
            assert set(others_states(others)) == {"running"}, name
            assert not unreadable_jobs(lab.pool.pk, lab.at)


def others_states(jobs: list[Job]) -> list[str]:
    return list(Job.objects.filter(pk__in=[job.pk for job in jobs]).values_list("state", flat=True))


def test_all_unreadable_rows_are_found_in_one_round(vandal: psycopg.Connection) -> None:
    with vandal:
        lab = cluster({"a": 8})
        jobs = [lab.submit("a", 1, 10_000) for _ in range(40)]
        bad = jobs[::3]
        for job in bad:
            damage(vandal, DAMAGE["a price that is not a number"], job)
        assert lab.round().outcome is RoundOutcome.COMMITTED
        quarantined = Job.objects.exclude(quarantine="").values_list("pk", flat=True)
        assert set(quarantined) == {job.pk for job in bad}
        assert Lease.objects.count() == 8


def test_unreadable_pool_state_stops_round(vandal: psycopg.Connection) -> None:
    """An unreadable row of the pool itself is reported, and no job is blamed."""
    with vandal:
        lab = cluster({"a": 8})
        job = lab.submit("a", 1, 10_000)
        vandal.execute("SET session_replication_role = replica")
        vandal.execute("UPDATE scheduling_roundstate SET service = 'x'")
        with pytest.raises(MissingStateError, match="that round 0 left cannot be read"):
            lab.round()
        job.refresh_from_db()
        assert job.quarantine == ""
