"""A job's rho and the cost of its preemptions, on its page and in REST."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from evenshare_core.policies import registry
from portal.common.clocks import clocks
from portal.jobs.text.fairness import fairness_context
from portal.jobs.text.losses import WorkLoss
from scheduling.models import Job, Lease, Measurement
from scheduling.selectors.jobs.fairness import UNKNOWN
from scheduling.selectors.jobs.preemption_costs import read_job_cost, read_tenant_cost
from scheduling.selectors.jobs.tenant_jobs import job_story
from scheduling.selectors.pools.lines import pool_facts
from tenants.answers import time_text
from tests.functional.page_text import sentences
from tests.functional.pool_stage import Stage
from tests.functional.test_preemption_pages import loser, played_pool
from tests.functional.visitors import Town, town
from tests.stages import staged
from tests.toy_policy.preempting import POLICY


def ended_town() -> Town:
    """Create a town in which two gangs of north ran in turn, while one of south ran."""
    place = town()
    place.submit(4, 100_000, tenant="south")
    for _ in range(2):
        place.submit(4, 30)
    place.play(8)
    return place


over = staged(ended_town)


def preempted_pool() -> Stage:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.POLICIES, POLICY.name, POLICY)
        return played_pool()


there = staged(preempted_pool)


def fairness(place: Town, job: Job) -> Any:
    return place.owner.get(f"/api/v1/jobs/{job.uid}/fairness").json()


class TestRho:
    """Each gang of 4 deserves 2 of 4 GPUs while both are active, and 4 as the only active one."""

    def test_of_ended_jobs_counts_their_time_in_the_queue(self, over: Town) -> None:
        first, second = Job.objects.filter(tenant=over.tenant).order_by("id")
        assert (first.state, second.state) == ("succeeded", "succeeded")
        rows = [fairness(over, job) for job in (first, second)]
        assert [row["received_gpu_s"] for row in rows] == [4 * 30, 4 * 30]
        assert [row["deserved_gpu_s"] for row in rows] == [2 * 40, 2 * 40 + 4 * 30]
        assert [row["rho"] for row in rows] == [1.5, 0.6]
        page = sentences(over.owner.get(f"/jobs/{second.uid}/").content.decode())
        assert "rho 0.60: below its fair share" in page
        assert "Below 1 its fair share would have been faster." in page

    def test_of_active_job_counts_until_the_last_check(self, over: Town) -> None:
        job = Job.objects.get(tenant__slug="south")
        row = over.neighbour.get(f"/api/v1/jobs/{job.uid}/fairness").json()
        assert row["received_gpu_s"] == 4 * 70
        assert row["deserved_gpu_s"] == 4 * 80
        assert row["as_of"] == time_text(over.cluster.at)
        page = sentences(over.neighbour.get(f"/jobs/{job.uid}/").content.decode())
        assert "rho so far 0.88: below its fair share" in page

    def test_is_unknown_before_a_round_has_counted_the_job(self, over: Town) -> None:
        job = over.submit(1)
        assert fairness(over, job)["rho"] is None
        page = sentences(over.owner.get(f"/jobs/{job.uid}/").content.decode())
        assert "rho is not known" in page
        assert "The next round counts its GPU-time." in page

    def test_is_unknown_for_ends_that_no_round_recorded(self, over: Town) -> None:
        job = Job.objects.filter(tenant=over.tenant).earliest("id")
        Job.objects.filter(pk=job.pk).update(deserved_gpu_us=None)
        assert fairness(over, job)["as_of"] is None
        page = sentences(over.owner.get(f"/jobs/{job.uid}/").content.decode())
        assert "No round has recorded the GPU-time of this job." in page

    def test_is_for_members_and_operators(self, over: Town) -> None:
        url = f"/api/v1/jobs/{Job.objects.filter(tenant=over.tenant).earliest('id').uid}/fairness"
        for client in (over.owner, over.mate, over.operator):
            assert client.get(url).status_code == 200
        for client in (over.neighbour, over.outsider):
            assert client.get(url).status_code == 404


class TestPreemptions:
    def test_of_simulated_job_cost_nothing(self, there: Stage) -> None:
        row = there.get("owner", f"/api/v1/jobs/{loser().uid}/fairness").json()["preemptions"]
        assert row == {
            "preemptions": 1, "early": 1, "moves": 0, "restarts": 0,
            "restart_gpu_s": 0.0, "work_lost_gpu_s": 0.0,
        }  # fmt: skip
        page = sentences(there.page("owner", f"/jobs/{loser().uid}/"))
        assert "Preempted once with notice, before the expiry 1" in page

    def test_without_preemption_are_not_shown(self, there: Stage) -> None:
        job = Job.objects.get(name="secret-of-beta")
        assert 'id="preemption-cost"' not in there.page("neighbour", f"/jobs/{job.uid}/")

    def test_cost_measured_time_to_suspend_and_resume_on_all_gpus(self, there: Stage) -> None:
        job = resumed(there)
        assert read_job_cost(job, simulates=False).restart_gpu_s is None
        measured(job, Measurement.Kind.SUSPEND, 10)
        assert read_job_cost(job, simulates=False).restart_gpu_s is None
        measured(job, Measurement.Kind.RESUME, 30)
        cost = read_job_cost(job, simulates=False)
        assert (cost.restarts, cost.restart_gpu_s) == (1, 4 * 40.0)
        assert cost.work_lost_gpu_s is None

    def test_move_is_no_preemption_but_a_restart(self, there: Stage) -> None:
        job = resumed(there)
        first, second = job.leases.order_by("number")
        Lease.objects.filter(pk=second.pk).update(granted_at=first.ended_at)
        cost = read_job_cost(job, simulates=True)
        assert (cost.preemptions, cost.early, cost.moves, cost.restarts) == (0, 0, 1, 1)

    def test_lost_work_is_added_from_outputs_of_preempted_leases(self, there: Stage) -> None:
        job = resumed(there)
        facts = pool_facts(job.pool_id)
        assert facts is not None
        story = job_story(job)
        cost = read_job_cost(job, simulates=False)
        taken, other = (lease.pk for lease in job.leases.order_by("number"))
        losses = {taken: WorkLoss("", 90.0), other: WorkLoss("", 3600.0)}
        lines = fairness_context(story, UNKNOWN, cost, losses, clocks(facts))["cost_lines"]
        assert [line.value for line in lines][-2:] == ["not known", "0.10 GPU-h"]

    def test_of_tenant_are_those_since_an_instant(self, there: Stage) -> None:
        job = resumed(there)
        ended_at = job.leases.earliest("number").ended_at
        assert ended_at is not None
        for since, count in ((ended_at, 1), (ended_at + timedelta(seconds=1), 0)):
            cost = read_tenant_cost(job.pool_id, job.tenant_id, since=since, simulates=True)
            assert cost.preemptions == count


def resumed(there: Stage) -> Job:
    """Return the preempted job with a job type and a second lease, which started a minute later."""
    job = loser()
    profile = there.lab.profile("alpha", "resnet", v100=1000)
    Job.objects.filter(pk=job.pk).update(profile=profile)
    lease = job.leases.get()
    assert lease.ended_at is not None
    lease.pk, lease.number, lease.end_reason = None, 2, ""
    lease.granted_at = lease.started_at = lease.ended_at + timedelta(minutes=1)
    lease.state, lease.ended_at = Lease.State.RUNNING, None
    lease.save()
    job.refresh_from_db()
    return job


def measured(job: Job, kind: Measurement.Kind, seconds: int) -> None:
    assert job.profile is not None
    Measurement.objects.create(
        tenant=job.tenant, profile=job.profile, kind=kind, used_reports=3,
        used_mean=seconds * 1_000_000, seen_at=job.submitted_at,
    )  # fmt: skip
