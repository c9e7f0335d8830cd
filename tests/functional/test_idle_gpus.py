"""Test GPUs that a lease holds idle: counted once, warned about, shown to its tenant only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduling.engine.clock import wall_now
from scheduling.engine.fence import release_fence, take_fence
from scheduling.engine.idle_gpus import read_idle, warn_idle
from scheduling.models import IdleDay, IdleReading, Job, Lease, LeaseEvent, Pool, PoolClock
from tests.functional.test_job_usage import ended, running, said, wrote
from tests.functional.visitors import Town, town

S_US = 10**6


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, settings: Any) -> Town:
    request.getfixturevalue("db")
    settings.LOCAL_ROOT = str(tmp_path)
    return town()


def sampled(root: Path, job: Job, levels: Sequence[int | None], *, lease: int = 1) -> None:
    """Write the samples of a GPU, one per minute."""
    rows = [
        [60_000 * minute, 1000, 10, 10, [level], [None]]
        for minute, level in enumerate(levels, start=1)
    ]
    wrote(root, job, said(rows), lease)


def read(place: Town, *, minutes: int = 0) -> None:
    """Read the samples, after `minutes` of the pool's clock."""
    lab = place.cluster
    lab.at += timedelta(minutes=minutes)
    PoolClock.objects.filter(pool=lab.pool).update(anchor_pool=lab.at, anchor_wall=wall_now())
    IdleReading.objects.update(read_at=wall_now() - timedelta(hours=1))
    read_idle(Pool.objects.get(pk=lab.pool.pk), seconds=60)


def counted() -> tuple[float, float]:
    """Return the sampled and the idle minutes, which are the same in both tables."""
    readings = IdleReading.objects.values_list("known_us", "idle_us")
    days = IdleDay.objects.values_list("known_us", "idle_us")
    sums = [tuple(map(sum, zip((0, 0), *rows, strict=True))) for rows in (readings, days)]
    assert sums[0] == sums[1]
    return sums[0][0] / 60 / S_US, sums[0][1] / 60 / S_US


def warn(place: Town) -> int:
    """Warn of idle leases as a round does."""
    pool = Pool.objects.get(pk=place.cluster.pool.pk)
    token = take_fence(pool.pk, holder="test", hold_s=60)
    assert token is not None
    try:
        return warn_idle(pool, token, at=place.cluster.at, scale=1)
    finally:
        release_fence(pool.pk, token)


class TestCount:
    def test_counts_each_sample_once(self, place: Town, tmp_path: Path) -> None:
        job = running(place, minutes=10)
        sampled(tmp_path, job, [0, 0, 500, None])
        read(place)
        assert counted() == (3, 2)
        read(place)
        assert counted() == (3, 2)
        sampled(tmp_path, job, [0, 0, 500, None, 0, 0])
        read(place)
        assert counted() == (4, 3)  # the last sample may still change

    def test_end_of_lease_counts_the_rest_once(self, place: Town, tmp_path: Path) -> None:
        job = running(place, minutes=10)
        sampled(tmp_path, job, [0, 0, 0])
        lease = Lease.objects.get()
        assert lease.started_at is not None
        ended(lease, lease.started_at + timedelta(minutes=2, seconds=30))
        for _ in range(2):
            read(place)
        assert counted() == (2.5, 2.5)
        reading = IdleReading.objects.get()
        assert (reading.is_over, reading.idle_since) == (True, None)

    def test_merged_samples_are_not_counted_again(self, place: Town, tmp_path: Path) -> None:
        job = running(place, minutes=10)
        sampled(tmp_path, job, [0, 0, 0, 0])
        read(place)
        assert counted() == (3, 3)
        # the shim has merged pairs of samples, the second pair across the cursor
        rows = [[60_000 * end, 1000, 10, 10, [400], [None]] for end in (2, 4, 6, 8)]
        wrote(tmp_path, job, said(rows))
        read(place)
        assert counted() == (6, 3)

    def test_unusable_samples_are_unknown(self, place: Town, tmp_path: Path) -> None:
        job = running(place, minutes=10)
        wrote(tmp_path, job, b"[]")
        read(place)
        assert counted() == (0, 0)
        assert IdleReading.objects.get().idle_since is None


