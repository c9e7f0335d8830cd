"""Measurements of a job type: its page, REST, and the reasons of waiting jobs."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from scheduling.models import Job, Measurement, MeasurementNote, Profile
from tests.factories import BEGIN
from tests.functional.visitors import Town, town

PAGE = "/t/north/profiles/gru/?pool=pool-1"
REST = "/api/v1/pools/pool-1/profiles/north/gru"


@pytest.fixture
def place(committed_db: str) -> Town:  # noqa: ARG001 - the fixture is what is wanted of it
    place = town()
    place.cluster.add_type("k80", nodes=2, gpus=4, quotas={"north": 4, "south": 4})
    return place


@pytest.fixture
def profile(place: Town) -> Profile:
    """Return a job type declared at 9 times the slowest type's speed, and measured at 4 times."""
    row = place.cluster.profile("north", "gru", k80=1000, v100=4000)
    row.declared = {"k80": 1000, "v100": 9000}
    row.measured = {
        "k80": {"speed_milli": 1000, "spread_milli": 20, "reports": 9},
        "v100": {"speed_milli": 4000, "spread_milli": 10, "reports": 12},
    }
    row.source, row.measured_at = Profile.Source.MEASURED, BEGIN
    row.save()
    return row


def average(profile: Profile, **fields: Any) -> Measurement:
    given = {
        "kind": "iteration", "gpu_type": "v100", "gpus": 2, "reports": 12, "iterations": 3456,
        "mean": 125_500_000, "deviation": 1_255_000, "seen_at": BEGIN + timedelta(hours=1),
    }  # fmt: skip
    return Measurement.objects.create(
        profile=profile, tenant_id=profile.tenant_id, **{**given, **fields}
    )


def text(client: Client, path: str, status: int = 200) -> str:
    page = client.get(path)
    assert page.status_code == status
    return " ".join(page.content.decode().split())


class TestPage:
    def test_shows_overclaim(self, place: Town, profile: Profile) -> None:
        assert profile.pk
        shown = text(place.owner, PAGE)
        assert "gru was declared faster on v100 than measured." in shown
        assert "9.000" in shown
        assert "4.000" in shown
        assert "declared 125.0 % faster than measured" in shown
        listed = text(place.owner, "/t/north/profiles/?pool=pool-1")
        assert "measured by the portal, declared faster on v100" in listed

    def test_shows_counts_spread_memory_and_time(self, place: Town, profile: Profile) -> None:
        average(profile, memory_bytes=3 * 2**29, restarts=2)
        average(profile, gpus=16, several_nodes=True, reports=2)
        average(profile, kind="resume", gpu_type="", gpus=0, mean=7_250_000, deviation=0)
        shown = text(place.owner, PAGE)
        for part in (
            "2 v100, one node", "125.500 ms", "1.0 %", "3,456", "1.50 GiB",
            "16 v100, several nodes", "not yet", "to resume", "7.250 s", "2030-01-01 01:00",
        ):  # fmt: skip
            assert part in shown, part

    def test_shows_history_of_changes_and_rejected_reports(
        self, place: Town, profile: Profile
    ) -> None:
        job = place.submit()
        of = {"profile": profile, "tenant_id": profile.tenant_id, "at": BEGIN}
        changed = {"of": "iteration", "before": 10**6, "after": 2 * 10**6}
        where = {"gpu_type": "v100", "gpus": 1, "several": False}
        MeasurementNote.objects.create(**of, kind="changed", data=changed | where)
        used = {"before": {"v100": 9000}, "after": {"v100": 4000}}
        MeasurementNote.objects.create(**of, kind="used", data=used)
        refused = {"lease": 3, "why": "is no JSON"}
        MeasurementNote.objects.create(**of, kind="refused", data=refused, job=job)
        shown = text(place.owner, PAGE)
        assert "on 1 v100 changed from 1.000 ms to 2.000 ms: its average was reset." in shown
        assert "Rounds use v100 4.000 instead of v100 9.000." in shown
        assert "A report of lease 3 was ignored: it is no JSON." in shown
        assert f"/jobs/{job.uid}/" in shown

    def test_states_missing_measurements(self, place: Town) -> None:
        place.cluster.profile("north", "gru", k80=1000, v100=4000)
        shown = text(place.owner, PAGE)
        assert "gru is not measured yet; rounds use the declared speeds." in shown
        assert "No measurements yet." in shown

    def test_returns_404_to_other_tenants(self, place: Town, profile: Profile) -> None:
        assert profile.pk
        text(place.mate, PAGE)
        text(place.neighbour, PAGE, status=404)
        text(place.owner, "/t/north/profiles/lstm/?pool=pool-1", status=404)


class TestApi:
    def test_returns_declared_and_measured_speeds_with_details(
        self, place: Town, profile: Profile
    ) -> None:
        average(profile)
        average(profile, kind="suspend", gpu_type="", gpus=0, mean=900, deviation=9, reports=3)
        seen = place.owner.get(REST).json()
        assert seen["speeds"] == {"k80": "1.000", "v100": "4.000"}
        assert seen["declared"] == {"k80": "1.000", "v100": "9.000"}
        assert seen["measured"][1] == {
            "gpu_type": "v100", "declared": "9.000", "measured": "4.000", "excess": "1.250",
            "tolerance": "0.050", "overclaim": True,
        }  # fmt: skip
        (row,) = seen["times"]
        assert row == {
            "gpu_type": "v100", "gpus": 2, "several_nodes": False, "time_ns": 125_500_000,
            "counts": True, "iterations": 3456, "memory_bytes": 0, "spread": "0.010",
            "reports": 12, "changes": 0, "last_seen": "2030-01-01T01:00:00.000000Z",
        }  # fmt: skip
        assert (seen["suspend"]["time_us"], seen["suspend"]["spread"]) == (900, "0.010")
        assert seen["resume"] is None
        assert seen["notes"] == []
        (listed,) = place.owner.get("/api/v1/pools/pool-1/profiles").json()["results"]
        assert listed["measured"] == seen["measured"]
        assert place.neighbour.get(REST).status_code == 404

    def test_keeps_measured_speeds_after_new_declaration(
        self, place: Town, profile: Profile
    ) -> None:
        assert profile.pk
        body = json.dumps({"speeds": {"k80": "1", "v100": "4.1"}})
        told = place.owner.put(REST, body, content_type="application/json").json()
        assert told["declared"] == {"k80": "1.000", "v100": "4.100"}
        assert (told["speeds"], told["origin"]) == ({"k80": "1.000", "v100": "4.000"}, "measured")
        assert [one["overclaim"] for one in told["measured"]] == [False, False]

    def test_job_reason_includes_overclaims(self, place: Town, profile: Profile) -> None:
        job = place.submit()
        assert place.owner.get(f"/api/v1/jobs/{job.uid}/why").json()["overclaims"] == []
        Job.objects.filter(pk=job.pk).update(profile=profile)
        (one,) = place.owner.get(f"/api/v1/jobs/{job.uid}/why").json()["overclaims"]
        assert (one["gpu_type"], one["excess"]) == ("v100", "1.250")
