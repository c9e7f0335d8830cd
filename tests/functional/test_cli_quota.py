"""Test that a manager requests, lists and withdraws a quota by the command and the SDK."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from evenshare import Client, RequestConflictError
from evenshare.cli.main import main
from tenants.models import Membership, QuotaChangeRequest
from tests.functional.api_stage import ApiStage, api_stage

Run = pytest.CaptureFixture[str]


@pytest.fixture
def stage(site: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ApiStage:
    stage = api_stage()
    stage.person("mia", "aa", Membership.Role.MANAGER)
    monkeypatch.setenv("EVENSHARE_URL", site)
    monkeypatch.setenv("EVENSHARE_TOKEN", stage.secrets["mia"])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return stage


def test_requests_lists_and_withdraws(stage: ApiStage, capsys: Run) -> None:
    def does(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(words) == code
        return capsys.readouterr().out

    ask = ("quota", "request", stage.pool, "4", "--reason", "course")
    asked = does(*ask, "--until", "2040-01-01", "--idempotency-key", "k").strip()
    assert does(*ask, "--until", "2040-01-01", "--idempotency-key", "k").strip() == asked
    row = QuotaChangeRequest.objects.get()
    assert (str(row.uid), row.gpu_type.name, row.gpus, row.reason) == (asked, "v100", 4, "course")
    assert f"{row.until:%Y-%m-%d %H:%M}" == "2040-01-01 00:00"
    # A tenant can have one open request for a quota.
    assert does(*ask, "--type", "v100", code=4) == ""
    (listed,) = json.loads(does("quota", "requests", "--state", "open", "-o", "json"))
    assert listed == stage.get("quota-requests", as_="mia").json()["results"][0]
    assert "2040-01-01T00:00:00Z" in does("quota", "requests")
    assert asked in does("completion", "words", "--", "quota", "withdraw", "")
    assert does("quota", "withdraw", asked[:8]).startswith("withdrawn: quota of aa in ")
    assert json.loads(does("quota", "withdraw", asked, "-o", "json"))["state"] == "withdrawn"
    assert does("quota", "requests", "--state", "open") == ""
    assert does(*ask, "--until", "Monday", code=2) == ""


def test_sdk_requests_lists_and_withdraws(stage: ApiStage) -> None:
    requests = Client().quota_requests
    ask = partial(requests.make, pool=stage.pool, gpu_type="v100", gpus=4, reason="course")
    made = ask(key="k")
    assert ask(key="k") == made
    with pytest.raises(RequestConflictError):
        ask()
    assert list(requests.list(pool=stage.pool, state="open")) == [made]
    assert requests.withdraw(made)["state"] == "withdrawn"
    assert requests.withdraw(made["id"])["id"] == made["id"]
    assert list(requests.list(state="open")) == []
