"""Test a job's use on its page and in REST, and its audience; samples are untrusted text."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduling.engine.clock import wall_now
from scheduling.engine.executors.local_files import USAGE_BYTES
from scheduling.models import Job, Lease, LeaseTerm, Node, Pool, PoolClock
from scheduling.services import usage as service
from tests.functional.visitors import Town, reads, town

MIB = 2**20
WEIRD = "<script>alert(1)</script>"


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, settings: Any) -> Town:
    request.getfixturevalue("db")
    settings.LOCAL_ROOT = str(tmp_path)
    return town()


def running(place: Town, *, minutes: int = 20) -> Job:
    """Return a running job of a pool whose jobs are programs."""
    lab = place.cluster
    Pool.objects.filter(pk=lab.pool.pk).update(executor="local")
    job = place.submit(duration_s=100_000)
    Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING, leases_held=1)
    leased(place, job, 1, lab.at)
    lab.at += timedelta(minutes=minutes)
    PoolClock.objects.filter(pool=lab.pool).update(anchor_pool=lab.at, anchor_wall=wall_now())
    job.refresh_from_db()
    return job


def leased(place: Town, job: Job, number: int, at: datetime) -> Lease:
    lab = place.cluster
    lease = Lease.objects.create(
        pool=lab.pool, tenant=job.tenant, job=job, gpu_type=lab.gpu_type, number=number,
        state=Lease.State.RUNNING, gpus=1, granted_round=1, granted_at=at, started_at=at,
        expires_at=at + timedelta(hours=1), own=1, borrowed=0, price=0,
        placement=[[Node.objects.filter(pool=lab.pool)[0].pk, 1]],
    )  # fmt: skip
    LeaseTerm.objects.create(
        lease=lease, number=1, round=1, starts_at=at,
        expires_at=lease.expires_at, own=1, borrowed=0, price=0,
    )  # fmt: skip
    return lease


def ended(lease: Lease, at: datetime) -> None:
    Lease.objects.filter(pk=lease.pk).update(state=Lease.State.ENDED, ended_at=at)


def said(rows: list[Any], **more: Any) -> dict[str, Any]:
    facts = {"version": 1, "rank": 0, "cpus": 8, "gpus": 1, "gpu_state": "ok", "gpu_mib": 80000}
    return {**facts, "rows": rows, **more}


def wrote(root: Path, job: Job, what: Any, lease: int = 1, rank: int = 0) -> Path:
    folder = root / str(job.pk) / "leases" / str(lease)
    folder.mkdir(parents=True, exist_ok=True)
    text = what if isinstance(what, bytes) else json.dumps(what).encode()
    (folder / f"usage.{rank}.json").write_bytes(text)
    return folder / f"usage.{rank}.json"


def busy(count: int, permille: int = 500) -> list[Any]:
    return [
        [10_000 * n, 15_000 * n, 900 * MIB, 1000 * MIB, [permille], [2048]]
        for n in range(1, count + 1)
    ]


def page(place: Town, job: Job) -> str:
    answer = place.owner.get(f"/jobs/{job.uid}/")
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def rest(place: Town, job: Job) -> dict[str, Any]:
    answer = place.owner.get(f"/api/v1/jobs/{job.uid}/usage")
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


class TestSampledJob:
    def test_page_and_api_show_same_usage(self, place: Town, tmp_path: Path) -> None:
        job = running(place)
        wrote(tmp_path, job, said(busy(60)))
        body = rest(place, job)
        (lease,) = body["leases"]
        assert (lease["nodes"], lease["nodes_reporting"], lease["cpus"]) == (1, 1, 8)
        assert lease["gpu_total_bytes"] == 80000 * MIB
        assert len(body["points"]) == 60
        figures = lease["usage"]
        assert (figures["cores"], figures["gpu_percent"]) == (1.5, 50.0)
        assert figures["memory_peak_bytes"] == 1000 * MIB
        assert figures["starts_at"] == lease["started_at"]
        assert (body["reported"], body["gpus_idle_since"]) == (True, None)
        text = page(place, job)
        assert "Uses on average: 1.50 cores, 900 MiB of memory, GPUs at 50 %" in text
        for key in ("gpu", "gpu-memory", "cpu", "memory"):
            assert f'id="usage-{key}-data"' in text
            assert f'id="usage-{key}-rows"' in text

    def test_chart_shows_each_lease_with_gap_between(self, place: Town, tmp_path: Path) -> None:
        job = running(place)
        now = place.cluster.at
        ended(Lease.objects.get(job=job), now - timedelta(minutes=10))
        leased(place, job, 2, now - timedelta(minutes=5))
        wrote(tmp_path, job, said(busy(30)))
        wrote(tmp_path, job, said(busy(10)), lease=2)
        body = rest(place, job)
        assert [row["lease"] for row in body["leases"]] == [1, 2]
        assert body["points"][29]["ends_at"] < body["points"][30]["starts_at"]
        payload = re.search(r'id="usage-cpu-data" hidden>(.*?)</div>', page(place, job))
        assert payload is not None
        chart = json.loads(payload[1])
        values = chart["figure"]["data"][0]["y"]
        assert values.index(None) == 31
        texts = [one.get("text") for one in chart["figure"]["layout"]["annotations"]]
        assert {"lease 1", "lease 2"} <= set(texts)

    def test_reports_start_of_gpu_idleness(self, place: Town, tmp_path: Path) -> None:
        job = running(place)
        wrote(tmp_path, job, said(busy(30) + [
            [10_000 * n, 450_000, None, None, [0], [2048]] for n in range(31, 121)
        ]))  # fmt: skip
        since = rest(place, job)["gpus_idle_since"]
        assert since == rest(place, job)["points"][30]["starts_at"]
        assert "GPUs idle" in page(place, job)
        ended(Lease.objects.get(job=job), place.cluster.at)
        assert rest(place, job)["gpus_idle_since"] is None

    @pytest.mark.parametrize(
        ("state", "why"),
        [
            ("absent", "nvidia-smi is not installed on its node."),
            ("failed", "nvidia-smi failed on its node and is no longer called."),
            ("asked", "nvidia-smi has not answered yet."),
            ("none", "CUDA_VISIBLE_DEVICES gave it no GPU, or only a MIG slice"),
        ],
    )
    def test_explains_missing_gpu_figures(
        self, place: Town, tmp_path: Path, state: str, why: str
    ) -> None:
        job = running(place, minutes=1)
        wrote(tmp_path, job, said([[10_000, 5_000, 1, 1, [], []]], gpu_state=state))
        text = page(place, job)
        assert f"GPU use is not reported: {why}" in text
        assert "usage-gpu-data" not in text
        assert rest(place, job)["points"][0]["gpu_percent"] is None

    def test_partial_gpu_figures_are_marked_and_never_idle(
        self, place: Town, tmp_path: Path
    ) -> None:
        job = running(place)
        lease = Lease.objects.get(job=job)
        Lease.objects.filter(job=job).update(gpus=2, own=2, placement=lease.placement * 2)
        wrote(tmp_path, job, said(busy(100, 0)))
        rows = [[10_000 * n, 1, 1, 1, [], []] for n in range(1, 101)]
        wrote(tmp_path, job, said(rows, rank=1, gpu_state="failed"), rank=1)
        body = rest(place, job)
        (lease,) = body["leases"]
        assert (lease["gpus_reporting"], lease["gpus"], body["gpus_idle_since"]) == (1, 2, None)
        text = page(place, job)
        assert "GPU figures of lease 1 cover 1 of its 2 GPUs." in text
        assert "Mean over 1 of the job&#x27;s 2 GPUs" in text
        assert "GPUs idle" not in text

    def test_reports_node_without_samples(self, place: Town, tmp_path: Path) -> None:
        job = running(place)
        lease = Lease.objects.get(job=job)
        Lease.objects.filter(job=job).update(placement=lease.placement * 2)
        wrote(tmp_path, job, said(busy(10)))
        assert "Samples cover 1 of the 2 nodes of lease 1." in page(place, job)

    def test_page_query_count_does_not_grow(self, place: Town, tmp_path: Path) -> None:
        job = running(place, minutes=1)
        before = len(reads(place.owner, f"/jobs/{job.uid}/"))
        wrote(tmp_path, job, said(busy(3)))
        assert len(reads(place.owner, f"/jobs/{job.uid}/")) == before


class TestUsageFragment:
    def test_is_sent_only_if_content_changed(self, place: Town, tmp_path: Path) -> None:
        job = running(place)
        wrote(tmp_path, job, said(busy(3)))
        asked = re.search(r'hx-get="(/jobs/[^"]*/usage/[^"]*)"', page(place, job))
        assert asked is not None
        assert place.owner.get(asked[1]).status_code == 204
        wrote(tmp_path, job, said(busy(4)))
        again = place.owner.get(asked[1])
        assert (again.status_code, again["Cache-Control"]) == (200, "no-store")
        text = again.content.decode()
        assert text.count("data-chart") == 4
        assert asked[1] not in text
        ended(Lease.objects.get(job=job), place.cluster.at)
        Job.objects.filter(pk=job.pk).update(state=Job.State.SUCCEEDED, ended_at=place.cluster.at)
        last = place.owner.get(asked[1]).content.decode()
        assert "Used on average: 1.50 cores" in last
        assert "hx-get" not in last


class TestRequeuedJob:
    def test_shows_past_usage_in_past_tense(self, place: Town, tmp_path: Path) -> None:
        job = running(place)
        wrote(tmp_path, job, said(busy(20)))
        ended(Lease.objects.get(job=job), place.cluster.at)
        Job.objects.filter(pk=job.pk).update(state=Job.State.PENDING, leases_held=0)
        assert "<h2>Used on average: 1.50 cores" in page(place, job)


class TestUnstartedLeases:
    def test_are_ignored(self, place: Town, tmp_path: Path) -> None:
        job = running(place)
        ended(Lease.objects.get(job=job), place.cluster.at - timedelta(minutes=15))
        Lease.objects.filter(job=job).update(started_at=None)
        leased(place, job, 2, place.cluster.at - timedelta(minutes=5))
        wrote(tmp_path, job, said(busy(10)), lease=2)
        assert rest(place, job)["earlier_leases"] is False
        assert "Earlier leases are not shown." not in page(place, job)

    def test_do_not_displace_started_leases(self, place: Town, tmp_path: Path) -> None:
        job = running(place)
        at = place.cluster.at
        ended(Lease.objects.get(job=job), at - timedelta(minutes=15))
        wrote(tmp_path, job, said(busy(20)))
        for number in range(2, service.LEASES + 4):
            ended(leased(place, job, number, at), at)
        Lease.objects.filter(job=job, number__gt=1).update(started_at=None)
        leased(place, job, service.LEASES + 4, at - timedelta(minutes=2))
        wrote(tmp_path, job, said(busy(10)), lease=service.LEASES + 4)
        asked = re.search(r'hx-get="(/jobs/[^"]*/usage/[^"]*)"', page(place, job))
        assert asked is not None
        assert place.owner.get(asked[1]).status_code == 204
        assert [row["lease"] for row in rest(place, job)["leases"]] == [1, service.LEASES + 4]


class TestJobWithoutSamples:
    def test_simulated_job_has_no_usage_section(self, place: Town) -> None:
        job = running(place, minutes=1)
        Pool.objects.filter(pk=place.cluster.pool.pk).update(executor="virtual")
        assert 'id="usage"' not in page(place, job)
        assert place.owner.get(f"/jobs/{job.uid}/usage/").status_code == 404
        assert rest(place, job) == {
            "reported": False, "leases": [], "points": [], "earlier_leases": False,
            "gpus_idle_since": None,
            "gpus_idle_warned_at": None,
            "gpu_sampled_us": 0,
            "gpu_idle_us": 0,
        }  # fmt: skip

    def test_waiting_job_polls_without_section(self, place: Town) -> None:
        job = place.submit()
        Pool.objects.filter(pk=place.cluster.pool.pk).update(executor="local")
        text = page(place, job)
        assert "Resource usage" not in text
        assert f'hx-get="/jobs/{job.uid}/usage/?seen=' in text
        assert rest(place, job)["leases"] == []

    def test_started_job_announces_samples(self, place: Town) -> None:
        job = running(place, minutes=1)
        assert "Resource usage: no samples yet" in page(place, job)
        assert rest(place, job)["leases"][0]["usage"] is None


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


class TestHostileSamples:
    @pytest.mark.parametrize(
        "what",
        [
            b"{", b"\x00\xff", WEIRD.encode(), b"[" * 50_000, b"x" * (USAGE_BYTES + 5),
            said([[10_000, 1, 1, 1, [WEIRD], [1]]]), said(busy(3), gpu_state=WEIRD),
            said(busy(3)[::-1]), said(busy(3), cpus=-5), said([[2**70, 1, 1, 1, [], []]]),
        ],
    )  # fmt: skip
    def test_invalid_file_is_reported_and_ignored(
        self, place: Town, tmp_path: Path, what: Any
    ) -> None:
        job = running(place, minutes=1)
        wrote(tmp_path, job, what)
        text = page(place, job)
        assert "Unusable samples: usage.0.json of lease 1 " in text
        assert WEIRD not in text
        (why,) = rest(place, job)["leases"][0]["refused"]
        assert why.startswith("usage.0.json of lease 1 ")

    @pytest.mark.parametrize("put", [_link, _folder, _pipe])
    def test_links_folders_and_pipes_are_not_read(
        self, place: Town, tmp_path: Path, put: Callable[[Path], None]
    ) -> None:
        job = running(place, minutes=1)
        path = wrote(tmp_path, job, said(busy(3)))
        path.unlink()
        put(path)
        assert "root:" not in page(place, job)
        assert rest(place, job)["leases"][0]["usage"] is None

    def test_times_are_clipped_to_lease(self, place: Town, tmp_path: Path) -> None:
        job = running(place, minutes=1)
        wrote(tmp_path, job, said([[10_000, 1, 1, 1, [1], [1]], [10**11, 2**50, 1, 1, [1], [1]]]))
        ended(Lease.objects.get(job=job), place.cluster.at)
        body = rest(place, job)
        assert len(body["points"]) == 2
        assert body["points"][-1]["ends_at"] == body["leases"][0]["ended_at"]
        assert page(place, job)

    def test_extra_ranks_are_ignored(self, place: Town, tmp_path: Path) -> None:
        job = running(place, minutes=1)
        wrote(tmp_path, job, said(busy(3)))
        wrote(tmp_path, job, said(busy(3), rank=1), rank=1)
        assert rest(place, job)["leases"][0]["nodes_reporting"] == 1

    def test_rows_and_gpus_beyond_lease_are_rejected(self, place: Town, tmp_path: Path) -> None:
        job = running(place)
        lease = Lease.objects.get(job=job)
        Lease.objects.filter(job=job).update(gpus=16, own=16, placement=lease.placement * 16)
        # The first shim may report the GPUs of all nodes.
        wrote(tmp_path, job, said([[10_000, 1, 1, 1, [500] * 16, [1] * 16]]))
        wrote(tmp_path, job, said([[10_000, 1, 1, 1, [5, 5], [1, 1]]], rank=1), rank=1)
        wrote(tmp_path, job, said(busy(100), rank=2), rank=2)
        (lease,) = rest(place, job)["leases"]
        assert lease["refused"] == [
            "usage.1.json of lease 1 has more GPUs than its lease",
            "usage.2.json of lease 1 has more than 60 rows",
        ]
        assert lease["gpus_reporting"] == 16

    def test_newest_leases_are_read_first_within_size_limit(
        self, place: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = running(place)
        ended(Lease.objects.get(job=job), place.cluster.at - timedelta(minutes=10))
        leased(place, job, 2, place.cluster.at - timedelta(minutes=5))
        for lease in (1, 2):
            wrote(tmp_path, job, json.dumps(said(busy(10))).encode() + b" " * 1000, lease=lease)
        monkeypatch.setattr(service, "READ_BYTES", 1000)
        body = rest(place, job)
        assert [row["lease"] for row in body["leases"]] == [2]
        assert body["earlier_leases"]
        assert "Earlier leases are not shown." in page(place, job)


class TestVisibility:
    @pytest.mark.parametrize("prefix", ["/jobs/{}/", "/jobs/{}/usage/", "/api/v1/jobs/{}/usage"])
    def test_usage_is_limited_to_members_and_operators(
        self, place: Town, tmp_path: Path, prefix: str
    ) -> None:
        job = running(place, minutes=1)
        wrote(tmp_path, job, said(busy(3)))
        path = prefix.format(job.uid)
        for client in (place.owner, place.mate, place.operator):
            assert client.get(path).status_code == 200
        for client in (place.neighbour, place.outsider):
            assert client.get(path).status_code == 404
        assert place.nobody.get(path).status_code in (302, 401)
