"""The overview's figures of a tenant's last days, from slowdown to preemptions."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from scheduling.models import Job
from scheduling.selectors.tenants.week import ServedJobs, read_served_days
from tests.factories import BEGIN
from tests.functional.page_text import sentences
from tests.functional.pool_stage import Stage
from tests.functional.test_job_fairness import ended_town, preempted_pool
from tests.functional.visitors import Town
from tests.stages import staged

over = staged(ended_town)
there = staged(preempted_pool)


def days_of(place: Town, since: timedelta = timedelta(0)) -> dict[date, ServedJobs]:
    at, pool = place.cluster.at, place.cluster.pool
    return read_served_days(pool.pk, place.tenant.pk, since=BEGIN + since, at=at)


def date_deadline(job: Job, seconds: int, steps: list[list[int]]) -> None:
    at = job.submitted_at + timedelta(seconds=seconds)
    Job.objects.filter(pk=job.pk).update(
        job_class="soft_slo", deadline_at=at, deadline_steps=steps
    )  # fmt: skip


class TestWeek:
    """Two gangs with a run time of 30 s ended 40 s and 70 s after their submission."""

    def test_counts_slowdown_and_sharing_loss_of_ended_jobs(self, over: Town) -> None:
        (served,) = days_of(over).values()
        assert (served.jobs, served.compared, served.losses) == (2, 2, 1)
        assert served.slowdown == pytest.approx((40 / 30 + 70 / 30) / 2)
        assert (served.due, served.miss_share, served.reward_share) == (0, None, None)
        page = sentences(over.owner.get("/t/north/").content.decode())
        assert "2 jobs ended in the last 7 days, 1 of them with a sharing loss" in page
        assert "2030-01-01 2 1.83 50 % 1/2" in page
        assert "Deadlines missed" not in page

    def test_counts_jobs_from_an_instant_on(self, over: Town) -> None:
        (served,) = days_of(over, timedelta(seconds=41)).values()
        assert served.jobs == 1

    def test_leaves_out_slowdown_of_jobs_that_ran_before_a_hold(self, over: Town) -> None:
        first, second = Job.objects.filter(tenant=over.tenant).order_by("id")
        released_at = first.first_started_at
        assert released_at is not None
        Job.objects.filter(pk=first.pk).update(eligible_at=released_at)
        Job.objects.filter(pk=second.pk).update(eligible_at=second.ended_at)
        (served,) = days_of(over).values()
        assert (served.jobs, served.slowdown) == (1, 1)

    def test_counts_missed_deadlines_and_points(self, over: Town) -> None:
        first, second = Job.objects.filter(tenant=over.tenant).order_by("id")
        date_deadline(first, 35, [[100, 100], [200, 40]])
        date_deadline(second, 60, [[100, 100]])
        (served,) = days_of(over).values()
        assert (served.due, served.missed) == (2, 1)
        assert served.reward_share == 40 / 200
        page = sentences(over.owner.get("/t/north/").content.decode())
        assert "2 jobs ended in the last 7 days, 1 of 2 deadlines missed" in page
        assert "50 % 1/2 20 %" in page

    def test_counts_passed_deadline_of_active_job(self, over: Town) -> None:
        Job.objects.filter(tenant=over.tenant).update(submitted_at=BEGIN, state="running")
        Job.objects.filter(tenant=over.tenant).update(ended_at=None)
        first, second = Job.objects.filter(tenant=over.tenant).order_by("id")
        date_deadline(first, 20, [[100, 100]])
        date_deadline(second, 200, [[100, 100]])
        assert [day.due for day in days_of(over).values()] == [1]

    def test_rest_has_the_figures_of_the_page(self, over: Town) -> None:
        first, second = Job.objects.filter(tenant=over.tenant).order_by("id")
        date_deadline(first, 35, [[100, 100], [200, 40]])
        date_deadline(second, 60, [[100, 100]])
        path = f"/api/v1/pools/{over.cluster.pool.name}/week/north"
        answer = over.owner.get(path).json()
        (day,) = answer["days"]
        assert (day["day"], day["jobs"], day["losses"]) == ("2030-01-01", 2, 1)
        assert day["slowdown"] == pytest.approx((40 / 30 + 70 / 30) / 2)
        assert (day["due"], day["missed"]) == (2, 1)
        assert (day["points"], day["most"]) == ("40.000000", "200.000000")
        assert answer["preemptions"]["preemptions"] == 0
        assert over.neighbour.get(path).status_code == 404

    def test_is_hidden_from_other_tenants(self, over: Town) -> None:
        Job.objects.filter(tenant=over.tenant).update(name="secret")
        page = over.neighbour.get("/t/south/").content.decode()
        assert 'id="week"' not in page
        assert over.neighbour.get("/t/north/").status_code == 404

    def test_counts_preemptions(self, there: Stage) -> None:
        page = sentences(there.page("owner", "/t/alpha/"))
        assert "Rounds took the GPUs of its jobs 1 time" in page
        assert "before the expiry, with notice 1 at the end of a term 0" in page
