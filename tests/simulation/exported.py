"""Run `export_pool` on a pool, and read the leases of `simulate` on its files."""

from __future__ import annotations

import csv
import shlex
from decimal import Decimal
from io import StringIO
from pathlib import Path

from django.core.management import call_command

from evenshare_core.cli.main import main
from evenshare_core.domain.instants import to_us
from evenshare_core.simulation.workload_files import format_seconds
from evenshare_core.units import MINUTE_US
from scheduling.models import Lease, Node
from tests.factories import BEGIN, Cluster


def exported(lab: Cluster, folder: Path) -> tuple[list[str], str]:
    """Return the arguments of the command that `export_pool` prints, and its remarks."""
    out, err = StringIO(), StringIO()
    call_command("export_pool", lab.pool.name, "--to", str(folder), stdout=out, stderr=err)
    return shlex.split(out.getvalue()), err.getvalue()


def simulated_leases(words: list[str], folder: Path, *, minutes: int = 60) -> list[tuple[str, ...]]:
    """Return the leases that started in this period; leases that are still running have no end."""
    end_us = to_us(BEGIN) + minutes * MINUTE_US
    assert words[0] == "evenshare-core"
    assert main([*words[1:], "--json", "--leases-out", str(folder)]) == 0
    policy = words[words.index("--policy") + 1]
    rows = []
    with (folder / f"leases_{policy}.csv").open() as file:
        for row in csv.DictReader(file):
            if Decimal(row["start_s"]) * 1_000_000 > end_us:
                continue
            holds = Decimal(row["end_s"]) * 1_000_000 > end_us
            end = ("", "") if holds else (row["end_s"], row["end_reason"])
            rows.append(
                (row["job"], row["tenant"], row["lease"], row["nodes"], row["start_s"], *end)
            )
    return sorted(rows)


def live_leases() -> list[tuple[str, ...]]:
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
