"""Test the common rate limit of a tenant, over all interfaces and processes."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from django.test import Client

from scheduling.models import Job
from tenants.models import RateBucket
from tenants.rate import Rate, RateError, drop_full_buckets, take
from tests.functional.api_stage import ApiStage, api_stage

# Practically no refill during a test.
SLOW = Rate(per_s=1e-9, full=10)


@pytest.fixture
def stage(db: None) -> ApiStage:  # noqa: ARG001 - pytest's fixture, asked for by its name
    return api_stage()


class TestBucket:
    def test_never_gives_more_than_it_holds_to_concurrent_callers(self, committed_db: str) -> None:
        """Threads replace processes here, because each has its own connection."""
        assert committed_db
        got: list[bool] = []

        def ask() -> None:
            from django.db import connections

            try:
                take("one", SLOW)
                got.append(True)
            except RateError:
                got.append(False)
            finally:
                connections.close_all()

        threads = [threading.Thread(target=ask) for _ in range(25)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(got) == {True: 10, False: 15}

    @pytest.mark.django_db
    def test_refills_over_time_up_to_capacity(self) -> None:
        take("one", SLOW, 10)
        with pytest.raises(RateError) as caught:
            take("one", SLOW, 4)
        assert caught.value.retry_after_s == pytest.approx(4e9)
        # This rate refills the bucket at once.
        quick = Rate(per_s=1e12, full=10)
        for _ in range(3):
            take("one", quick, 10)
        assert RateBucket.objects.get(key="one").left == 0
        take("two", SLOW, 3)
        assert RateBucket.objects.get(key="two").left == 7

    @pytest.mark.django_db
    def test_goes_into_debt_for_costs_above_capacity(self) -> None:
        take("one", SLOW, 25)
        assert RateBucket.objects.get().left == -15
        with pytest.raises(RateError):
            take("one", SLOW, 1)

    @pytest.mark.django_db
    def test_cost_above_capacity_requires_full_bucket(self) -> None:
        take("one", SLOW, 4)
        with pytest.raises(RateError):
            take("one", SLOW, 25)  # a cost above the bucket's size needs a full bucket
        RateBucket.objects.update(left=10)
        take("one", SLOW, 25)
        assert RateBucket.objects.get().left == -15

    @pytest.mark.django_db
    def test_is_deleted_once_full(self) -> None:
        take("old", SLOW)
        take("new", SLOW)
        RateBucket.objects.filter(key="old").update(at="2020-01-01T00:00:00Z")
        assert drop_full_buckets() == 1
        assert RateBucket.objects.get().key == "new"


class TestSubmissions:
    def ways(self, stage: ApiStage) -> dict[str, int]:
        """Return the status of one more submission through each interface."""
        browser = Client()
        browser.force_login(stage.people["ada"])
        form = {"side": "form", "pool": stage.pool, "gpus": "1", "act": "submit"}
        yaml = {**form, "side": "yaml", "yaml": f"pool: {stage.pool}\ngpus: 1\n"}
        return {
            "REST": stage.post("jobs", stage.spec()).status_code,
            "REST, many": stage.post("jobs/bulk", {"jobs": [stage.spec()]}).status_code,
            "form": browser.post("/t/aa/jobs/new/", form).status_code,
            "YAML": browser.post("/t/aa/jobs/new/", yaml).status_code,
        }

    def test_share_one_bucket_across_all_interfaces(self, stage: ApiStage) -> None:
        assert self.ways(stage) == {"REST": 201, "REST, many": 201, "form": 302, "YAML": 302}
        assert [one.key for one in RateBucket.objects.all()] == [
            f"submit:{stage.cluster.tenants['aa'].pk}"
        ]
        # If the bucket is empty, all interfaces refuse, and the form keeps its input.
        RateBucket.objects.update(left=-1e9)
        before = Job.objects.count()
        assert self.ways(stage) == dict.fromkeys(("REST", "REST, many", "form", "YAML"), 429)
        assert Job.objects.count() == before
        # Another tenant has a separate bucket.
        assert stage.post("jobs", stage.spec(), as_="bob").status_code == 201

    def test_rejections_return_retry_after_and_keep_input(self, stage: ApiStage) -> None:
        stage.post("jobs", stage.spec())
        # The bucket is full again in 10,000 s, minus the time of this test.
        RateBucket.objects.update(left=-3_000_000)
        refused = stage.post("jobs", stage.spec())
        assert refused.json()["reason_code"] == "throttled"
        assert 9_000 < int(refused["Retry-After"]) <= 10_001
        browser = Client()
        browser.force_login(stage.people["ada"])
        form = {"side": "form", "pool": stage.pool, "gpus": "1", "act": "submit", "name": "kept"}
        page = browser.post("/t/aa/jobs/new/", form)
        assert 9_000 < int(page.headers["Retry-After"]) <= 10_001
        assert b"exceeds its submission rate" in page.content
        assert b'value="kept"' in page.content
