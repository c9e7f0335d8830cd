"""Test lists of ended jobs by a value: the order, and pages while other jobs end."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from scheduling.models import Job
from scheduling.requests.job_filters import BY_VALUE, JobQuery
from scheduling.selectors.jobs import sorted_jobs
from scheduling.selectors.jobs.list_filters import JobListFilter, list_filter
from scheduling.selectors.jobs.sorted_jobs import SortedPage, SortMark, list_sorted
from tenants.scopes import tenant_scope
from tests.factories import BEGIN, Cluster, cluster
from tests.functional.pool_stage import headline
from tests.functional.visitors import Town, town

pytestmark = pytest.mark.django_db
LIST = "/t/north/jobs/"
SEEDS, JOBS, NEWEST, PAGE = 6, 25, 15, 4


class History:
    """A tenant's jobs with values from a few numbers, so that many are equal."""

    def __init__(self, lab: Cluster, seed: int) -> None:
        self.lab, self.draw = lab, random.Random(seed)  # noqa: S311 - a seeded story
        self.listing: JobListFilter = list_filter(JobQuery(), [lab.tenants["aa"].pk])

    def add(self, count: int) -> None:
        """Submit jobs, of which some have ended and some of these are not counted yet."""
        few = self.draw.randrange
        Job.objects.bulk_create(
            Job(
                pool=self.lab.pool,
                tenant=self.lab.tenants["aa"],
                name=f"j{number}",
                gpus=1,
                submitted_at=BEGIN,
                eligible_at=BEGIN + timedelta(seconds=few(2)) if few(2) else None,
                first_started_at=BEGIN + timedelta(seconds=few(4)) if few(3) else None,
                ended_at=BEGIN + timedelta(seconds=4 + few(4)),
                state=self.draw.choice(("succeeded", "failed", "cancelled", "running")),
                received_gpu_us=few(4) * 10**9 if few(4) else None,
            )
            for number in range(count)
        )

    def go_on(self) -> None:
        """End and count some jobs, and submit others: fewer than `NEWEST` in total."""
        Job.objects.filter(state="running", pk__in=self._some()).update(state="succeeded")
        Job.objects.filter(received_gpu_us=None, pk__in=self._some()).update(received_gpu_us=10**9)
        if Job.objects.count() < JOBS + 4:
            self.add(1)

    def _some(self) -> list[int]:
        return [pk for pk in Job.objects.values_list("pk", flat=True) if self.draw.randrange(3)]

    def page(self, sort: str, after: SortMark | None) -> SortedPage:
        with tenant_scope(self.lab.tenants["aa"].pk):
            return list_sorted(self.listing, sort, after=after, limit=PAGE)

    def expected(self, sort: str) -> list[int]:
        """Return the ids of the whole list, computed plainly."""
        rows = list(Job.objects.exclude(state="running").order_by("-pk")[:NEWEST])
        keyed = [(value, job.pk) for job in rows if (value := value_of(job, sort)) is not None]
        return [pk for _, pk in sorted(keyed, reverse=True)]


def value_of(job: Job, sort: str) -> Any:
    if sort == "gpu_hours":
        return job.received_gpu_us
    if sort == "ended":
        return job.ended_at
    begin = job.first_started_at or job.ended_at
    assert begin is not None
    return max(timedelta(), begin - job.arrived_at)


@pytest.mark.parametrize("sort", BY_VALUE)
def test_pages_have_each_job_once_while_others_end(
    sort: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_jobs, "SORTED_MAX", NEWEST)
    lab = cluster({"aa": 1})
    for seed in range(SEEDS):
        with transaction.atomic():
            history = History(lab, seed)
            history.add(JOBS)
            expected, shown = history.expected(sort), []
            page = history.page(sort, None)
            while True:
                shown += [job.pk for job in page.jobs]
                if page.next is None:
                    break
                history.go_on()
                page = history.page(sort, page.next)
            assert len(shown) == len(set(shown))
            assert [pk for pk in shown if pk in expected] == expected
            keys = [
                (value_of(job, sort), job.pk) for pk in shown for job in (Job.objects.get(pk=pk),)
            ]
            assert keys == sorted(keys, reverse=True)
            transaction.set_rollback(True)


def test_reads_a_fixed_number_of_queries() -> None:
    history = History(cluster({"aa": 1}), 0)
    history.add(3)
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as queries:
            history.page("ended", None)
        counts.append(len(queries))
        history.add(20)
    assert counts[0] == counts[1]


@pytest.fixture
def place() -> Town:
    there = town()
    for number, wait in enumerate((5, 9, 7)):
        job = there.submit()
        Job.objects.filter(pk=job.pk).update(
            name=f"j{number}",
            state="succeeded",
            first_started_at=job.submitted_at + timedelta(seconds=wait),
            ended_at=job.submitted_at + timedelta(seconds=20 - wait),
            received_gpu_us=wait * 3_600 * 10**6,
        )
    return there


class TestPage:
    def test_shows_the_column_of_the_order(self, place: Town) -> None:
        orders = {"gpu_hours": "9.00", "queue_time": "0:00:09", "ended": ""}
        for sort, largest in orders.items():
            answer = place.owner.get(f"{LIST}?sort={sort}")
            names = [row["job"].name for row in answer.context["rows"]]
            assert names == (["j0", "j2", "j1"] if sort == "ended" else ["j1", "j2", "j0"])
            assert largest in answer.content.decode()
            assert answer.content.decode().count('aria-sort="descending"') == 1

    def test_goes_on_at_its_mark(self, place: Town, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("portal.jobs.views.job_list.read.PAGE", 2)
        monkeypatch.setattr(
            "scheduling.selectors.jobs.tenant_jobs.jobs_page.__kwdefaults__", {"limit": 2}
        )
        first = place.owner.get(f"{LIST}?sort=gpu_hours")
        mark = first.context["next_mark"]
        assert f"sort=gpu_hours&amp;beyond={mark}" in first.content.decode()
        second = place.owner.get(f"{LIST}?sort=gpu_hours&beyond={mark}")
        assert [row["job"].name for row in second.context["rows"]] == ["j0"]
        for bad in ("x", "1.2", "1.2.3.4", "9" * 20 + ".1.1"):
            answer = place.owner.get(f"{LIST}?sort=gpu_hours&beyond={bad}")
            assert len(answer.context["rows"]) == 2

    def test_sorts_ended_jobs_only(self, place: Town) -> None:
        page = place.owner.get(f"{LIST}?sort=ended&state=running").content.decode()
        assert "orders ended jobs only" in page
        assert headline(page) == "No match: running."
