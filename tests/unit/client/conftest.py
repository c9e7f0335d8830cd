"""Provide fixtures that run the client's command in this process, against a small portal."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evenshare.cli import api
from evenshare.cli.main import main
from tests.unit.verified_rounds import POOL, StagedPool, staged_rounds

from .portal import TOKEN, Portal, serve

ROUNDS = 8


@dataclass
class Ran:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def portal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Portal]:
    made = Portal()
    server = serve(made)
    monkeypatch.setenv("EVENSHARE_URL", made.url)
    monkeypatch.setenv("EVENSHARE_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(api, "PAUSES_S", (0.0, 0.0, 0.0))
    yield made
    server.shutdown()
    server.server_close()


@pytest.fixture
def run(portal: Portal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command in this process against the test's own portal."""
    assert portal.url
    from evenshare.cli import jobs

    monkeypatch.setattr(jobs, "POLL_S", (0.0,))

    def call(*words: str) -> Ran:
        capsys.readouterr()
        code = main(words)
        text = capsys.readouterr()
        return Ran(code, text.out, text.err)

    return call


@pytest.fixture
def pool(portal: Portal) -> StagedPool:
    made = StagedPool(staged_rounds(ROUNDS))
    portal.rounds = made.answer
    portal.jobs = made.jobs()
    return made


@pytest.fixture
def verify_all(run: Run, pool: StagedPool) -> Any:
    assert pool.size == ROUNDS

    def call(*more: str) -> Ran:
        return run("round", "verify", "--pool", POOL, "--last", str(ROUNDS), *more)

    return call


def pin_path(tmp_path: Path) -> Path:
    [path] = (tmp_path / "evenshare" / "pins").glob("*.json")
    return path
