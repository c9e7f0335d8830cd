"""Test hold, release and priority over REST: who may, what they get, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.models import Job
from tenants.models import AuditRecord, User
from tenants.scopes import tenant_scope
from tests.functional.api_stage import ROLES, ApiStage, api_stage


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    stage = api_stage()
    stage.person("ann", "aa", ROLES.MEMBER)
    stage.person("max", "aa", ROLES.MANAGER)
    stage.person("olga", site_role=User.SiteRole.OPERATOR)
    return stage


def job_of(stage: ApiStage, person: str = "ada", **fields: Any) -> Job:
    return stage.job(submitted_by=stage.people[person], **fields)


def row(job: Job) -> Job:
    with tenant_scope(job.tenant_id):
        return Job.objects.get(pk=job.pk)


class TestHold:
    def test_is_shown_and_repeatable_and_ends_with_release(self, stage: ApiStage) -> None:
        job = job_of(stage)
        for _ in range(2):
            held = stage.post(f"jobs/{job.uid}/hold")
            assert (held.status_code, held.json()["holds"]) == (200, ["tenant"])
        why = stage.get(f"jobs/{job.uid}/why").json()
        assert (why["reason_code"], why["words"]) == ("held_by_tenant", "Its tenant holds it.")
        assert held.json()["queue"] is None
        for _ in range(2):
            free = stage.post(f"jobs/{job.uid}/release").json()
            assert (free["holds"], free["reason_code"]) == ([], "")
        assert free["eligible_at"] >= free["submitted_at"]
        assert stage.get(f"jobs/{job.uid}/why").json()["words"].startswith("Not considered")

    def test_is_for_submitter_and_manager(self, stage: ApiStage) -> None:
        job = job_of(stage)
        assert stage.post(f"jobs/{job.uid}/hold", as_="ann").status_code == 403
        assert stage.post(f"jobs/{job.uid}/hold", as_="max").status_code == 200
        assert stage.post(f"jobs/{job.uid}/release", as_="ann").status_code == 403
        assert [one.action for one in AuditRecord.objects.all()] == ["job.held"]

    def test_of_operator_is_released_by_operator_only(self, stage: ApiStage) -> None:
        job = job_of(stage)
        assert stage.post(f"jobs/{job.uid}/hold", as_="olga").json()["holds"] == ["operator"]
        refused = stage.post(f"jobs/{job.uid}/release")
        assert refused.status_code == 409
        assert "only an operator" in refused.json()["detail"]
        assert stage.post(f"jobs/{job.uid}/release", as_="olga").json()["holds"] == []

    def test_operator_releases_tenants_hold_without_own(self, stage: ApiStage) -> None:
        job = job_of(stage, holds=["tenant"])
        assert stage.post(f"jobs/{job.uid}/release", as_="olga").json()["holds"] == []

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"state": "running"}, "a running job cannot be held"),
            ({"state": "succeeded"}, "has ended"),
        ],
    )
    def test_is_refused_unless_job_waits(
        self, stage: ApiStage, fields: dict[str, Any], text: str
    ) -> None:
        refused = stage.post(f"jobs/{job_of(stage, **fields).uid}/hold")
        assert refused.status_code == 409
        assert text in refused.json()["detail"]

    def test_of_sweep_ends_by_itself_only(self, stage: ApiStage) -> None:
        job = job_of(stage, holds=["sweep"])
        assert stage.post(f"jobs/{job.uid}/release").status_code == 409
        assert row(job).holds == ["sweep"]


class TestPriority:
    def test_is_bounded_by_role_and_audited(self, stage: ApiStage) -> None:
        job = job_of(stage)
        assert stage.post(f"jobs/{job.uid}/priority", {"priority": -5}).json()["priority"] == -5
        refused = stage.post(f"jobs/{job.uid}/priority", {"priority": 1})
        assert refused.status_code == 400
        assert "Only managers" in refused.json()["errors"][0]["hint"]
        boosted = stage.post(f"jobs/{job.uid}/priority", {"priority": 100}, as_="max")
        assert boosted.json()["priority"] == 100
        assert (
            stage.post(f"jobs/{job.uid}/priority", {"priority": 101}, as_="max").status_code == 400
        )
        changes = [(one.before, one.after) for one in AuditRecord.objects.order_by("id")]
        assert changes == [
            ({"priority": 0}, {"priority": -5}),
            ({"priority": -5}, {"priority": 100}),
        ]

    def test_of_ended_job_is_refused(self, stage: ApiStage) -> None:
        job = job_of(stage, state="succeeded")
        assert stage.post(f"jobs/{job.uid}/priority", {"priority": -1}).status_code == 409
