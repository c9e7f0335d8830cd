"""Test real programs that report metrics and write files, as a researcher then compares them."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portal.common.compare_links import compare_url
from scheduling.engine.executors.base import token_job
from scheduling.models import Job
from tests.architecture.sources import ROOT
from tests.functional.visitors import visitor
from tests.integration.local_world import LocalWorld, local_world

pytestmark = [
    pytest.mark.usefixtures("committed_db"),
    pytest.mark.skipif(sys.platform != "linux", reason="the executor finds processes in /proc"),
]

TRAIN = """
import os, pathlib
from evenshare import lease
rate = float(os.environ["RATE"])
lease.link("MLflow", "https://mlflow.example.org/#/runs/1")
for step in lease.steps(0, 20):
    lease.log({"loss": rate / (step + 1), "broken": float("nan")})
lease.log({"val/accuracy": rate}, step=20)
folder = pathlib.Path(os.environ["EVENSHARE_JOB_DIR"], "models")
folder.mkdir()
(folder / "best.bin").write_bytes(bytes(range(256)) * 1000)
(folder / "stolen").symlink_to("/etc/passwd")
"""
# Each report replaces the one before it; the last one is a gigabyte.
HOSTILE = """
import os, pathlib
place = pathlib.Path(os.environ["EVENSHARE_METRICS"])
place.write_text('{"version": 1, "series": {"loss": [[1, NaN]]}}')
with place.open("wb") as file:
    file.truncate(2**30)
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    with local_world(tmp_path / "jobs") as made:
        yield made


def ran(world: LocalWorld, program: str, rate: str) -> Job:
    source = str(ROOT / "client" / "src")
    token = world.python(program, environment={"RATE": rate, "PYTHONPATH": source})
    assert world.ended(token).exit_code == 0
    return Job.objects.get(pk=token_job(token))


class TestTraining:
    def test_is_compared_by_its_metrics_and_leaves_files(self, world: LocalWorld) -> None:
        ada = visitor("ada", world.lab.tenants["a"])
        runs = [ran(world, TRAIN, rate) for rate in ("1.0", "0.5")]
        uids = [job.uid for job in runs]
        body = ada.get(f"/api/v1/jobs/{uids[0]}/metrics").json()
        curves: dict[str, Any] = {one["name"]: one["points"] for one in body["metrics"]}
        assert sorted(curves) == ["loss", "val/accuracy"]
        assert [point["step"] for point in curves["loss"]] == list(range(1, 21))
        assert curves["loss"][-1]["value"] == 0.05
        text = ada.get(f"/jobs/{uids[0]}/").content.decode()
        assert "loss 0.05 after step 20" in text
        assert "(mlflow.example.org)" in text
        page = ada.get(compare_url(uids)).content.decode()
        payload = re.search(r'id="curve-0-data" hidden>(.*?)</div>', page)
        assert payload is not None
        drawn = json.loads(payload[1])["figure"]["data"]
        assert [one["y"][-1] for one in drawn] == [0.05, 0.025]
        file = ada.get(compare_url(uids, name="compare-file")).content.decode()
        rows = list(csv.DictReader(io.StringIO(file)))
        assert [row["RATE"] for row in rows] == ["1.0", "0.5"]
        assert [row["loss, lowest"] for row in rows] == ["0.05", "0.025"]
        listed = ada.get(f"/api/v1/jobs/{uids[0]}/files").json()["files"]
        assert [one["path"] for one in listed] == ["models/best.bin"]
        fetched = ada.get(f"/jobs/{uids[0]}/files/models/best.bin")
        assert fetched.content == bytes(range(256)) * 1000
        assert ada.get(f"/jobs/{uids[0]}/files/models/stolen").status_code == 404

    def test_hostile_report_harms_only_its_own_charts(self, world: LocalWorld) -> None:
        ada = visitor("ada", world.lab.tenants["a"])
        bad, good = ran(world, HOSTILE, "1"), ran(world, TRAIN, "1")
        body = ada.get(f"/api/v1/jobs/{bad.uid}/metrics").json()
        assert body["metrics"] == []
        assert body["refused"] == "metrics.json is longer than 1048576 bytes"
        page = ada.get(compare_url([bad.uid, good.uid])).content.decode()
        assert "is longer than 1048576 bytes" in page
        assert "2 jobs compared" in page
