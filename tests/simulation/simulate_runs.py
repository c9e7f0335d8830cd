"""Files and runs of `simulate` in a folder, for tests from the command line to the leases."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path
from typing import Any

from django.core.management import call_command

from evenshare_core.policies.registry import DEFAULT

DATA = Path(__file__).resolve().parents[1] / "data"
GAVEL = str(DATA / "gavel_slice.csv")
JOBS = "name,tenant,gpus,submit_s,duration_s"
QUOTAS = "tenant,gpu_type,gpus"
WITH_MODEL = f"{JOBS},model"
ONE = ("--nodes", "1", "--gpus-per-node", "4")


class Runs:
    """A folder with the files of a run; `run` returns the first result, `leases` its leases."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str, *lines: str) -> str:
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    def trace(self, *jobs: str, header: str = JOBS) -> tuple[str, str]:
        return ("--trace", self.file("jobs.csv", header, *jobs))

    def run(self, *args: str) -> dict[str, Any]:
        out, self.err = StringIO(), StringIO()
        folders = ("--jobs-out", str(self.folder), "--leases-out", str(self.folder))
        call_command("simulate", *folders, *args, "--json", stdout=out, stderr=self.err)
        told: dict[str, Any] = json.loads(out.getvalue())["results"][0]
        return told

    def rows(self, kind: str, policy: str = DEFAULT) -> list[dict[str, str]]:
        with (self.folder / f"{kind}_{policy}.csv").open() as file:
            return list(csv.DictReader(file))

    def times(self, policy: str = DEFAULT) -> dict[str, tuple[float, float]]:
        """Return (first start, end) by job."""
        rows = self.rows("jobs", policy)
        return {row["job_id"]: (float(row["start_s"]), float(row["end_s"])) for row in rows}
