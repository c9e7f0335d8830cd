"""Test that lists find jobs by any filters, and that the finder keeps to the scope's tenants."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from scheduling.models import Job, Pool
from scheduling.selectors.jobs.ended_jobs import EPOCH, SPANS, day_keys, find_ended
from scheduling.selectors.jobs.list_filters import ENDED, JobListFilter
from scheduling.selectors.jobs.lists import count_jobs, list_jobs
from tenants.models import User
from tenants.scopes import site_scope, tenant_scope, tenants_scope
from tests.factories import BEGIN, Cluster, cluster
from tests.scope import nobody, uncompared

BLOCK = 1 << 14
NAMES = ("train-a", "Train-B", "eval%1", "eval_2", "back\\slash", "x", "größe-ä", "train-1%")
DAY = timedelta(days=1)


@pytest.fixture
def lab(db: None) -> Cluster:  # noqa: ARG001 - the database that it fills
    """Create jobs of two tenants with every mix of facts, in four blocks of ids."""
    lab = cluster({"aa": 4, "bb": 4})
    other = cluster({}, nodes=1)
    people = [User.objects.create(username=name) for name in ("ada", "ben")]
    chosen = random.Random(5)  # noqa: S311 - a test's data
    rows = []
    for number in range(200):
        state = chosen.choice([*ENDED, *ENDED, *Job.ACTIVE_STATES])
        is_over = state in ENDED
        rows.append(
            Job(
                id=chosen.randrange(4) * BLOCK + 1000 + number,
                pool=chosen.choice([lab.pool, other.pool]),
                tenant=lab.tenants[chosen.choice("ab") * 2],
                name=chosen.choice(NAMES) + (str(number) if number % 3 else ""),
                submitted_by=chosen.choice([*people, None]),
                submitted_at=BEGIN + chosen.randrange(-900, 100) * DAY / 3,
                gpus=1,
                state=state,
                exit_code=chosen.choice([0, 0, 1, 137, None]) if is_over else None,
                tags=chosen.sample(["one", "two", "three"], chosen.randrange(3)),
            )
        )
    Job.objects.bulk_create(rows)
    return lab


def _matches(rows: list[Job], wanted: JobListFilter) -> list[int]:
    """Return the ids that the filter describes, by a plain reading of all jobs."""
    tests: list[Callable[[Job], bool]] = [
        lambda job: wanted.tenants is None or job.tenant_id in wanted.tenants,
        lambda job: not wanted.states or job.state in wanted.states,
        lambda job: not wanted.pool or job.pool.name == wanted.pool,
        lambda job: wanted.text.lower() in job.name.lower(),
        lambda job: wanted.submitter is None or job.submitted_by_id == wanted.submitter,
        lambda job: wanted.exit_code is None or job.exit_code == wanted.exit_code,
        lambda job: set(wanted.tags) <= set(job.tags),
        lambda job: wanted.since is None or job.submitted_at >= wanted.since,
        lambda job: wanted.until is None or job.submitted_at < wanted.until,
        lambda job: (
            wanted.before is None
            or (job.pk > wanted.before if wanted.oldest_first else job.pk < wanted.before)
        ),
    ]
    ids = [job.pk for job in rows if all(one(job) for one in tests)]
    return sorted(ids, reverse=not wanted.oldest_first)


def _filters(lab: Cluster) -> Iterator[JobListFilter]:
    ada, pools = User.objects.get(username="ada").pk, Pool.objects.values_list("name", flat=True)
    aa = lab.tenants["aa"].pk
    texts = ("", "TRAIN-b", "%", "_", "\\", "e%", "x", "größ")
    spans = ((None, None), (BEGIN - 70 * DAY, BEGIN), (None, BEGIN - DAY / 2), (BEGIN, None))
    facts = itertools.product(texts, (None, ada), (None, 137), ((), ("one",)))
    rest = itertools.cycle(
        itertools.product(((), ("failed",), ("pending",), ("succeeded", "failed")), spans)
    )
    for number, (text, submitter, exit_code, tags) in enumerate(facts):
        states, (since, until) = next(rest)
        yield JobListFilter(
            tenants=(None, [aa], [aa, lab.tenants["bb"].pk])[number % 3],
            text=text,
            submitter=submitter,
            exit_code=exit_code,
            tags=tags,
            states=states,
            since=since,
            until=until,
            pool=pools[0] if number % 5 == 0 else "",
            oldest_first=number % 2 == 1,
            before=(None, 2 * BLOCK + 1200)[number % 4 == 3],
        )


class TestLists:
    def test_find_what_the_filters_describe(self, lab: Cluster) -> None:
        sizes, rows = [], list(Job.objects.select_related("pool"))
        for wanted in _filters(lab):
            expected = _matches(rows, wanted)
            with tenants_scope(wanted.tenants):
                jobs, more = list_jobs(wanted, limit=7)
                assert [job.pk for job in jobs] == expected[:7], wanted
                assert more == (len(expected) > 7)
                assert count_jobs(wanted, most=9) == min(9, len(expected))
            sizes.append(len(expected))
        assert sum(size > 7 for size in sizes) > 4
        assert sum(size > 0 for size in sizes) > 15

    def test_continue_at_the_next_page(self, lab: Cluster) -> None:
        for is_oldest in (False, True):
            wanted = JobListFilter(
                tenants=[lab.tenants["aa"].pk], text="train", oldest_first=is_oldest
            )
            seen: list[int] = []
            more = True
            with tenant_scope(lab.tenants["aa"].pk):
                while more:
                    before = seen[-1] if seen else None
                    page, more = list_jobs(replace(wanted, before=before), limit=4)
                    seen += [job.pk for job in page]
            assert seen == _matches(list(Job.objects.select_related("pool")), wanted)
            assert len(seen) > 9


class TestFinder:
    """The function reads as the owner of the table, so only the scope limits it."""

    def test_finds_no_other_tenant(self, lab: Cluster) -> None:
        own, other = lab.tenants["aa"].pk, lab.tenants["bb"].pk
        with uncompared(), tenant_scope(own):
            assert find_ended(JobListFilter(tenants=[other], text="train"), limit=9) == []
            everyone = find_ended(JobListFilter(tenants=None, text="train"), limit=900)
            both = find_ended(JobListFilter(tenants=[own, other], text="train"), limit=900)
        mine = find_ended(JobListFilter(tenants=[own], text="train"), limit=900)
        assert mine
        assert everyone == both == mine

    def test_reads_keys_as_values_only(self, lab: Cluster) -> None:
        own, other = lab.tenants["aa"].pk, lab.tenants["bb"].pk
        forged = [f"s:failed,{other}:0:all", f"}}{other}:0:all", "all'", f"{other}:0:s:failed"]
        with uncompared(), tenant_scope(own), connection.cursor() as cursor:
            for key in forged:
                cursor.execute(
                    "SELECT * FROM evenshare_find_jobs(NULL, %s, %s, NULL, NULL, NULL, NULL, 9,"
                    " false)",
                    [[key], [key]],
                )
                assert cursor.fetchall() == []

    def test_ignores_objects_of_the_caller(self, db: None) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT proconfig::text FROM pg_proc WHERE proname = 'evenshare_find_jobs'"
            )
            assert "search_path=public, pg_temp" in cursor.fetchone()[0]

    def test_needs_a_scope(self, lab: Cluster) -> None:
        wanted = JobListFilter(tenants=[lab.tenants["aa"].pk], text="train")
        refused = pytest.raises(DatabaseError, match="without a scope")
        with nobody(), refused, transaction.atomic():
            find_ended(wanted, limit=9)

    def test_finds_nothing_without_jobs(self, db: None) -> None:
        cluster({"aa": 4})
        with site_scope():
            assert find_ended(JobListFilter(tenants=None, text="train"), limit=9) == []

    def test_follows_changes_of_tags(self, lab: Cluster) -> None:
        job = Job.objects.filter(tenant=lab.tenants["aa"], state="failed").first()
        assert job is not None
        wanted = JobListFilter(tenants=[job.tenant_id], tags=["renamed"])
        Job.objects.filter(pk=job.pk).update(tags=["renamed"])
        assert find_ended(wanted, limit=9) == [job.pk]
        Job.objects.filter(pk=job.pk).update(tags=[])
        assert find_ended(wanted, limit=9) == []


class TestDays:
    @given(st.integers(-800, 3000), st.integers(0, 2500))
    def test_are_covered_once_by_few_spans(self, first: int, days: int) -> None:
        since = EPOCH + first * DAY + DAY / 2
        keys = day_keys(since, since + days * DAY) or []
        sizes = {kind: size for size, kind in SPANS}
        covered = [
            day
            for kind, number in (key.split(":") for key in keys)
            for day in range(int(number) * sizes[kind], (int(number) + 1) * sizes[kind])
        ]
        assert covered == list(range(first, first + days + 1))
        assert len(keys) <= 2 * (31 + 31) + days // 1024 + 1

    def test_end_before_midnight(self) -> None:
        assert day_keys(EPOCH, EPOCH + DAY) == ["d:0"]
        assert day_keys(EPOCH, EPOCH) == []
        assert day_keys(None, None) is None
        assert len(day_keys(None, EPOCH) or ()) == 16
