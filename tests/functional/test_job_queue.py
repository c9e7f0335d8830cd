"""Test hold, release and priority over REST: who may, what they get, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from scheduling.models import Job
from tenants.models import AuditRecord, User
from tenants.scopes import tenant_scope
from tenants.tokens import Scope
from tests.functional.api_stage import ROLES, ApiStage, api_stage
from tests.functional.queue_stages import text
from tests.functional.visitors import town


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

    def test_of_operator_needs_their_scope(self, stage: ApiStage) -> None:
        job = job_of(stage)
        usual = stage.token("olga", Scope.JOBS_READ, Scope.JOBS_WRITE)
        for act in ("hold", "release"):
            refused = stage.post(f"jobs/{job.uid}/{act}", as_=usual)
            assert (refused.status_code, refused.json()["reason_code"]) == (403, "scope")
        assert row(job).holds == []

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


class TestSubmission:
    def test_stores_priority_and_earliest_start(self, stage: ApiStage) -> None:
        made = stage.post("jobs", stage.spec(priority=-7, not_before="2h")).json()
        job = Job.objects.get(uid=made["id"])
        assert (made["priority"], made["reason_code"]) == (-7, "not_before")
        assert job.not_before == job.eligible_at == job.submitted_at + timedelta(hours=2)
        assert stage.get(f"jobs/{job.uid}/why").json()["words"].startswith("It may start at")
        assert stage.post(f"jobs/{job.uid}/release").status_code == 409

    def test_stores_held_job_until_release(self, stage: ApiStage) -> None:
        made = stage.post("jobs", stage.spec(held=True, not_before="30m")).json()
        assert (made["holds"], made["reason_code"]) == (["tenant"], "held_by_tenant")
        free = stage.post(f"jobs/{made['id']}/release").json()
        assert (free["holds"], free["reason_code"]) == ([], "not_before")
        assert free["eligible_at"] == free["not_before"]

    def test_starts_at_once_if_its_time_is_over(self, stage: ApiStage) -> None:
        made = stage.post("jobs", stage.spec(not_before="2001-01-01T00:00:00Z")).json()
        assert (made["not_before"], made["eligible_at"], made["holds"]) == ("", None, [])

    @pytest.mark.parametrize(
        ("field", "bad"),
        [
            ("priority", 1), ("priority", -101), ("priority", "high"),
            ("not_before", "soon"), ("not_before", "3000d"), ("not_before", 5), ("held", "yes"),
        ],
    )  # fmt: skip # a table
    def test_refuses_wrong_values(self, stage: ApiStage, field: str, bad: object) -> None:
        refused = stage.post("jobs", stage.spec(**{field: bad}))
        assert refused.status_code == 400
        assert [error["field"] for error in refused.json()["errors"]] == [field]
        assert not Job.objects.exists()

    def test_manager_may_boost_at_submission(self, stage: ApiStage) -> None:
        made = stage.post("jobs", stage.spec(priority=100), as_="max")
        assert made.json()["priority"] == 100
        bulk = stage.post("jobs/bulk", {"jobs": [stage.spec(), stage.spec(priority=2)]})
        assert [error["field"] for error in bulk.json()["errors"]] == ["jobs[1].priority"]


class TestPeople:
    def test_rule_is_set_by_manager_and_audited(self, stage: ApiStage) -> None:
        url = f"pools/{stage.pool}/people/aa"
        assert stage.call("PUT", url, {"people": "equal"}).status_code == 403
        changed = stage.call("PUT", url, {"people": "equal"}, as_="max")
        assert changed.json()["people"] == "equal"
        assert stage.get(f"pools/{stage.pool}/sharing/aa").json()["people"] == "equal"
        assert stage.call("PUT", url, {"people": "all"}, as_="max").status_code == 400
        assert stage.call("PUT", url, {"people": "first_come"}, as_="max").status_code == 200
        assert [one.after for one in AuditRecord.objects.order_by("id")] == [
            {"people": "equal"},
            {"people": "first_come"},
        ]

    @pytest.mark.usefixtures("db")
    def test_rule_is_shown_beside_quota_and_changed_by_form(self) -> None:
        place = town()
        manager, url = place.neighbour, "/t/south/sharing/"
        assert "the order of their arrival" in text(manager.get(url))
        manager.post(url, {"act": "people", "people": "equal"})
        assert "the person with the fewest GPUs comes first" in text(manager.get(url))


class TestPage:
    @pytest.fixture
    def job(self, request: pytest.FixtureRequest) -> Job:
        request.getfixturevalue("committed_db")
        self.town = town()
        ada = User.objects.get(username="ada")
        return self.town.cluster.submit("north", 4, 60, submitted_by=ada)

    def page(self, job: Job) -> str:
        return text(self.town.owner.get(f"/jobs/{job.uid}/"))

    def test_holds_and_releases(self, job: Job) -> None:
        owner, url = self.town.owner, f"/jobs/{job.uid}"
        raw = [one.get(f"{url}/").content for one in (owner, self.town.mate)]
        assert [b'id="hold"' in page for page in raw] == [True, False]
        owner.post(f"{url}/hold/")
        held = self.page(job)
        assert "Held: not queued" in held
        assert "Its tenant holds it. Release it" in held
        self.town.play()
        assert "Held: not queued" in self.page(job)
        assert row(job).state == "pending"
        owner.post(f"{url}/release/")
        assert "Held: not queued" not in self.page(job)
        self.town.play()
        assert row(job).state == "running"
        refused = owner.post(f"{url}/hold/", follow=True).content.decode()
        assert "a running job cannot be held" in refused

    def test_sets_priority_within_bounds(self, job: Job) -> None:
        owner, url = self.town.owner, f"/jobs/{job.uid}/priority/"
        owner.post(url, {"priority": "-3"})
        assert "Priority -3" in self.page(job)
        for bad in ("5", "high", ""):
            owner.post(url, {"priority": bad})
        assert row(job).priority == -3
