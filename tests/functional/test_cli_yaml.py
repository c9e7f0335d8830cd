"""Test `evenshare job submit -f` and `--explain` against the real portal."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from scheduling.models import Job
from scheduling.requests.job_yaml import write_yaml
from scheduling.selectors.jobs.requests import job_as_request
from tests.factories import cluster
from tests.functional.test_cli import Person, end, person

SPEC = {
    "gpus": 1,
    "command": ["sh", "-c", 'echo "$SEED"'],
    "comment": 'two: "words" # and more',
    "environment": {"SEED": "007", "MODE": "on"},
}


@dataclass
class FileScene:
    """A researcher with a file, and a pool without rounds."""

    ada: Person
    pool: str
    file: Path

    def write(self, **more: object) -> str:
        self.file.write_text(write_yaml({"pool": self.pool, **SPEC, **more})[0])
        return str(self.file)


@pytest.fixture
def scene(site: str, tmp_path: Path) -> FileScene:
    lab = cluster({"ada-lab": 1}, nodes=1, gpus=2)
    ada = person("ada", lab.tenants["ada-lab"], tmp_path, site)
    ada.logs_in()
    return FileScene(ada, lab.pool.name, tmp_path / "job.yaml")


def test_submits_copied_yaml_with_options_over_it(scene: FileScene) -> None:
    ada, file = scene.ada, scene.write()
    assert "feasible" in ada.does("job", "submit", "-f", file, "--dry-run")
    first = ada.does("job", "submit", "-f", file).strip()
    made = Job.objects.get(uid=first)
    assert SPEC.items() <= job_as_request(made).items()

    copied = write_yaml(job_as_request(made))[0]
    over = ("--gpus", "2", "--env", "SEED=8", "--name", "again")
    second = ada.does("job", "submit", "-f", "-", *over, "--", "true", given=copied).strip()
    again = Job.objects.get(uid=second)
    assert (again.gpus, again.name, again.command) == (2, "again", ["true"])
    assert again.environment == {"SEED": "8", "MODE": "on"}

    # Errors name line and field, of a value as of the syntax.
    wrong = scene.write(weight=0)
    line = Path(wrong).read_text().splitlines().index("weight: 0") + 1
    assert f"line {line}, weight: " in ada.does("job", "submit", "-f", wrong, code=3)
    refused = ada.does("job", "submit", "-f", "-", code=3, given="pool: x\ngpus: [\n")
    assert "line 2, yaml: " in refused

    # `--explain` sends nothing; curl makes the same call from what it prints.
    count = Job.objects.count()
    shown = ada.does("job", "submit", "-f", scene.write(name="by-curl"), "--explain")
    assert Job.objects.count() == count
    [token] = [text for text in _config(ada).split('"') if text.startswith("es_")]
    done = subprocess.run(
        ["sh", "-c", shown],
        env={"PATH": "/usr/bin:/bin", "EVENSHARE_TOKEN": token},
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"by-curl"' in done.stdout
    assert Job.objects.filter(name="by-curl").count() == 1
    end(scene.file.parent, [ada])


def _config(ada: Person) -> str:
    return (ada.home / ".config/evenshare/config.json").read_text()
