"""Test `evenshare job usage` against the REST contract."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Run
from .portal import Portal

POINT: dict[str, Any] = {
    "lease": 1, "starts_at": "2031-05-04T03:02:01.5Z", "ends_at": "2031-05-04T03:02:11.5Z",
    "cores": 1.875, "cores_peak": 2.0, "memory_bytes": 2**30, "memory_peak_bytes": 3 * 2**29,
    "gpu_percent": 87.4, "gpu_lowest_percent": 12.0, "gpu_memory_bytes": 2**33,
    "gpu_memory_peak_bytes": 2**34,
}  # fmt: skip
LEASE: dict[str, Any] = {
    "lease": 1, "gpu_type": "a100", "gpus": 8, "gpus_reporting": 8, "nodes": 1,
    "nodes_reporting": 1, "cpus": 8, "gpu_state": "ok", "gpu_total_bytes": 2**36, "usage": POINT,
    "refused": [],
}  # fmt: skip
NOTHING = {"reported": True, "leases": [], "points": [], "earlier_leases": False,
           "gpus_idle_since": None}  # fmt: skip
UNKNOWN = dict.fromkeys(
    ("memory_bytes", "memory_peak_bytes", "gpu_percent", "gpu_lowest_percent",
     "gpu_memory_bytes", "gpu_memory_peak_bytes"), None,
)  # fmt: skip


def used(portal: Portal, **more: Any) -> str:
    portal.usage = {**NOTHING, "leases": [LEASE], "points": [POINT] * 3, **more}
    return str(portal.job("running")["id"])


class TestUsage:
    def test_prints_one_line_per_lease(self, run: Run, portal: Portal) -> None:
        done = run("job", "usage", used(portal))
        assert done.code == 0
        (heads, row) = done.out.splitlines()
        assert heads.split() == ["LEASE", "FROM", "CORES", "MEMORY", "PEAK", "GPU", "LOWEST",
                                 "GPU-MEMORY"]  # fmt: skip
        assert row.split() == ["1", "2031-05-04T03:02:01Z", "1.88", "1.00", "GiB", "1.50", "GiB",
                               "87", "%", "12", "%", "16.00", "GiB"]  # fmt: skip

    def test_shows_mebibytes_below_one_gibibyte(self, run: Run, portal: Portal) -> None:
        point = {**POINT, "memory_bytes": 59_826_176, "memory_peak_bytes": 2**30 - 2**20}
        row = run("job", "usage", used(portal, leases=[{**LEASE, "usage": point}])).out.split("\n")
        assert row[1].split()[3:7] == ["57", "MiB", "1023", "MiB"]

    def test_prints_one_line_per_point_on_demand(self, run: Run, portal: Portal) -> None:
        assert len(run("job", "usage", used(portal), "--points").out.splitlines()) == 4

    def test_prints_unchanged_json_on_demand(self, run: Run, portal: Portal) -> None:
        done = run("job", "usage", used(portal), "--output", "json")
        assert done.json == portal.usage

    def test_shows_dashes_for_unknown_values(self, run: Run, portal: Portal) -> None:
        lease = {**LEASE, "gpu_state": "absent", "usage": {**POINT, **UNKNOWN}}
        done = run("job", "usage", used(portal, leases=[lease]))
        assert done.out.splitlines()[1].split()[-5:] == ["-"] * 5
        assert done.err == "GPU use is not reported: nvidia-smi is not installed on its node\n"

    def test_mentions_no_gpus_for_cpu_job(self, run: Run, portal: Portal) -> None:
        lease = {**LEASE, "gpu_type": "cpu", "gpu_state": "none", "gpus_reporting": 0}
        assert run("job", "usage", used(portal, leases=[lease])).err == ""

    def test_reports_number_of_covered_gpus(self, run: Run, portal: Portal) -> None:
        done = run("job", "usage", used(portal, leases=[{**LEASE, "gpus_reporting": 3}]))
        assert done.err == "GPU figures cover 3 of its 8 GPUs\n"

    def test_shows_notes_with_controls_escaped(self, run: Run, portal: Portal) -> None:
        more = {
            "leases": [{**LEASE, "refused": ["usage.0.json \x1b[31m"]}],
            "earlier_leases": True,
            "gpus_idle_since": "2031-05-04T03:02:01.5Z",
        }
        assert run("job", "usage", used(portal, **more)).err.splitlines() == [
            "not used: usage.0.json \\x1b[31m",
            "GPUs idle since 2031-05-04T03:02:01Z",
            "earlier leases are not shown",
        ]

    @pytest.mark.parametrize(
        ("is_sampled", "said"),
        [(True, "no samples yet\n"), (False, "jobs of this pool are not sampled\n")],
    )
    def test_explains_missing_samples(
        self, is_sampled: bool, said: str, run: Run, portal: Portal
    ) -> None:
        portal.usage = {**NOTHING, "reported": is_sampled}
        done = run("job", "usage", str(portal.job("running")["id"]))
        assert (done.code, done.out, done.err) == (0, "", said)
