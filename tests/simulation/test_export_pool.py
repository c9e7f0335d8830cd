"""`export_pool` and then `simulate` on its files give the leases of the live rounds.

The same hours as in `test_live_equals_simulated`, but everything that the simulator knows went
through files: nothing is handed over in Python.
"""

from __future__ import annotations

import csv
import json
import shlex
from datetime import timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from evenshare_core.cli.main import main
from evenshare_core.domain.instants import to_us
from evenshare_core.simulation.workload_files import format_seconds
from scheduling.engine.clock import PoolNow
from scheduling.models import Job, Lease, Node, Pool, PriceSetting, VirtualWork
from scheduling.services.jobs import cancel_job
from tenants.models import Budget, Quota
from tests.factories import BEGIN, Cluster, cluster
from tests.simulation.test_live_equals_simulated import (
    HOUR_S,
    LEASE_S,
    QUOTAS,
    ROUND_S,
    submit_all,
    submit_profiled,
)

pytestmark = pytest.mark.usefixtures("committed_db")

END_US = to_us(BEGIN) + HOUR_S * 1_000_000


def live_hour(lab: Cluster) -> None:
    """Run the engine over the hour; now and then somebody takes a job back between rounds."""
    for tick in range(HOUR_S // ROUND_S + 1):
        lab.at = BEGIN + timedelta(seconds=tick * ROUND_S)
        lab.round()
        if tick % 9 == 5:
            at = lab.at + timedelta(seconds=1)
            active = Job.objects.filter(submitted_at__lte=at, state__in=("pending", "running"))
            job = active.order_by("-id").first()
            if job is not None:
                cancel_job(job=job, now=PoolNow(at, at, 1, paused=False))


def exported(lab: Cluster, folder: Path) -> tuple[list[str], str]:
    """The words of the command that `export_pool` prints, and its remarks."""
    out, err = StringIO(), StringIO()
    call_command("export_pool", lab.pool.name, "--to", str(folder), stdout=out, stderr=err)
    return shlex.split(out.getvalue()), err.getvalue()


def simulated(words: list[str], folder: Path) -> list[tuple[str, ...]]:
    """Leases that began within the hour; the end of those that still held then is left out."""
    assert words[0] == "evenshare-core"
    assert main([*words[1:], "--json", "--leases-out", str(folder)]) == 0
    policy = words[words.index("--policy") + 1]
    rows = []
    with (folder / f"leases_{policy}.csv").open() as file:
        for row in csv.DictReader(file):
            if Decimal(row["start_s"]) * 1_000_000 > END_US:
                continue
            holds = Decimal(row["end_s"]) * 1_000_000 > END_US
            end = ("", "") if holds else (row["end_s"], row["end_reason"])
            rows.append(
                (row["job"], row["tenant"], row["lease"], row["nodes"], row["start_s"], *end)
            )
    return sorted(rows)


def live() -> list[tuple[str, ...]]:
    names = dict(Node.objects.values_list("pk", "name"))
    return sorted(
        (
            f"{row.job_id}-{row.job.name}",
            row.job.tenant.slug,
            str(row.number),
            " ".join(f"{names[node]}:{gpus}" for node, gpus in row.placement),
            format_seconds(to_us(row.started_at)) if row.started_at else "",
            format_seconds(to_us(row.ended_at)) if row.ended_at else "",
            row.end_reason,
        )
        for row in Lease.objects.select_related("job__tenant")
    )


class TestASeededHour:
    @pytest.mark.parametrize(
        ("policy", "options", "seed"),
        [
            ("ltgf", {"reserve_after_leases": 1, "tenant_share": "quota"}, 1),
            ("sjf", {"backfill": True}, 2),
        ],
    )
    def test_gives_the_live_leases_from_files(
        self, tmp_path: Path, policy: str, options: dict[str, object], seed: int
    ) -> None:
        lab = cluster(
            QUOTAS, nodes=4, gpus=4, round_s=ROUND_S, lease_s=LEASE_S, policy=policy,
            options=options,
        )  # fmt: skip
        Node.objects.filter(name="n0001").update(state=Node.State.DRAINED)
        Quota.objects.filter(tenant=lab.tenants["a"]).update(borrow_limit=1, lend_limit=3)
        Quota.objects.filter(tenant=lab.tenants["b"]).update(mode="LEND")
        PriceSetting.objects.update(base=Decimal("0.35"), theta=Decimal("2.5"))
        submit_all(lab, seed, limited=True)
        for job in Job.objects.order_by("id")[::3]:  # the others have no estimate
            Job.objects.filter(pk=job.pk).update(estimate_s=60 + job.pk % 50)
        live_hour(lab)
        words, remarks = exported(lab, tmp_path)
        expected = live()
        assert len(expected) > 40
        assert "cancelled" in {row[-1] for row in expected}
        assert simulated(words, tmp_path) == expected
        assert "Nodes that are not up" in remarks

    @pytest.mark.parametrize(("policy", "seed"), [("ltgf", 3), ("oef", 5)])
    def test_gives_the_live_leases_of_three_types_at_their_speeds(
        self, tmp_path: Path, policy: str, seed: int
    ) -> None:
        lab = cluster(
            {"a": 3, "b": 1, "c": 0, "d": 0}, nodes=1, gpus=4,
            round_s=ROUND_S, lease_s=LEASE_S, policy=policy,
        )  # fmt: skip
        lab.add_type("p100", nodes=1, gpus=4, quotas={"b": 2, "c": 2})
        lab.add_type("k80", nodes=2, gpus=2, quotas={"a": 1, "d": 3})
        submit_profiled(lab, seed)
        live_hour(lab)
        words, remarks = exported(lab, tmp_path)
        assert remarks == ""
        expected = live()
        assert {lease.gpu_type.name for lease in Lease.objects.all()} == {"v100", "p100", "k80"}
        assert simulated(words, tmp_path) == expected


class TestARealExecutor:
    def test_has_jobs_of_what_their_leases_did(self, tmp_path: Path) -> None:
        """Nobody knows more: what is not over is estimated, and told of."""
        lab = cluster({"a": 1}, nodes=1, gpus=1, round_s=ROUND_S, lease_s=LEASE_S)
        over, waits = lab.submit("a", 1, 45), lab.submit("a", 1, 500, estimate_s=300)
        lab.rounds(4, every_s=ROUND_S)
        VirtualWork.objects.all().delete()
        Pool.objects.update(executor="local")
        _, remarks = exported(lab, tmp_path)
        with (tmp_path / "jobs.csv").open() as file:
            told = {row["name"]: row["duration_s"] for row in csv.DictReader(file)}
        assert told == {f"{over.pk}-a-1": "45", f"{waits.pk}-a-1": "300"}
        assert "Jobs that are not over, whose work is estimated: 1." in remarks


class TestWhatCannotBeSimulated:
    def test_is_told(self, tmp_path: Path) -> None:
        lab = cluster({"a": 1}, nodes=1, gpus=1, on_demand=True)
        lab.submit("a", 1, 45)
        lab.round()
        Budget.objects.update(credit_limit=5)
        Quota.objects.update(valid_until=BEGIN + timedelta(days=9))
        Pool.objects.update(policy="fifo")
        words, remarks = exported(lab, tmp_path)
        assert words[words.index("--start") + 1] == "2030-01-01T00:00:00+00:00"
        assert remarks.splitlines() == [
            "Rounds decided by another policy, where the run has the present one: 1.",
            "Quotas that began later or have an end, where the run has those of now: 1.",
            "Tenants with a limit of credit, which the run does not have: 1.",
            "Rounds on demand, between two instants of the grid, are left out.",
        ]

    def test_is_refused(self, tmp_path: Path) -> None:
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
