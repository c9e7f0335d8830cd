"""Test `evenshare job submit --array` and `evenshare sweep` against the real portal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scheduling.models import Job, Sweep
from tests.factories import BEGIN, cluster
from tests.functional.test_cli import Person, person

YAML = """\
pool: {pool}
gpus: 1
command: [python, train.py, "{{{{ lr }}}}"]
matrix:
  lr: [0.1, 0.01]
"""


@pytest.fixture
def scene(site: str, tmp_path: Path) -> tuple[Person, str]:
    lab = cluster({"ada-lab": 2}, nodes=1, gpus=2)
    ada = person("ada", lab.tenants["ada-lab"], tmp_path, site)
    ada.logs_in()
    return ada, lab.pool.name


def test_submits_shows_cancels_and_resubmits(scene: tuple[Person, str], tmp_path: Path) -> None:
    ada, pool = scene
    job = ("job", "submit", "--pool", pool, "--gpus", "1")
    options = ("--array", "0-1%1", "--matrix", "lr=0.1,0.01", "--name", "train")
    made = ada.does(*job, *options, "--", "python", "train.py", "{{ lr }}", "{{ index }}").strip()
    sweep = Sweep.objects.get(uid=made)
    assert list(sweep.jobs.order_by("sweep_index").values_list("command", flat=True)) == [
        ["python", "train.py", lr, index] for lr in ("0.1", "0.01") for index in "01"
    ]
    assert sweep.at_once == 1
    shown = ada.does("sweep", "show", made)
    assert "3 held, 1 pending" in shown
    assert "0.01" in shown
    assert made in ada.does("sweep", "list")

    rules = (
        "--matrix",
        "lr=1,2",
        "--exclude",
        "lr=2",
        "--include",
        "lr=3,seed=7",
        "--hold",
        "--priority=-5",
    )
    ruled = ada.does(*job, *rules, "--", "true").strip()
    rows = Job.objects.filter(sweep__uid=ruled).order_by("sweep_index")
    assert [row.parameters for row in rows] == [{"lr": "1"}, {"lr": "3", "seed": "7"}]
    assert all(("tenant" in row.holds, row.priority) == (True, -5) for row in rows)

    sweep.jobs.filter(sweep_index=0).update(state="failed", ended_at=BEGIN)
    again = ada.does("sweep", "resubmit", made[:8]).strip()
    assert Sweep.objects.get(uid=again).origin == sweep
    assert "cancelled" in ada.does("sweep", "cancel", made)
    states = set(sweep.jobs.values_list("state", flat=True))
    assert states == {"failed", "cancelled"}

    file = tmp_path / "sweep.yaml"
    file.write_text(YAML.format(pool=pool))
    row = json.loads(ada.does("job", "submit", "-f", str(file), "-o", "json"))
    assert (row["jobs"], row["matrix"]) == (2, {"lr": ["0.1", "0.01"]})

    first = str(Job.objects.filter(sweep__uid=row["id"]).order_by("id")[0].uid)
    assert f"{row['id']}, job 0: lr=0.1" in ada.does("job", "show", first)
    after = ada.does(*job, "--after-ok", first, "--after-any", again, "--", "true").strip()
    assert Job.objects.get(uid=after).dependencies.count() == 2
