"""Test `tune_lease` on a live pool: its runs, its recommendation, its errors."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from scheduling.models import Job, Lease, Pool, PoolClock, Round, VirtualWork
from tests.factories import BEGIN, Cluster, cluster
from tests.simulation.exported import exported
from tests.simulation.test_live_equals_simulated import QUOTAS, ROUND_S, submit_all

pytestmark = pytest.mark.usefixtures("committed_db")


def tuned(lab: Cluster, *words: str) -> tuple[dict[str, Any], list[str]]:
    """Return the object printed by the command, and the lines of its error stream."""
    out, err = StringIO(), StringIO()
    call_command("tune_lease", "--pool", lab.pool.name, "--json", *words, stdout=out, stderr=err)
    result: dict[str, Any] = json.loads(out.getvalue())
    return result, err.getvalue().splitlines()


def refusal(lab: Cluster, *words: str) -> str:
    with pytest.raises(CommandError) as raised:
        call_command(
            "tune_lease", "--pool", lab.pool.name, *words, stdout=StringIO(), stderr=StringIO()
        )
    return str(raised.value)


def two_in_turns(**fields: Any) -> Cluster:
    """Return a pool with two jobs of 2,000 s on one GPU, and an ended one."""
    lab = cluster({"a": 1}, nodes=1, gpus=1, round_s=10, **{"policy": "ltgf", **fields})
    for duration_s in (2000, 2000, 10):
        lab.submit("a", 1, duration_s)
    return lab


class TestLengthResults:
    def test_match_completion_times_and_preemptions_of_live_pool(self) -> None:
        lab = cluster({"a": 1, "b": 1}, nodes=1, gpus=2, round_s=10, lease_s=30, policy="ltgf")
        for tenant, after_s in (("a", 0), ("a", 0), ("b", 15), ("b", 20), ("a", 50)):
            lab.submit(tenant, 1, 70, after_s=after_s)
        lab.rounds(40, every_s=10)
        lasted = [
            row.ended_at - row.submitted_at for row in Job.objects.all() if row.ended_at is not None
        ]
        assert len(lasted) == 5
        result, _ = tuned(lab, "--lengths", "30,3600")
        live, long = result["lengths"]
        assert live["finished"] == 5
        assert live["avg_jct_s"] == sum(lasted, timedelta()).total_seconds() / 5
        assert live["preemptions"] == Lease.objects.filter(end_reason="not_renewed").count() > 0
        assert long["preemptions"] == 0

    def test_match_simulation_of_exported_pool(self, tmp_path: Path) -> None:
        lab = cluster(
            QUOTAS, nodes=4, gpus=4, round_s=ROUND_S, lease_s=120, policy="ltgf",
            options={"reserve_after_leases": 1, "tenant_share": "quota"},
        )  # fmt: skip
        submit_all(lab, 3, limited=True)
        lab.round()
        words, _ = exported(lab, tmp_path)
        overheads = ("--cold-s", "9", "--checkpoint-s", "2")
        out = StringIO()
        call_command(*words[1:], *overheads, "--json", stdout=out, stderr=StringIO())
        (simulated,) = json.loads(out.getvalue())["results"]
        result, _ = tuned(lab, "--days", "1", "--lengths", "120,600", *overheads)
        at_120 = result["lengths"][0]
        for name, as_simulated in (
            ("avg_jct_s", "avg_jct_s"),
            ("sharing_loss", "sharing_loss_jobs"),
            ("preemptions", "preemptions"),
        ):
            assert at_120[name] == simulated[as_simulated]
        assert 0 < at_120["overhead_share"] < 0.2
        assert (result["policy"], result["present_s"]) == ("ltgf", 120)
        assert result["start"] == words[words.index("--start") + 1]

    def test_count_work_done_by_leases_of_real_jobs(self) -> None:
        lab = cluster({"a": 1}, nodes=1, gpus=1, round_s=10, lease_s=30, policy="ltgf")
        lab.submit("a", 1, 25)
        lab.rounds(4, every_s=10)
        lab.submit("a", 1, 999, estimate_s=55)
        VirtualWork.objects.all().delete()
        Pool.objects.update(executor="local")
        result, remarks = tuned(lab, "--lengths", "3600")
        assert result["lengths"][0]["avg_jct_s"] == (25 + 55) / 2
        assert "Jobs that have not ended, whose work is estimated: 1." in remarks


class TestRecommendation:
    def test_recommends_length_without_changing_pool(self) -> None:
        lab = two_in_turns(lease_s=900)
        before = Pool.objects.values().get()
        out, err = StringIO(), StringIO()
        words = ("--cold-s", "60", "--lengths", "3600,300")
        call_command("tune_lease", "--pool", lab.pool.name, *words, stdout=out, stderr=err)
        lines = out.getvalue().splitlines()
        assert lines[0] == (
            f"Pool {lab.pool.name}, policy ltgf, 3 jobs since 2030-01-01T00:00:00+00:00"
        )
        assert [line.split()[0] for line in lines[1:4]] == ["lease", "300", "3,600"]
        assert lines[4].startswith("Recommended: 3,600 s (now 900 s), the length with the least")
        assert err.getvalue().splitlines() == ["Length 1 of 2: 300 s.", "Length 2 of 2: 3,600 s."]
        assert Pool.objects.values().get() == before
        assert not Round.objects.exists()

    def test_is_deterministic(self) -> None:
        lab = two_in_turns()
        assert tuned(lab) == tuned(lab)

    def test_warns_that_free_preemptions_favour_short_lengths(self) -> None:
        lab = two_in_turns()
        _, remarks = tuned(lab, "--lengths", "300")
        assert remarks[0].startswith("Preemptions cost nothing in these runs")
        assert remarks[1:] == ["Length 1 of 1: 300 s."]

    def test_other_policy_uses_its_defaults(self) -> None:
        lab = two_in_turns(policy="ltgf", options={"reserve_after_leases": 1})
        result, _ = tuned(lab, "--policy", "fifo", "--lengths", "300,900")
        assert result["policy"] == "fifo"
        assert [row["preemptions"] for row in result["lengths"]] == [0, 0]


class TestDaysOption:
    def test_skips_and_reports_earlier_unfinished_jobs(self) -> None:
        lab = two_in_turns()
        day_s = 86_400
        lab.submit("a", 1, 50, after_s=-day_s + 600)  # ten minutes after the start of the last day
        for after_s, ended_s in ((-3 * day_s, None), (-3 * day_s, -9), (-3 * day_s, -2 * day_s)):
            ended_at = None if ended_s is None else BEGIN + timedelta(seconds=ended_s)
            lab.submit("a", 1, 50, after_s=after_s, ended_at=ended_at, state="succeeded")
        result, remarks = tuned(lab, "--days", "1", "--lengths", "900")
        assert result["jobs"] == 4
        assert remarks[0] == (
            "Jobs from before the run's start that had not ended, which are skipped: 2."
        )
        assert tuned(lab, "--days", "4", "--lengths", "900")[0]["jobs"] == 7

    def test_starts_given_days_ago_in_old_pool(self) -> None:
        lab = two_in_turns()
        lab.round()
        PoolClock.objects.update(anchor_pool=BEGIN + timedelta(days=2))
        lab.submit("a", 1, 50, after_s=2 * 86_400 - 600)
        result, remarks = tuned(lab, "--days", "1", "--lengths", "900")
        began = datetime.fromisoformat(result["start"]) - BEGIN
        assert timedelta(days=1) <= began < timedelta(days=1, hours=1)
        assert result["jobs"] == 1
        assert remarks[0].endswith("not ended, which are skipped: 3.")


class TestPoolBounds:
    def test_skip_default_lengths_out_of_bounds(self) -> None:
        lab = two_in_turns(lease_s=900, least_lease_s=600, most_lease_s=1800)
        result, remarks = tuned(lab)
        assert [row["lease_s"] for row in result["lengths"]] == [600, 900, 1200, 1800]
        assert remarks[0] == (
            "Lengths outside the pool's bounds are skipped: 300, 3,600 s; the least is 600 s"
            " (the pool's shortest lease length), the most 1,800 s."
        )
        says = refusal(lab, "--lengths", "300,900")
        assert says.startswith("--lengths: this pool cannot have leases of 300 s; the least is 600")

    def test_minimum_is_one_round_of_pool_time(self) -> None:
        lab = two_in_turns(lease_s=900)
        # a round every 10 s of wall time is a round every 600 s of pool time
        PoolClock.objects.update(scale=60)
        result, remarks = tuned(lab)
        assert result["lengths"][0]["lease_s"] == 600
        assert "the least is 600 s (a round of pool time)" in remarks[0]
        PoolClock.objects.update(scale=3600)
        assert "cannot have leases of 300 s, 600 s" in refusal(lab)


WRONG: tuple[tuple[tuple[str, ...], str], ...] = (
    (("--days", "0"), "--days: must be a whole number from 1 to 3,650, not '0'"),
    (("--days", "x"), "--days: must be a whole number"),
    (("--lengths", "300,x"), "--lengths: must be a whole number from 1 to 2,592,000"),
    (("--lengths", ""), "--lengths: must be a whole number"),
    (("--lengths", "300,0"), "--lengths: must be a whole number"),
    (("--lengths", "300,300"), "--lengths: 300 is repeated; name it once"),
    (("--lengths", "9"), "--lengths: this pool cannot have leases of 9 s; the least is 10"),
    (("--policy", "nobody"), "--policy: no policy is named 'nobody'; known are"),
    (("--policy", "ltgf,fifo"), "--policy: no policy is named 'ltgf,fifo'"),
    (("--cold-s", "-1"), "--cold-s must be a time of at least 0"),
    (("--cold-s", "nan"), "--cold-s must be a time of at least 0"),
    (("--checkpoint-s", "300"), "--checkpoint-s: 300 s would take up a whole lease"),
)


class TestErrors:
    def test_rejects_invalid_arguments(self) -> None:
        lab = two_in_turns()
        for words, says in WRONG:
            assert says in refusal(lab, *words), words

    def test_rejects_unknown_or_empty_pool(self) -> None:
        lab = cluster({"a": 1}, nodes=1, gpus=1)
        with pytest.raises(CommandError, match=f"--pool: there is no pool x; there are {lab.pool}"):
            call_command("tune_lease", "--pool", "x")
        lab.submit("a", 1, 50, after_s=-9 * 86_400)
        assert refusal(lab) == (
            f"--pool: pool {lab.pool} has no job to simulate that was submitted in the last 7 days"
            " of its time; take more days"
        )

    def test_rejects_jobs_that_never_finish(self) -> None:
        lab = cluster({"a": 1}, nodes=1, gpus=1)
        lab.submit("a", 2, 50)
        assert refusal(lab).startswith("no job did all its work at any of these lengths. Use more")
