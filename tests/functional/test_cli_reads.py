"""Test that commands that read print exactly the REST answer with `-o json`, and tables without."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evenshare.cli.main import main
from tests.functional.api_stage import ApiStage, api_stage

Ran = Callable[..., str]


@pytest.fixture
def stage(site: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ApiStage:
    stage = api_stage()
    monkeypatch.setenv("EVENSHARE_URL", site)
    monkeypatch.setenv("EVENSHARE_TOKEN", stage.secrets["ada"])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    stage.job()
    stage.cluster.round()
    stage.cluster.submit("aa", 8, 60)
    return stage


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Ran:
    def call(*words: str) -> str:
        capsys.readouterr()
        assert main(words) == 0
        return capsys.readouterr().out

    return call


def test_print_rest_answers(stage: ApiStage, run: Ran) -> None:
    pool = stage.pool
    job = stage.get("jobs").json()["results"][-1]["id"]
    reads = {
        ("job", "list"): "jobs",
        ("job", "show", job): f"jobs/{job}",
        ("job", "why", job): f"jobs/{job}/why",
        ("job", "usage", job): f"jobs/{job}/usage",
        ("pool", "list"): "pools",
        ("pool", "show", pool): f"pools/{pool}",
        ("quota",): "quotas/use",
        ("quota", "requests"): "quota-requests",
        ("queue", "--pool", pool): f"pools/{pool}/queue",
        ("price",): "prices",
        ("price", "forecast", "--pool", pool): f"price-forecasts/{pool}",
        ("credit", "show"): "credit",
        ("sharing", "show", "--pool", pool, "--tenant", "aa"): f"pools/{pool}/sharing/aa",
        ("offer", "list", "--pool", pool, "--tenant", "aa"): f"pools/{pool}/offers/aa",
    }
    for words, path in reads.items():
        answer: Any = stage.get(path).json()
        rows = answer["results"] if "next" in answer else answer
        shown = json.loads(run(*words, "-o", "json"))
        assert _steady(shown) == _steady(rows), words
        run(*words)  # as a table


def test_show_pool_and_quota(stage: ApiStage, run: Ran) -> None:
    assert run("quota").split()[-8:] == ["aa", stage.pool, "v100", "3", "2", "0", "1", "0"]
    text = run("pool", "show", stage.pool)
    assert "lease_s" not in text
    assert f"pool        {stage.pool}" in text
    assert len(run("pool", "list").splitlines()) == 2


def _steady(answer: Any) -> Any:
    """Leave out the clock, which advances, and the address, which has another host here."""
    if isinstance(answer, dict):
        return {key: _steady(value) for key, value in answer.items() if key not in ("now", "url")}
    return [_steady(one) for one in answer] if isinstance(answer, list) else answer
