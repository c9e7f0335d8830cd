"""Test the services of the API, form and command line: submit, dry run, cancel."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from celery import current_app
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scheduling.models import Job
from scheduling.services.dry_run import dry_run_job
from scheduling.services.jobs import cancel_job
from scheduling.services.submit import PendingLimitError, submit_job, submit_jobs
from tenants.idempotency import MismatchError
from tenants.input.errors import InvalidInputError
from tenants.models import Budget, IdempotentReply, Quota, User
from tests.factories import Cluster, cluster

QUOTAS = {"aa": 3, "bb": 5, "none": 0}


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Cluster:
    request.getfixturevalue("db")
    return cluster(QUOTAS, on_demand=True)


@pytest.fixture
def live(request: pytest.FixtureRequest) -> Cluster:
    """Yield a stage whose rows are committed, so that its rounds can run."""
    request.getfixturevalue("committed_db")
    return cluster(QUOTAS)


@pytest.fixture
def person(request: pytest.FixtureRequest) -> User:
    request.getfixturevalue("stage")
    return User.objects.create(username="ada")


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    pools: list[int] = []
    monkeypatch.setattr(current_app, "send_task", lambda *_, args, **__: pools.append(args[0]))
    return pools


def submit(stage: Cluster, person: User | None = None, key: str | None = None, **more: Any) -> Job:
    spec = {"pool": stage.pool.name, "gpus": 2, "duration_s": 60, **more}
    return submit_job(
        tenant=stage.tenants["aa"], user=person, spec=spec, now=lambda _: stage.now(), key=key
    ).row


class TestSubmission:
    def test_creates_pending_job_in_pool_time(self, stage: Cluster, person: User) -> None:
        job = submit(stage, person, command=["python", "x.py"], max_price="0.5", weight=3)
        job.refresh_from_db()
        assert (job.state, job.submitted_at, job.submitted_by) == ("pending", stage.at, person)
        assert (job.gpus, job.max_price) == (2, Decimal("0.5"))
        assert job.virtual_work.duration_us == 60_000_000
        assert job.name.startswith("job-")

    def test_starts_in_next_round(self, live: Cluster) -> None:
        job = submit(live)
        live.round()
        job.refresh_from_db()
        assert job.state == "running"

    def test_wakes_round_only_after_commit(
        self, stage: Cluster, woken: list[int], django_capture_on_commit_callbacks: Any
    ) -> None:
        with django_capture_on_commit_callbacks(execute=True):
            submit(stage)
            assert woken == []
        assert woken == [stage.pool.pk]

    def test_survives_broker_failure(
        self,
        stage: Cluster,
        monkeypatch: pytest.MonkeyPatch,
        django_capture_on_commit_callbacks: Any,
    ) -> None:
        def fails(*_: object, **__: object) -> None:
            raise ConnectionError("no broker")

        monkeypatch.setattr(current_app, "send_task", fails)
        with django_capture_on_commit_callbacks(execute=True):
            job = submit(stage)
        assert Job.objects.filter(pk=job.pk).exists()

    def test_rejects_pool_without_quota(self, stage: Cluster) -> None:
        spec = {"pool": stage.pool.name, "gpus": 1}
        with pytest.raises(InvalidInputError, match="pool is not a pool of this tenant"):
            submit_job(
                tenant=stage.tenants["none"], user=None, spec=spec, now=lambda _: stage.now()
            )

    @pytest.mark.parametrize("limit", [2, 40])
    def test_stops_at_pending_job_limit_of_tenant(
        self, stage: Cluster, settings: Any, limit: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Far below the limit, queued jobs are counted without a lock; close to it, with a lock."""
        monkeypatch.setattr("scheduling.services.submit.BULK_MAX", 5)
        settings.PENDING_JOBS_MAX = limit
        draft = submit(stage)
        Job.objects.bulk_create(
            Job(
                tenant=draft.tenant, pool=draft.pool, name="x", submitted_at=stage.at, gpus=1,
            )
            for _ in range(limit - 2)
        )  # fmt: skip
        submit(stage)
        with pytest.raises(PendingLimitError):
            submit(stage)
        assert Job.objects.filter(tenant=draft.tenant).count() == limit


