"""Test that a policy known only to its package and the registry works wherever policies do."""

from __future__ import annotations

import json
import re
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client

from evenshare_core.fairness.certificate import Property, Verdict, read
from evenshare_core.policies import registry
from evenshare_core.policies.options import describe_options
from portal.site.api import document
from scheduling.models import Lease, Pool, Round
from tests.functional.api_stage import ApiStage
from tests.functional.operate_stage import edit, operate_stage
from tests.toy_policy.smallest import POLICY, SmallestOptions

pytestmark = pytest.mark.usefixtures("committed_db")
OPTIONS = describe_options(SmallestOptions)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> ApiStage:
    """Return a pool of 8 GPUs under the toy policy, which is registered, with three jobs."""
    monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)
    stage = operate_stage()
    Pool.objects.filter(name=stage.pool).update(policy=POLICY.name)
    stage.cluster.pool.refresh_from_db()
    for gpus in (4, 2, 6):
        stage.cluster.submit("aa", gpus, 600)
    return stage


def page(stage: ApiStage, who: str, path: str) -> str:
    client = Client()
    client.force_login(stage.people[who])
    answer = client.get(path)
    assert answer.status_code == 200, path
    return str(answer.content.decode())


class TestRound:
    def test_is_decided_by_toy_policy(self, stage: ApiStage) -> None:
        stage.cluster.round(after_s=10)
        round_ = Round.objects.get()
        assert (round_.policy, round_.policy_version) == ("smallest", "7")
        served = Lease.objects.order_by("id").values_list("gpus", flat=True)
        assert list(served) == [2, 4]

    def test_page_shows_text_of_policy(self, stage: ApiStage) -> None:
        stage.cluster.round(after_s=10)
        shown = page(stage, "ada", f"/pools/{stage.pool}/rounds/1/")
        assert POLICY.order_text in shown
        assert "Issued by policy smallest 7" in shown

    @pytest.mark.parametrize(
        ("backfill", "verdict"), [(True, Verdict.HOLDS), (False, Verdict.NOT_PROMISED)]
    )
    def test_certificate_checks_promises_of_policy(
        self, stage: ApiStage, backfill: bool, verdict: Verdict
    ) -> None:
        Pool.objects.update(options={"backfill": backfill})
        stage.cluster.pool.refresh_from_db()
        stage.cluster.submit("aa", 1, 600)
        stage.cluster.submit("bb", 1, 600)
        stage.cluster.round(after_s=10)
        lines = {row.name: row.verdict for row in read(Round.objects.get().certificate).findings}
        assert lines[Property.PARETO] == verdict
        assert lines[Property.GANG] == Verdict.HOLDS

    def test_replay_gives_the_same_bytes(self, stage: ApiStage) -> None:
        stage.cluster.rounds(2, every_s=10)
        out = StringIO()
        call_command("replay_round", "2", "--pool", stage.pool, stdout=out)
        assert "same" in out.getvalue()

    def test_rest_names_the_policy(self, stage: ApiStage) -> None:
        stage.cluster.round(after_s=10)
        shown = stage.get(f"rounds/{stage.pool}/1").json()
        assert shown["policy"] == "smallest"


class TestOptions:
    def test_are_fields_of_the_settings_form(self, stage: ApiStage) -> None:
        shown = page(stage, "otto", f"/operate/pools/{stage.pool}/settings/")
        assert POLICY.promise in shown
        for option in OPTIONS:
            assert f'name="option-{option.name}"' in shown
            assert option.description in shown
        assert "Range: 1 to 64." in shown
        assert re.search(r'<option value="largest"\s*>largest</option>', shown)

    def test_are_saved_by_the_form(self, stage: ApiStage) -> None:
        client = Client()
        client.force_login(stage.people["otto"])
        pool = Pool.objects.get(name=stage.pool)
        form = {
            "do": "settings", "policy": "smallest", "visibility": pool.visibility,
            **{name: str(getattr(pool, name)) for name in ("round_s", "lease_s", "grace_s")},
            "outage_grace_s": str(pool.outage_grace_s), "idle_warn_s": "1800",
            "idle_return_s": "0", "least_lease_s": "0", "most_lease_s": "0",
            "profiling_s": "0",
            "option-order": "largest", "option-step_gpus": "2", "option-backfill": "no",
            "option-scale": "1.5",
        }  # fmt: skip
        path = f"/operate/pools/{stage.pool}/settings/"
        assert client.post(path, {**form, "option-step_gpus": "65"}).status_code == 422
        assert client.post(path, form).status_code == 302
        pool.refresh_from_db()
        assert pool.options == {
            "order": "largest", "step_gpus": 2, "backfill": False, "scale": 1.5,
        }  # fmt: skip

    def test_are_changed_and_validated_over_rest(self, stage: ApiStage) -> None:
        one = f"operate/pools/{stage.pool}"
        changed = edit(stage, "PATCH", one, {"options": {"order": "largest"}}, seen=one)
        assert changed.status_code == 200
        assert changed.json()["options"]["order"] == "largest"
        refused = edit(stage, "PATCH", one, {"options": {"step_gpus": 0}}, seen=one)
        assert refused.status_code == 400
        assert "options.step_gpus" in json.dumps(refused.json())

    def test_are_documented_in_openapi(self, stage: ApiStage) -> None:
        text = json.dumps(document())
        for option in OPTIONS:
            assert option.description in text

    def test_are_documented_in_command_help(
        self, stage: ApiStage, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            call_command("simulate", "--help")
        shown = " ".join(capsys.readouterr().out.split())
        for option in OPTIONS:
            assert f"smallest.{option.name}=" in shown
            assert option.description in shown


class TestSimulation:
    def test_compares_toy_policy_with_fifo(self, stage: ApiStage) -> None:
        out = StringIO()
        call_command(
            "simulate", "--synthetic", "60,3,2", "--nodes", "2", "--policy", "smallest,fifo",
            "--option", "smallest.order=largest", "--json", stdout=out,
        )  # fmt: skip
        toy, fifo = json.loads(out.getvalue())["results"]
        assert (toy["policy"], fifo["policy"]) == ("smallest", "fifo")
        assert toy["sha256"] != fifo["sha256"]
