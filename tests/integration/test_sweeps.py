"""Test sweeps: submission, release of the next jobs, cancellation, resubmission, dependencies."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scheduling.engine.executors.local_spec import _sweep_facts
from scheduling.engine.fence import take_fence
from scheduling.engine.revoke import revoke_cancelled
from scheduling.engine.turns import release_due
from scheduling.models import Job, JobDependency, Sweep
from scheduling.services.jobs import cancel_job
from scheduling.services.submit import PendingLimitError, submit_job
from scheduling.services.sweeps import cancel_sweep, resubmit_failed, submit_sweep
from tenants.idempotency import MismatchError
from tenants.input.errors import InvalidInputError
from tenants.models import User
from tenants.scopes import engine_scope
from tests.factories import BEGIN, Cluster, cluster

pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Cluster:
    request.getfixturevalue("db")
    return cluster({"a": 4, "b": 4})


def sweep_of(lab: Cluster, tenant: str = "a", **fields: Any) -> Sweep:
    spec = {"pool": lab.pool.name, "gpus": 1, **fields}
    return submit_sweep(
        tenant=lab.tenants[tenant], user=None, spec=spec, now=lambda _: lab.now()
    ).row


def job_of(lab: Cluster, tenant: str = "a", **fields: Any) -> Job:
    spec = {"pool": lab.pool.name, "gpus": 1, **fields}
    return submit_job(tenant=lab.tenants[tenant], user=None, spec=spec, now=lambda _: lab.now()).row


def rows(sweep: Sweep, *columns: str) -> list[Any]:
    return list(sweep.jobs.order_by("sweep_index").values_list(*columns, flat=len(columns) == 1))


def end(lab: Cluster, jobs: Any, state: str = "succeeded") -> int:
    """End jobs as an engine does, and release what may start now; return how many."""
    lab.at += timedelta(seconds=10)
    with engine_scope(lab.pool.pk):
        jobs.update(state=state, ended_at=lab.at)
        return release_due(lab.pool.pk, at=lab.at)


def reach_round(lab: Cluster) -> None:
    """Take the step of a round that makes up for lost ones."""
    token = take_fence(lab.pool.pk, holder="test")
    assert token is not None
    revoke_cancelled(lab.pool.pk, token, at=lab.at)


def errors_of(lab: Cluster, **fields: Any) -> list[str]:
    before = Job.objects.count(), Sweep.objects.count()
    with pytest.raises(InvalidInputError) as refused:
        sweep_of(lab, **fields)
    assert (Job.objects.count(), Sweep.objects.count()) == before
    return [str(error) for error in refused.value.errors]


class TestSubmission:
    def test_makes_job_for_each_index_of_array(self, lab: Cluster) -> None:
        sweep = sweep_of(lab, name="train", array="0-20:10", command=["t", "--i={{ index }}"])
        assert rows(sweep, "name", "sweep_index", "parameters", "command", "holds") == [
            ("train-0", 0, {"index": "0"}, ["t", "--i=0"], []),
            ("train-10", 1, {"index": "10"}, ["t", "--i=10"], []),
            ("train-20", 2, {"index": "20"}, ["t", "--i=20"], []),
        ]
        jobs = sweep.jobs.order_by("id")
        assert [_sweep_facts(job) for job in jobs] == [
            {"EVENSHARE_SWEEP_INDEX": index} for index in ("0", "10", "20")
        ]
        assert (sweep.at_once, sweep.name, sweep.submitted_at) == (None, "train", BEGIN)

    def test_makes_job_for_each_combination_of_matrix(self, lab: Cluster) -> None:
        sweep = sweep_of(
            lab, matrix={"lr": [0.1, 0.01], "opt": "adam, sgd"}, environment={"SEED": "1"}
        )
        assert rows(sweep, "parameters") == [
            {"lr": "0.1", "opt": "adam"}, {"lr": "0.1", "opt": "sgd"},
            {"lr": "0.01", "opt": "adam"}, {"lr": "0.01", "opt": "sgd"},
        ]  # fmt: skip
        assert rows(sweep, "environment")[1] == {"SEED": "1", "lr": "0.1", "opt": "sgd"}
        assert rows(sweep, "name") == [f"{sweep.name}-{place}" for place in range(4)]
        last = sweep.jobs.order_by("id").last()
        assert last is not None
        assert _sweep_facts(last) == {"EVENSHARE_SWEEP_INDEX": "3"}

    @pytest.mark.parametrize("limit", [{"array": "0-9%3"}, {"array": "0-9", "at_once": 3}])
    def test_holds_all_jobs_but_the_first(self, lab: Cluster, limit: dict[str, Any]) -> None:
        sweep = sweep_of(lab, **limit)
        assert sweep.at_once == 3
        assert rows(sweep, "holds") == [[], [], []] + [["sweep"]] * 7
        assert rows(sweep, "reason_code")[2:4] == ["", "held_for_sweep"]

    def test_of_a_thousand_jobs_takes_few_queries(self, lab: Cluster) -> None:
        other = job_of(lab)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            sweep = sweep_of(lab, array="0-999%5", after_ok=[str(other.uid)])
        assert len(queries) < 30
        assert sweep.jobs.count() == JobDependency.objects.count() == 1000

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({}, "array or a matrix is required"),
            ({"at_once": 3}, "array or a matrix is required"),
            ({"array": "0-9%3", "at_once": 2}, "at_once differs from the array's %"),
            ({"array": "9-0"}, "array ends before it starts in '9-0'"),
            ({"array": "0-9", "gpus": 99}, "gpus is more than the pool has of any type"),
            ({"array": "0-9", "command": ["{{ x }}"]}, "command names the unknown parameter x"),
            ({"array": "0-999", "name": "x" * 61}, "name is too long for a sweep"),
            (
                {"matrix": {"a": [1]}, "environment": {"a": "2"}},
                "matrix.a is in the environment too",
            ),
            (
                {"array": "0-99", "environment": {f"V{i}": "x" * 30_000 for i in range(3)}},
                "array makes jobs whose commands and environments exceed 8 MiB in total",
            ),
            (
                {"matrix": {"lr": ["1" * 200]}, "array": "0-299", "command": ["{{ lr }}" * 160]},
                "matrix makes jobs whose commands and environments exceed 8 MiB in total",
            ),
            ({"array": "0-9", "after_ok": ["x"]}, "after_ok[0] is not an id"),
            (
                {"array": "0-9", "after_ok": [str(uuid4())]},
                "after_ok[0] is not a job or sweep of this tenant",
            ),
        ],
    )
    def test_is_refused_as_a_whole(self, lab: Cluster, fields: Any, error: str) -> None:
        assert errors_of(lab, **fields) == [error]

    def test_counts_all_its_jobs_against_limit(self, lab: Cluster, settings: Any) -> None:
        settings.PENDING_JOBS_MAX = 9
        with pytest.raises(PendingLimitError):
            sweep_of(lab, array="0-9")
        assert not Sweep.objects.exists()
        sweep_of(lab, array="0-8")

    def test_with_key_is_made_once(self, lab: Cluster) -> None:
        user = User.objects.create(username="ada")
        spec = {"pool": lab.pool.name, "gpus": 1, "array": "0-3"}
        given: Any = {"tenant": lab.tenants["a"], "user": user, "now": lambda _: lab.now()}
        first = submit_sweep(**given, spec=spec, key="k")
        again = submit_sweep(**given, spec=spec, key="k")
        assert (again.row.pk, first.is_replay, again.is_replay) == (first.row.pk, False, True)
        with pytest.raises(MismatchError):
            submit_sweep(**given, spec={**spec, "array": "0-4"}, key="k")
        assert Job.objects.count() == 4


class TestTurn:
    def test_comes_when_free_job_ends(self, lab: Cluster) -> None:
        sweep = sweep_of(lab, array="0-4%2")
        assert end(lab, sweep.jobs.filter(sweep_index=1), "failed") == 1
        assert rows(sweep, "holds") == [[], [], [], ["sweep"], ["sweep"]]
        third = sweep.jobs.get(sweep_index=2)
        assert (third.eligible_at, third.version) == (lab.at, 2)
        assert sweep.jobs.get(sweep_index=0).eligible_at is None
        # Nothing has ended since.
        with engine_scope(lab.pool.pk):
            assert release_due(lab.pool.pk, at=lab.at) == 0

    def test_comes_for_as_many_as_ended(self, lab: Cluster) -> None:
        one, two = sweep_of(lab, array="0-9%3"), sweep_of(lab, "b", array="0-9%1")
        assert end(lab, Job.objects.filter(holds=[])) == 4
        assert rows(one, "holds")[2:7] == [[], [], [], [], ["sweep"]]
        assert rows(two, "holds")[:3] == [[], [], ["sweep"]]

    def test_comes_for_quarantined_job_but_not_for_held_job(self, lab: Cluster) -> None:
        sweep = sweep_of(lab, array="0-4%2")
        sweep.jobs.filter(sweep_index=0).update(quarantine="It was lost ten times.")
        sweep.jobs.filter(sweep_index=1).update(holds=["tenant"])
        reach_round(lab)
        assert rows(sweep, "holds") == [[], ["tenant"], [], ["sweep"], ["sweep"]]

    def test_is_made_up_for_if_release_was_lost(self, lab: Cluster) -> None:
        sweep = sweep_of(lab, array="0-4%2")
        sweep.jobs.filter(sweep_index__lt=2).update(state="failed", ended_at=lab.at)
        reach_round(lab)
        assert rows(sweep, "holds") == [[], [], [], [], ["sweep"]]

    def test_comes_when_waiting_job_is_cancelled(self, lab: Cluster) -> None:
        sweep, strange = sweep_of(lab, array="0-4%1"), sweep_of(lab, "b", array="0-4%1")
        strange.jobs.filter(sweep_index=0).update(state="failed", ended_at=lab.at)
        cancel_job(job=sweep.jobs.get(sweep_index=0), now=lab.now())
        assert rows(sweep, "holds") == [[], [], ["sweep"], ["sweep"], ["sweep"]]
        assert rows(strange, "holds")[1] == ["sweep"]
        cancel_job(job=sweep.jobs.get(sweep_index=3), now=lab.now())  # held: no place is free
        assert rows(sweep, "holds")[2] == ["sweep"]

    def test_keeps_other_holds(self, lab: Cluster) -> None:
        sweep = sweep_of(lab, array="0-2%1")
        sweep.jobs.filter(sweep_index=1).update(holds=["tenant", "sweep"])
        end(lab, sweep.jobs.filter(sweep_index=0))
        second = sweep.jobs.get(sweep_index=1)
        assert (second.holds, second.eligible_at) == (["tenant"], None)
        assert rows(sweep, "holds")[2] == ["sweep"]

    def test_costs_one_query_without_held_jobs(self, lab: Cluster) -> None:
        job_of(lab)
        with engine_scope(lab.pool.pk), CaptureQueriesContext(connection) as queries:
            release_due(lab.pool.pk, at=lab.at)
        assert len(queries) == 1


class TestCancel:
    def test_cancels_waiting_jobs_and_asks_for_end_of_others(self, lab: Cluster) -> None:
        sweep = sweep_of(lab, array="0-5%3")
        sweep.jobs.filter(sweep_index=0).update(state="succeeded", ended_at=lab.at)
        sweep.jobs.filter(sweep_index=1).update(state="running", reason_code="x")
        lab.at += timedelta(seconds=5)
        cancel_sweep(sweep=sweep, now=lab.now())
        assert rows(sweep, "state") == ["succeeded", "running", *["cancelled"] * 4]
        assert rows(sweep, "ended_at")[1:3] == [None, lab.at]
        assert rows(sweep, "cancel_asked_at")[:3] == [None, lab.at, lab.at]
        assert sweep.cancel_asked_at == lab.at
        versions = rows(sweep, "version")
        lab.at += timedelta(seconds=5)
        cancel_sweep(sweep=sweep, now=lab.now())
        assert (rows(sweep, "version"), sweep.cancel_asked_at) == (
            versions, lab.at - timedelta(seconds=5),
        )  # fmt: skip

    def test_leaves_other_sweeps_alone_and_releases_their_dependents(self, lab: Cluster) -> None:
        sweep, other = sweep_of(lab, array="0-1"), sweep_of(lab, array="0-1")
        after = job_of(lab, after_any=[str(sweep.uid)])
        cancel_sweep(sweep=sweep, now=lab.now())
        assert rows(other, "state") == ["pending", "pending"]
        after.refresh_from_db()
        assert after.holds == []


class TestResubmission:
    def test_runs_failed_jobs_again_with_same_parameters(self, lab: Cluster) -> None:
        sweep = sweep_of(
            lab, name="lr", matrix={"lr": ["1", "2", "3", "4"]}, at_once=1, max_price="0.5",
            command=["t", "{{ lr }}"],
        )  # fmt: skip
        states = ("succeeded", "failed", "cancelled", "failed")
        for place, state in enumerate(states):
            sweep.jobs.filter(sweep_index=place).update(state=state, ended_at=lab.at, holds=[])
        again = resubmit_failed(sweep=sweep, user=None, now=lambda _: lab.now()).row
        assert rows(again, "sweep_index", "name", "command", "parameters", "holds") == [
            (1, "lr-1", ["t", "2"], {"lr": "2"}, []),
            (3, "lr-3", ["t", "4"], {"lr": "4"}, ["sweep"]),
        ]
        assert (again.origin, again.at_once) == (sweep, 1)
        assert set(again.jobs.values_list("max_price", flat=True)) == {
            sweep.jobs.order_by("id")[0].max_price
        }

    def test_does_not_wait_for_others_again(self, lab: Cluster) -> None:
        first = job_of(lab)
        sweep = sweep_of(lab, array="0-1", after_ok=[str(first.uid)])
        end(lab, Job.objects.filter(pk=first.pk))
        sweep.jobs.update(state="failed", ended_at=lab.at, holds=[])
        again = resubmit_failed(sweep=sweep, user=None, now=lambda _: lab.now()).row
        assert not JobDependency.objects.filter(job__sweep=again).exists()

    def test_is_refused_if_none_failed(self, lab: Cluster) -> None:
        sweep = sweep_of(lab, array="0-1")
        with pytest.raises(InvalidInputError) as refused:
            resubmit_failed(sweep=sweep, user=None, now=lambda _: lab.now())
        assert refused.value.is_conflict

    def test_with_key_is_made_once(self, lab: Cluster) -> None:
        user = User.objects.create(username="ada")
        sweep = sweep_of(lab, array="0-1")
        sweep.jobs.update(state="failed", ended_at=lab.at)
        one, two = (
            resubmit_failed(sweep=sweep, user=user, now=lambda _: lab.now(), key="k")
            for _ in range(2)
        )
        assert (one.row.pk, two.is_replay) == (two.row.pk, True)


class TestDependency:
    @pytest.mark.parametrize(
        ("field", "state", "holds", "after"),
        [
            ("after_ok", "succeeded", [], "pending"),
            ("after_ok", "failed", ["dependency"], "cancelled"),
            ("after_ok", "cancelled", ["dependency"], "cancelled"),
            ("after_any", "succeeded", [], "pending"),
            ("after_any", "failed", [], "pending"),
            ("after_any", "cancelled", [], "pending"),
        ],
    )
    def test_ends_wait_or_job(
        self, lab: Cluster, field: str, state: str, holds: list[str], after: str
    ) -> None:
        first = job_of(lab)
        needs: Any = {field: [str(first.uid)]}
        second = job_of(lab, **needs)
        assert (second.holds, second.reason_code) == (["dependency"], "held_for_job")
        with engine_scope(lab.pool.pk):
            assert release_due(lab.pool.pk, at=lab.at) == 0
        assert end(lab, Job.objects.filter(pk=first.pk), state) == (after == "pending")
        second.refresh_from_db()
        assert (second.state, second.holds, second.reason_code) == (after, holds, "")
        assert second.ended_at == (lab.at if after == "cancelled" else None)
        assert second.eligible_at == (lab.at if after == "pending" else None)
        assert JobDependency.objects.get().is_broken is (after == "cancelled")

    def test_waits_for_all(self, lab: Cluster) -> None:
        first, second = job_of(lab), job_of(lab)
        third = job_of(lab, after_ok=[str(first.uid)], after_any=[str(second.uid)])
        assert end(lab, Job.objects.filter(pk=first.pk)) == 0
        assert end(lab, Job.objects.filter(pk=second.pk), "failed") == 1
        third.refresh_from_db()
        assert third.holds == []

    def test_failure_cancels_whole_chain(self, lab: Cluster) -> None:
        chain = [job_of(lab)]
        for _ in range(5):
            chain.append(job_of(lab, after_ok=[str(chain[-1].uid)]))
        last = job_of(lab, after_any=[str(chain[-1].uid)])
        cancel_job(job=chain[0], now=lab.now())
        assert {job.state for job in Job.objects.exclude(pk=last.pk)} == {"cancelled"}
        last.refresh_from_db()
        assert (last.state, last.holds) == ("pending", [])

    def test_on_sweep_waits_for_each_of_its_jobs(self, lab: Cluster) -> None:
        sweep = sweep_of(lab, array="0-2")
        after = sweep_of(lab, array="0-1%1", after_ok=[str(sweep.uid)])
        assert rows(after, "holds") == [["dependency"], ["dependency", "sweep"]]
        assert end(lab, sweep.jobs.filter(sweep_index__lt=2)) == 0
        assert end(lab, sweep.jobs.filter(sweep_index=2)) == 2
        assert rows(after, "holds") == [[], ["sweep"]]

    def test_on_ended_job_does_not_wait_or_is_refused(self, lab: Cluster) -> None:
        done, failed = job_of(lab), job_of(lab)
        end(lab, Job.objects.filter(pk=done.pk))
        end(lab, Job.objects.filter(pk=failed.pk), "failed")
        both = job_of(lab, after_ok=[str(done.uid)], after_any=[str(failed.uid)])
        assert (both.holds, both.dependencies.count()) == ([], 2)
        with pytest.raises(InvalidInputError) as refused:
            job_of(lab, after_ok=[str(done.uid), str(failed.uid)])
        assert str(refused.value) == "after_ok[1] has failed"

    def test_on_other_tenants_job_is_as_unknown(self, lab: Cluster) -> None:
        strange, unknown = str(job_of(lab, "b").uid), str(uuid4())
        texts = []
        for uid in (strange, unknown):
            with pytest.raises(InvalidInputError) as refused:
                job_of(lab, after_any=[uid])
            texts.append([str(error) for error in refused.value.errors])
        assert texts == [["after_any[0] is not a job or sweep of this tenant"]] * 2

    def test_between_pools_ends_with_next_round_of_waiting_job(self, lab: Cluster) -> None:
        other = cluster({"c": 4})
        elsewhere = other.submit("c", 1, 60)
        Job.objects.filter(pk=elsewhere.pk).update(tenant=lab.tenants["a"])
        job = job_of(lab, after_ok=[str(elsewhere.uid)])
        end(other, Job.objects.filter(pk=elsewhere.pk))
        job.refresh_from_db()
        assert job.holds == ["dependency"]
        reach_round(lab)
        job.refresh_from_db()
        assert job.holds == []

    def test_of_too_many_jobs_is_refused(self, lab: Cluster) -> None:
        sweep = sweep_of(lab, array="0-99")
        assert errors_of(lab, array="0-999", after_any=[str(sweep.uid)]) == [
            "after_ok makes more than 20,000 dependencies"
        ]