class TestIdempotencyKey:
    def test_creates_one_job(self, stage: Cluster, person: User) -> None:
        first, second = submit(stage, person, "k"), submit(stage, person, "k")
        assert first.pk == second.pk
        assert Job.objects.count() == 1

    def test_rejects_different_body(self, stage: Cluster, person: User) -> None:
        submit(stage, person, "k")
        with pytest.raises(MismatchError):
            submit(stage, person, "k", weight=2)

    def test_is_separate_for_each_user(self, stage: Cluster, person: User) -> None:
        other = User.objects.create(username="bob")
        assert submit(stage, person, "k").pk != submit(stage, other, "k").pk

    def test_is_released_after_rejected_submission(self, stage: Cluster, person: User) -> None:
        with pytest.raises(InvalidInputError):
            submit(stage, person, "k", gpus=0)
        assert not IdempotentReply.objects.exists()
        assert submit(stage, person, "k").pk

    def test_repeated_bulk_returns_jobs_in_order(self, stage: Cluster, person: User) -> None:
        specs = [{"pool": stage.pool.name, "gpus": 1, "name": f"n{i}"} for i in range(5)]
        asked: Any = {"tenant": stage.tenants["aa"], "user": person, "specs": specs, "key": "k"}
        first = submit_jobs(**asked, now=lambda _: stage.now())
        again = submit_jobs(**asked, now=lambda _: stage.now())
        assert [job.uid for job in first.row] == [job.uid for job in again.row]
        assert [job.name for job in again.row] == ["n0", "n1", "n2", "n3", "n4"]
        assert (first.is_replay, again.is_replay) == (False, True)


class TestBulkSubmission:
    def test_is_all_or_nothing(self, stage: Cluster) -> None:
        specs: list[object] = [{"pool": stage.pool.name, "gpus": 1}] * 3
        specs += [{"pool": "else", "gpus": 0}, 7]
        with pytest.raises(InvalidInputError) as caught:
            submit_jobs(
                tenant=stage.tenants["aa"], user=None, specs=specs, now=lambda _: stage.now()
            )
        fields = [error.field for error in caught.value.errors]
        assert fields == ["jobs[3].pool", "jobs[3].gpus", "jobs[4]"]
        assert not Job.objects.exists()

    def test_creates_same_rows_as_single_submission(self, stage: Cluster, person: User) -> None:
        spec = {
            "pool": stage.pool.name, "gpus": 2, "command": ["a", 'q"\\\t\n', "\N{SNOWMAN}"],
            "environment": {"A": "b"}, "gpu_types": ["v100"], "max_price": "1.5", "weight": 7,
            "name": "same", "duration_s": 60,
        }  # fmt: skip
        asked: Any = {"tenant": stage.tenants["aa"], "user": person}
        one = submit_job(spec=spec, now=lambda _: stage.now(), **asked).row
        (other,) = submit_jobs(specs=[spec], now=lambda _: stage.now(), **asked).row
        rows = [Job.objects.filter(pk=job.pk).values().get() for job in (one, other)]
        own = {"id", "uid", "created_at"}
        first, second = ({k: v for k, v in row.items() if k not in own} for row in rows)
        assert first == second
        assert all(row["created_at"] for row in rows)
        assert one.virtual_work.duration_us == other.virtual_work.duration_us == 60_000_000

    def test_query_count_does_not_grow_with_jobs(self, stage: Cluster) -> None:
        def queries(count: int) -> int:
            specs = [{"pool": stage.pool.name, "gpus": 1}] * count
            with CaptureQueriesContext(connection) as seen:
                submit_jobs(
                    tenant=stage.tenants["aa"], user=None, specs=specs, now=lambda _: stage.now()
                )
            return len(seen)

        assert queries(5) == queries(50)


class TestCancellation:
    def test_ends_waiting_job_at_once(self, live: Cluster) -> None:
        job = cancel_job(job=submit(live), now=live.now())
        assert (job.state, job.ended_at, job.version) == ("cancelled", live.at, 2)
        live.round()
        job.refresh_from_db()
        assert (job.state, job.leases_held) == ("cancelled", 0)

    def test_requests_stop_of_running_job(self, live: Cluster) -> None:
        job = submit(live)
        live.round()
        live.at += timedelta(seconds=3)
        asked = cancel_job(job=job, now=live.now())
        assert (asked.state, asked.cancel_asked_at) == ("running", live.at)

    def test_is_idempotent(self, stage: Cluster) -> None:
        job = cancel_job(job=submit(stage), now=stage.now())
        stage.at += timedelta(seconds=9)
        again = cancel_job(job=job, now=stage.now())
        assert (again.version, again.ended_at) == (job.version, job.ended_at)


