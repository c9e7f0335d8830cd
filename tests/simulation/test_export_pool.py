"""Test that `export_pool` and then `simulate` on its files give the leases of the live rounds.

The hours are those of `test_live_equals_simulated`, which also covers three types. Here the
simulator gets all its input from files.
"""

from __future__ import annotations

import csv
import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from scheduling.engine.clock import PoolNow
from scheduling.models import Job, Node, Pool, PriceSetting, VirtualWork
from scheduling.services.jobs import cancel_job
from tenants.models import Budget, Quota
from tests.factories import BEGIN, Cluster, cluster
from tests.simulation.exported import exported, live_leases, simulated_leases
from tests.simulation.test_live_equals_simulated import (
    HOUR_S,
    LEASE_S,
    QUOTAS,
    ROUND_S,
    submit_all,
)

pytestmark = pytest.mark.usefixtures("committed_db")


def live_hour(lab: Cluster) -> None:
    """Run the engine over the hour; some jobs are cancelled between rounds."""
    for tick in range(HOUR_S // ROUND_S + 1):
        lab.at = BEGIN + timedelta(seconds=tick * ROUND_S)
        lab.round()
        if tick % 9 == 5:
            at = lab.at + timedelta(seconds=1)
            active = Job.objects.filter(submitted_at__lte=at, state__in=("pending", "running"))
            job = active.order_by("-id").first()
            if job is not None:
                cancel_job(job=job, now=PoolNow(at, at, 1, paused=False))


class TestSeededHour:
    @pytest.mark.parametrize(
        ("policy", "options", "seed"),
        [
            ("ltgf", {"reserve_after_leases": 1, "tenant_share": "quota"}, 1),
            ("sjf", {"backfill": True}, 2),
        ],
    )
    def test_exported_files_reproduce_live_leases(
        self, tmp_path: Path, policy: str, options: dict[str, object], seed: int
    ) -> None:
        lab = cluster(
            QUOTAS, nodes=4, gpus=4, round_s=ROUND_S, lease_s=LEASE_S, policy=policy,
            options=options,
        )  # fmt: skip
        Node.objects.filter(name="n0001").update(state=Node.State.DRAINED)
        Quota.objects.filter(tenant=lab.tenants["a"]).update(borrow_limit=1, lend_limit=3)
        Quota.objects.filter(tenant=lab.tenants["b"]).update(mode="LEND")
        PriceSetting.objects.update(
            base=Decimal("0.35"), theta=Decimal("2.5"), surcharge_cap=2 * (seed % 2),
            surcharge_step=Decimal("7.5"),
        )  # fmt: skip
        submit_all(lab, seed, limited=True)
        for job in Job.objects.order_by("id")[::3]:  # the other jobs have no estimate
            Job.objects.filter(pk=job.pk).update(estimate_s=60 + job.pk % 50)
        live_hour(lab)
        words, remarks = exported(lab, tmp_path)
        expected = live_leases()
        assert len(expected) > 40
        assert "cancelled" in {row[-1] for row in expected}
        assert simulated_leases(words, tmp_path) == expected
        assert "Nodes that are not up" in remarks


class TestRealExecutor:
    def test_exports_work_done_by_leases(self, tmp_path: Path) -> None:
        """The work of unfinished jobs is unknown: the export contains an estimate and a remark."""
        lab = cluster({"a": 1}, nodes=1, gpus=1, round_s=ROUND_S, lease_s=LEASE_S)
        over, waits = lab.submit("a", 1, 45), lab.submit("a", 1, 500, estimate_s=300)
        lab.rounds(4, every_s=ROUND_S)
        VirtualWork.objects.all().delete()
        Pool.objects.update(executor="local")
        _, remarks = exported(lab, tmp_path)
        with (tmp_path / "jobs.csv").open() as file:
            told = {row["name"]: row["duration_s"] for row in csv.DictReader(file)}
        assert told == {f"{over.pk}-a-1": "45", f"{waits.pk}-a-1": "300"}
        assert "Jobs that have not ended, whose work is estimated: 1." in remarks


class TestUnsupportedPools:
    def test_remarks_list_unsupported_data(self, tmp_path: Path) -> None:
        lab = cluster({"a": 1}, nodes=1, gpus=1, on_demand=True)
        lab.submit("a", 1, 45)
        lab.round()
        Budget.objects.update(credit_limit=5)
        Quota.objects.update(valid_until=BEGIN + timedelta(days=9))
        Pool.objects.update(policy="fifo")
        words, remarks = exported(lab, tmp_path)
        assert words[words.index("--start") + 1] == "2030-01-01T00:00:00+00:00"
        assert remarks.splitlines() == [
            "Rounds decided by another policy; the run uses the present policy: 1.",
            "Quotas that began later or have an end; the run uses the present quotas: 1.",
            "Tenants with a credit limit, which the run ignores: 1.",
            "Rounds on demand, between two instants of the grid, are skipped.",
        ]

    def test_rejects_unsupported_pools(self, tmp_path: Path) -> None:
        lab = cluster({"a": 1})
        for name, says in (
            ("nowhere", f"there is no pool nowhere; there are {lab.pool.name}"),
            (lab.pool.name, "has no job to simulate"),
        ):
            with pytest.raises(CommandError, match=says):
                call_command("export_pool", name, "--to", str(tmp_path))
        lab.submit("a", 1, 45)
        file = tmp_path / "file"
        file.write_text(json.dumps(""))
        with pytest.raises(CommandError, match="file: File exists"):
            call_command("export_pool", lab.pool.name, "--to", str(file))
