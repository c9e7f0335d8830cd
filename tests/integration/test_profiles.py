"""Test a tenant's job types: declared, changed, removed, and named by jobs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evenshare_core.domain.profiles import speedups_normal
from scheduling.models import Job, Profile, VirtualWork
from scheduling.requests.profiles import read_profile_request
from scheduling.services.profiles import (
    InUseError,
    drop_profile,
    put_profile,
)
from scheduling.services.submit import submit_job, submit_jobs
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.models import AuditRecord, User
from tests.factories import Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def lab() -> Cluster:
    lab = cluster({"a": 4, "b": 4})
    lab.add_type("k80", nodes=2, gpus=4, quotas={"a": 4, "b": 4})
    return lab


@pytest.fixture
def actor() -> Actor:
    return Actor(User.objects.create_user("ann"), "request-1")


def put(lab: Cluster, actor: Actor, name: str = "gru", **speeds: object) -> Profile:
    wanted = read_profile_request(name, {"speeds": speeds})
    return put_profile(
        tenant=lab.tenants["a"], actor=actor, pool_id=lab.pool.pk, name=name, request=wanted
    )


def submit(lab: Cluster, tenant: str = "a", **fields: Any) -> Job:
    spec = {"pool": lab.pool.name, "gpus": 1, **fields}
    return submit_job(tenant=lab.tenants[tenant], user=None, spec=spec, now=lambda _: lab.now()).row


def errors(caught: pytest.ExceptionInfo[InvalidInputError]) -> dict[str, str]:
    return {error.field: error.reason for error in caught.value.errors}


class TestSpeeds:
    @pytest.mark.parametrize(
        ("speeds", "normal"),
        [
            ({"k80": "2", "v100": "5"}, {"k80": 1000, "v100": 2500}),
            ({"k80": "0.3", "v100": "0.1"}, {"k80": 3000, "v100": 1000}),
            ({"k80": "3", "v100": "10"}, {"k80": 1000, "v100": 3333}),
            ({"v100": "7"}, {"v100": 1000}),
        ],
    )
    def test_are_normalized_to_thousandths_of_slowest(
        self, speeds: dict[str, str], normal: dict[str, int]
    ) -> None:
        assert speedups_normal({k: Fraction(v) for k, v in speeds.items()}) == normal

    @pytest.mark.parametrize(
        ("raw", "field"),
        [
            ({}, "speeds"),
            ({"speeds": {}}, "speeds"),
            ({"speeds": ["k80"]}, "speeds"),
            ({"speeds": {"k80": 0}}, "speeds.k80"),
            ({"speeds": {"k80": "-1"}}, "speeds.k80"),
            ({"speeds": {"k80": "1e9"}}, "speeds.k80"),
            ({"speeds": {"k80": True}}, "speeds.k80"),
            ({"speeds": {"k80": 1.5}}, "speeds.k80"),
            ({"speeds": {"k 80": 1}}, "speeds.k 80"),
            ({"speeds": {"k80": "1", "v100": "1001"}}, "speeds"),
            ({"speeds": {"k80": "1"}, "priority": 0}, "priority"),
            ({"speeds": {"k80": "1"}, "speedups": 1}, "speedups"),
        ],
    )
    def test_invalid_speeds_are_named(self, raw: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidInputError) as caught:
            read_profile_request("gru", raw)
        assert set(errors(caught)) == {field}


class TestProfile:
    def test_is_declared_with_audit_record(self, lab: Cluster, actor: Actor) -> None:
        row = put(lab, actor, k80="1", v100="4.81")
        assert row.speedups == {"k80": 1000, "v100": 4810}
        assert row.source == Profile.Source.DECLARED
        record = AuditRecord.objects.get()
        assert (record.actor, record.action) == (actor.user, "profile.declared")
        assert record.after["speeds"] == {"k80": "1.000", "v100": "4.810"}

    def test_repeated_declaration_is_recorded_once(self, lab: Cluster, actor: Actor) -> None:
        put(lab, actor, k80="1", v100="4.81")
        put(lab, actor, k80="2", v100="9.62")
        assert Profile.objects.count() == AuditRecord.objects.count() == 1

    def test_rejects_types_that_pool_lacks(self, lab: Cluster, actor: Actor) -> None:
        with pytest.raises(InvalidInputError) as caught:
            put(lab, actor, k80="1", h100="9")
        assert errors(caught) == {"speeds.h100": "is not a GPU type of the pool"}
        assert not Profile.objects.exists()

    def test_keeps_type_that_active_jobs_accept(self, lab: Cluster, actor: Actor) -> None:
        put(lab, actor, k80="1", v100="4.81")
        job = submit(lab, profile="gru")
        with pytest.raises(InvalidInputError) as caught:
            put(lab, actor, v100="4.81")
        assert errors(caught) == {"speeds.k80": "is missing, but jobs accept it: 1"}
        Job.objects.filter(pk=job.pk).update(state="succeeded")
        assert put(lab, actor, v100="4.81").speedups == {"v100": 1000}

    def test_is_dropped_only_without_active_jobs(self, lab: Cluster, actor: Actor) -> None:
        put(lab, actor, k80="1")
        job = submit(lab, profile="gru")
        gone: dict[str, Any] = {
            "tenant": lab.tenants["a"],
            "actor": actor,
            "pool_id": lab.pool.pk,
            "name": "gru",
        }
        with pytest.raises(InUseError):
            drop_profile(**gone)
        Job.objects.filter(pk=job.pk).update(state="succeeded")
        assert drop_profile(**gone)
        assert not drop_profile(**gone)
        assert AuditRecord.objects.filter(action="profile.dropped").count() == 1


class TestJobWithProfile:
    def test_accepts_types_of_profile(self, lab: Cluster, actor: Actor) -> None:
        row = put(lab, actor, k80="1")
        job = submit(lab, profile="gru")
        assert (job.profile, job.gpu_types) == (row, ["k80"])
        lab.round()
        assert job.leases.get().gpu_type.name == "k80"

    def test_can_accept_fewer_types(self, lab: Cluster, actor: Actor) -> None:
        put(lab, actor, k80="1", v100="2")
        assert submit(lab, profile="gru", gpu_types=["v100"]).gpu_types == ["v100"]

    def test_rejects_type_that_cannot_run_it(self, lab: Cluster, actor: Actor) -> None:
        put(lab, actor, k80="1")
        with pytest.raises(InvalidInputError) as caught:
            submit(lab, profile="gru", gpu_types=["v100"])
        assert errors(caught) == {"gpu_types[0]": "cannot run this job type"}

    def test_rejects_profile_of_other_tenant(self, lab: Cluster, actor: Actor) -> None:
        put(lab, actor, k80="1")
        with pytest.raises(InvalidInputError) as caught:
            submit(lab, "b", profile="gru")
        assert errors(caught) == {"profile": "is not a job type of this tenant in the pool"}

    def test_bulk_submission_uses_profiles(self, lab: Cluster, actor: Actor) -> None:
        row = put(lab, actor, k80="1")
        specs = [{"pool": lab.pool.name, "gpus": 1, "profile": name} for name in ("gru", None)]
        made = submit_jobs(tenant=lab.tenants["a"], user=None, specs=specs, now=lambda _: lab.now())
        read = list(Job.objects.filter(pk__in=[job.pk for job in made.row]).order_by("id"))
        assert [job.profile_id for job in read] == [row.pk, None]
        assert [job.gpu_types for job in read] == [["k80"], []]
        assert VirtualWork.objects.count() == 2

    def test_submission_locks_its_profile(self, lab: Cluster, actor: Actor) -> None:
        put(lab, actor, k80="1")
        with CaptureQueriesContext(connection) as asked:
            submit(lab, profile="gru")
        assert any("FOR SHARE" in query["sql"] for query in asked.captured_queries)