class TestDryRun:
    def ask(self, stage: Cluster, **more: Any) -> Any:
        spec = {"pool": stage.pool.name, "gpus": 2, **more}
        with CaptureQueriesContext(connection) as seen:
            answer = dry_run_job(tenant=stage.tenants["aa"], spec=spec, now=lambda _: stage.now())
        sql = " ".join(query["sql"] for query in seen.captured_queries)
        assert not any(word in sql for word in ("INSERT", "UPDATE", "DELETE"))
        return answer

    def test_fits_free_pool(self, stage: Cluster) -> None:
        answer = self.ask(stage)
        assert (answer.feasible, answer.reason_code, answer.borrowed) == (True, "", 0)
        assert answer.note == "feasibility, not a reservation"

    def test_waits_for_free_gpus(self, live: Cluster) -> None:
        live.submit("bb", 7, 900)
        live.round()
        answer = self.ask(live)
        assert (answer.feasible, answer.reason_code) == (True, "promised")

    def test_rejects_more_gpus_than_the_pool_has(self, stage: Cluster) -> None:
        answer = self.ask(stage, gpus=9)
        assert (answer.feasible, answer.reason_code) == (False, "too_large")
        assert answer.never
        assert "the most available to it are 8 of" in answer.detail

    def test_rejects_more_gpus_than_accepted_types_have(self, stage: Cluster) -> None:
        """Regression: the error named the pool's largest type, whatever types the job accepts."""
        stage.add_type("k80", nodes=2, gpus=16, quotas={})
        assert "are 32 of k80." in self.ask(stage, gpus=33).detail
        answer = self.ask(stage, gpus=33, gpu_types=["v100"])
        assert answer.never
        assert "are 8 of v100." in answer.detail

    def test_rejects_job_beyond_borrow_limit(self, stage: Cluster) -> None:
        Quota.objects.filter(tenant=stage.tenants["aa"]).update(borrow_limit=1)
        assert self.ask(stage, gpus=4).feasible
        answer = self.ask(stage, gpus=5)
        assert (answer.feasible, answer.reason_code) == (False, "quota_limit")

    def test_own_gpus_never_exceed_quota(self, stage: Cluster) -> None:
        for gpus in range(1, 20):
            answer = self.ask(stage, gpus=gpus)
            assert answer.own <= QUOTAS["aa"]
            assert answer.own + answer.borrowed == (gpus if gpus <= 8 else 0)

    def test_returns_price_after_own_gpus_are_in_use(self, stage: Cluster) -> None:
        # No job runs, so a borrowed GPU costs nothing now. With the whole pool in use it costs the
        # base price.
        answer = self.ask(stage, gpus=8)
        assert (answer.price, answer.price_after) == (0, 1)
        assert self.ask(stage, gpus=2).price_after == 0  # own quota is free of charge

    def test_rejects_same_impossible_jobs_as_submission(self, stage: Cluster) -> None:
        rows = Quota.objects.filter(tenant=stage.tenants["aa"])
        rows.update(borrow_limit=1)
        assert not self.ask(stage, gpus=4).never
        answer = self.ask(stage, gpus=5)
        assert (answer.feasible, answer.never, answer.reason_code) == (False, True, "quota_limit")
        assert (answer.own, answer.borrowed) == (3, 2)
        with pytest.raises(InvalidInputError) as refused:
            submit(stage, gpus=5)
        (error,) = refused.value.errors
        assert (error.field, error.code) == ("gpus", "quota_limit")
        assert "Request at most 4" in error.hint
        # A limit with an end date allows the job to wait until then.
        rows.update(valid_until=stage.at + timedelta(days=1))
        answer = self.ask(stage, gpus=5)
        assert (answer.feasible, answer.never) == (False, False)
        assert submit(stage, gpus=5).gpus == 5

    def test_rejects_price_above_maximum_and_exhausted_budget(self, live: Cluster) -> None:
        live.submit("bb", 4, 9000)
        live.round()
        price = self.ask(live, gpus=4).price
        assert price > 0
        answer = self.ask(live, gpus=4, max_price="0")
        assert (answer.feasible, answer.reason_code) == (False, "price_above_max")
        Budget.objects.filter(tenant=live.tenants["aa"]).update(credit_limit=0)
        answer = self.ask(live, gpus=4)
        assert (answer.feasible, answer.reason_code) == (False, "budget")

    def test_creates_no_job(self, stage: Cluster) -> None:
        self.ask(stage)
        assert not Job.objects.exists()
