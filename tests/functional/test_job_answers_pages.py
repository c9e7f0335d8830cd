"""Test rounds' answers to a deadline: on the job's page, over REST, by command, in dry runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from evenshare_core.domain.deadlines import DeadlineLimit
from evenshare_core.domain.instants import to_us
from evenshare_core.policies import registry
from evenshare_core.units import SECOND_US
from scheduling.models import Job, JobAnswer, Pool, Round
from scheduling.selectors.deadlines.texts import none_text
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.queue_stages import text
from tests.functional.visitors import Town, town
from tests.toy_policy.deadlines import POLICY

pytestmark = pytest.mark.usefixtures("committed_db")
LEASE_S = 900


@pytest.fixture(autouse=True)
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)


@pytest.fixture
def place() -> Town:
    there = town()
    Pool.objects.filter(pk=there.cluster.pool.pk).update(policy=POLICY.name)
    there.cluster.pool.refresh_from_db()
    there.play()
    return there


@pytest.fixture
def stage() -> ApiStage:
    there = api_stage()
    Pool.objects.update(policy=POLICY.name)
    there.cluster.round()
    return there


def due(place: Town, *, within_s: int, work_s: int = 60, gpus: int = 1) -> Job:
    lab = place.cluster
    return lab.submit(
        "north", gpus, work_s, job_class="strict_slo", estimate_s=work_s,
        deadline_at=lab.at + timedelta(seconds=within_s),
    )  # fmt: skip


def page(place: Town, job: Job) -> str:
    return text(place.owner.get(f"/jobs/{job.uid}/"))


class TestJobPage:
    def test_shows_planned_end_and_probability(self, place: Town) -> None:
        job = due(place, within_s=1510)
        place.play()
        shown = page(place, job)
        assert "Planned to end 10 min before its deadline" in shown
        assert "87 % likely" in shown
        assert "1 GPU of v100, on one node" in shown
        assert "Planned leases" in place.owner.get(f"/jobs/{job.uid}/").content.decode()

    def test_refused_deadline_shows_cause_and_feasible_deadline(self, place: Town) -> None:
        job = due(place, within_s=600, work_s=1200)
        place.play()
        shown = page(place, job)
        assert "Deadline refused: it takes longer" in shown
        assert "The job still runs" in shown
        link = f"?from={job.uid}&amp;deadline=2030-01-01T00%3A30%3A20.000000Z"
        assert link in place.owner.get(f"/jobs/{job.uid}/").content.decode()
        assert "deadline=2030" not in place.mate.get(f"/jobs/{job.uid}/").content.decode()
        form = place.owner.get(f"/t/north/jobs/new/{link.replace('&amp;', '&')}").content.decode()
        assert "2030-01-01T00:30:20.000000Z" in form

    def test_states_that_no_deadline_is_feasible(self, place: Town) -> None:
        job = due(place, within_s=600, gpus=64)
        place.play()
        shown = page(place, job)
        assert "No deadline is feasible on the present pool. The job still runs" in shown
        budget = none_text(DeadlineLimit.BUDGET)
        assert budget == "No later deadline is feasible while they do."
        assert none_text(DeadlineLimit.CAPACITY) == "No feasible deadline is known."

    def test_shows_planning_horizon_for_later_deadline(
        self, place: Town, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = due(place, within_s=1510)
        place.play()
        assert "plans leases" not in page(place, job)
        horizon_us = 1400 * SECOND_US
        monkeypatch.setattr(POLICY, "deadline_horizon_us", lambda *_: horizon_us, raising=False)
        shown = page(place, job)
        assert "Planned; its deadline is beyond the planned leases" in shown
        assert "This pool plans leases 0.4 hours ahead." in shown

    def test_shows_history_of_answers_with_causes(self, place: Town) -> None:
        place.submit(8, 10_000, "south")
        place.play()
        job = due(place, within_s=1800)
        place.play(2)
        shown = page(place, job)
        assert "moved later by 10 s: it waits for GPUs" in shown

    def test_met_deadline_shows_time_to_spare(self, place: Town) -> None:
        job = due(place, within_s=1000)
        place.play(12)
        job.refresh_from_db()
        assert job.ended_at is not None
        assert job.deadline_at is not None
        assert "Deadline met, with 15 min" in page(place, job)

    def test_missed_deadline_is_shown_while_running_and_after(self, place: Town) -> None:
        job = due(place, within_s=15, work_s=60)
        place.play(3)
        assert "Deadline missed: it runs without a plan" in page(place, job)
        place.play(6)
        job.refresh_from_db()
        assert job.state == "succeeded"
        assert "Deadline missed, by" in page(place, job)

    def test_states_that_policy_does_not_plan_deadlines(self, place: Town) -> None:
        Pool.objects.update(policy="fifo")
        job = due(place, within_s=600)
        place.cluster.pool.refresh_from_db()
        place.play()
        assert "Policy fifo does not plan for deadlines" in page(place, job)

    def test_returns_404_to_other_users(self, place: Town) -> None:
        job = due(place, within_s=600)
        place.play()
        for client in (place.neighbour, place.outsider):
            assert client.get(f"/jobs/{job.uid}/").status_code == 404
            assert client.get(f"/api/v1/jobs/{job.uid}/deadline").status_code == 404


class TestRestDeadline:
    def asked(self, stage: ApiStage, **more: Any) -> dict[str, Any]:
        fields = {"deadline": "30m", "estimate_s": 60, **more}
        made: dict[str, Any] = stage.post("jobs", stage.spec(**fields)).json()
        stage.cluster.round(after_s=10)
        return made

    def test_answer_arrives_within_one_round(self, stage: ApiStage) -> None:
        made = self.asked(stage)
        assert made["deadline_answer"] is None
        shown = stage.get(f"jobs/{made['id']}").json()["deadline_answer"]
        assert shown["standing"] == "planned"
        answer = shown["answer"]
        assert (answer["state"], answer["gpus"], answer["chance"]) == ("planned", 2, 0.875)
        assert (answer["by"], answer["points"]) == (shown["by"], "100.000000")
        assert len(answer["leases"]) == 1
        assert stage.get(f"jobs/{made['id']}/why").json()["deadline_answer"] == shown

    def test_history_is_newest_first(self, stage: ApiStage) -> None:
        made = self.asked(stage)
        job = Job.objects.get(uid=made["id"])
        begin_us = to_us(stage.cluster.at)
        JobAnswer.objects.create(
            job=job, tenant_id=job.tenant_id, round=900, at=stage.cluster.at, state="refused",
            reward_micro=0, gpus=1, one_node=True, leases=[], limited_by="capacity",
            blocked=[[begin_us, begin_us + 60 * 10**6]], cause="a node was lost",
        )  # fmt: skip
        answered = stage.get(f"jobs/{made['id']}/deadline").json()["deadline_answer"]
        assert answered["standing"] == "refused"
        assert [row["state"] for row in answered["answers"]] == ["refused", "planned"]
        assert answered["answer"]["cause"] == "a node was lost"
        assert (answered["answer"]["limit"], len(answered["answer"]["blocked"])) == ("capacity", 1)

    def test_is_null_without_deadline(self, stage: ApiStage) -> None:
        made = stage.post("jobs", stage.spec()).json()
        assert made["deadline_answer"] is None
        assert stage.get(f"jobs/{made['id']}/deadline").json() == {"deadline_answer": None}


class TestDryRun:
    def test_predicts_answer_of_next_round(self, stage: ApiStage) -> None:
        asked = stage.spec(deadline="30m", estimate_s=60)
        answered = stage.post("jobs/dry-run", asked).json()["deadline_answer"]
        assert answered["answer"]["state"] == "planned"
        assert not JobAnswer.objects.exists()
        assert not Job.objects.exists()
        assert Round.objects.count() == answered["round"] - 1

    def test_names_limit_and_earliest_feasible_deadline(self, stage: ApiStage) -> None:
        asked = stage.spec(deadline="10m", estimate_s=3600)
        answered = stage.post("jobs/dry-run", asked).json()["deadline_answer"]["answer"]
        assert (answered["state"], answered["limit"]) == ("refused", "length")
        assert answered["earliest"] is not None

    def test_states_that_policy_does_not_plan_deadlines(self, stage: ApiStage) -> None:
        Pool.objects.update(policy="fifo")
        answered = stage.post("jobs/dry-run", stage.spec(deadline="10m")).json()["deadline_answer"]
        assert answered["answer"] is None
        assert "fifo does not plan for deadlines" in answered["text"]
        assert stage.post("jobs/dry-run", stage.spec()).json()["deadline_answer"] is None

    def test_states_that_round_cannot_be_decided(
        self, stage: ApiStage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: object) -> None:
            raise ValueError("broken")

        monkeypatch.setattr(POLICY, "decide", fail)
        answered = stage.post("jobs/dry-run", stage.spec(deadline="10m")).json()["deadline_answer"]
        assert answered["answer"] is None
        assert "cannot be decided" in answered["text"]

    def test_answer_is_shown_next_to_the_form(self, place: Town) -> None:
        sent = {
            "side": "form", "pool": place.cluster.pool.name, "gpus": "1", "deadline": "1h",
            "estimate_s": "60", "command": "true",
        }  # fmt: skip
        shown = text(place.owner.post("/t/north/jobs/dry-run/", sent))
        assert "would plan it to end by 2030-01-01" in shown