class TestPages:
    @pytest.fixture
    def job(self, place: Town, tmp_path: Path) -> Job:
        """Return a job that was warned of its GPU, idle for 39 of 40 sampled minutes."""
        job = running(place, minutes=42)
        sampled(tmp_path, job, [900, *[0] * 40])
        read(place)
        assert warn(place) == 1
        return job

    def test_tell_the_tenant_what_its_jobs_hold_idle(self, place: Town, job: Job) -> None:
        assert "unused since" in place.owner.get("/t/north/").content.decode()
        shown = place.mate.get(f"/jobs/{job.uid}/").content.decode()
        assert "its GPU had been unused for 41 min" in " ".join(shown.split())
        statement = place.mate.get("/t/north/ledger/statement/").content.decode()
        assert "<b>0.7 GPU-hours</b> of 0.7 sampled" in " ".join(statement.split())

    def test_of_others_show_nothing(self, place: Town, job: Job) -> None:
        assert job.tenant.slug == "north"
        for path in ("/t/south/", "/t/south/ledger/statement/"):
            shown = place.neighbour.get(path).content.decode()
            assert "unused since" not in shown
            assert "Held idle" not in shown

    def test_rest_has_exact_sums(self, place: Town, job: Job) -> None:
        answer = place.owner.get(f"/api/v1/jobs/{job.uid}/usage").json()
        sampled_us, idle_us = 40 * 60 * S_US, 39 * 60 * S_US
        assert (answer["gpu_sampled_us"], answer["gpu_idle_us"]) == (sampled_us, idle_us)
        assert answer["gpus_idle_warned_at"] is not None
        path = f"/api/v1/pools/{place.cluster.pool.name}/idle/north"
        [day] = place.mate.get(path).json()["results"]
        assert (day["gpu_sampled_us"], day["gpu_idle_us"]) == (sampled_us, idle_us)
        assert place.neighbour.get(path).status_code == 404

    def test_list_of_days_has_pages(self, place: Town) -> None:
        of = {"tenant": place.tenant, "pool": place.cluster.pool, "known_us": 5, "idle_us": 2}
        for day in (1, 2, 3):
            IdleDay.objects.create(**of, day=date(2030, 1, day))
        path = f"/api/v1/pools/{place.cluster.pool.name}/idle/north"
        first = place.owner.get(path, {"limit": 2}).json()
        last = place.owner.get(path, {"limit": 2, "cursor": first["next"]}).json()
        days = [row["day"] for row in (*first["results"], *last["results"])]
        assert days == ["2030-01-03", "2030-01-02", "2030-01-01"]
        assert last["next"] is None


class TestWarning:
    def events(self) -> list[dict[str, Any]]:
        return list(LeaseEvent.objects.filter(kind="idle").values_list("data", flat=True))

    def test_comes_once_for_each_idle_span(self, place: Town, tmp_path: Path) -> None:
        job = running(place, minutes=40)
        sampled(tmp_path, job, [900, *[0] * 29])
        read(place)
        warn(place)
        assert self.events() == []  # 29 minutes
        sampled(tmp_path, job, [900, *[0] * 30])
        read(place)
        for _ in range(2):
            warn(place)
        lease = Lease.objects.get()
        assert lease.started_at is not None
        begin_us = round(lease.started_at.timestamp() * S_US)
        assert self.events() == [{"since_us": begin_us + 60 * S_US, "gpus": 1}]
        # it works for a minute, then idles again
        sampled(tmp_path, job, [900, *[0] * 30, 900, *[0] * 31])
        read(place, minutes=25)
        warn(place)
        assert len(self.events()) == 2

    def test_samples_that_stopped_warn_of_nothing(self, place: Town, tmp_path: Path) -> None:
        job = running(place, minutes=120)
        sampled(tmp_path, job, [0] * 60)  # then the node reports nothing for an hour
        read(place)
        warn(place)
        assert self.events() == []

    def test_can_be_turned_off(self, place: Town, tmp_path: Path) -> None:
        job = running(place, minutes=120)
        Pool.objects.update(idle_warn_s=0)
        sampled(tmp_path, job, [0] * 100)
        read(place)
        warn(place)
        assert self.events() == []
