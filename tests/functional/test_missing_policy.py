"""A pool whose policy is no longer installed: pages name the package, and none fails."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from evenshare_core.policies import installed, registry
from evenshare_core.policies.registry import UnknownPolicyError
from portal.site import prepare
from scheduling.services.pools import complete_options
from tenants.input.errors import FieldErrors
from tests.factories import Cluster
from tests.functional.addresses import bearer, is_api, session
from tests.functional.crawl import asked, looks
from tests.functional.two_tenants import Pair, Side
from tests.scope import uncompared

WHY = (
    "policy 'oef' is not installed; the package acme-policies brings it: pip install acme-policies"
)
DAY_S = 86_400
SHOWN = WHY.capitalize().replace("'", "&#x27;")


@pytest.fixture
def lab(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return a pool of two tenants whose policy is not installed."""
    lab = pair.one.pools[1]
    monkeypatch.delitem(registry.POLICIES, lab.pool.policy)
    monkeypatch.setitem(installed.BROUGHT_BY, lab.pool.policy, "acme-policies")
    return lab


def page(side: Side, path: str) -> str:
    answer = asked(session(side.session), path)
    assert answer.status_code == 200, path
    return str(answer.content.decode())


class TestUrls:
    def test_answer_without_server_error(self, pair: Pair, lab: Cluster) -> None:
        wrong = []
        with uncompared():
            for look in looks({"left": pair.one.words_in(lab)}):
                for side in (pair.operator, pair.one):
                    client = bearer(side.secret) if is_api(look.address) else session(side.session)
                    if asked(client, look.path).status_code >= 500:
                        wrong.append(look.path)
        assert not wrong


class TestRoundPage:
    def test_names_package_of_missing_policy(self, pair: Pair, lab: Cluster) -> None:
        number = pair.one.words_in(lab)["round"]
        assert SHOWN in page(pair.one, f"/pools/{lab.pool.name}/rounds/{number}/")


class TestUpgradePreparation:
    def test_lists_pools_with_missing_policy(self, lab: Cluster) -> None:
        line = f"pool {lab.pool.name}: no round is decided: {WHY}"
        assert line in prepare.pools_without_rounds()


class TestDryRun:
    def test_predicts_no_start(self, pair: Pair, lab: Cluster) -> None:
        job = {"pool": lab.pool.name, "name": "a", "gpus": 1, "command": ["true"]}
        tenant = pair.one.words["slug"]
        answer = bearer(pair.one.secret).post(
            "/api/v1/jobs/dry-run", {**job, "tenant": tenant}, content_type="application/json"
        )
        assert answer.status_code == 200, answer.content
        assert answer.json()["detail"] == f"No round of this pool is decided: {WHY}."


class TestSettingsValidation:
    def test_rejects_missing_policy_with_its_package(self, lab: Cluster) -> None:
        errors = FieldErrors()
        complete_options(lab.pool.policy, {}, errors)
        assert [(error.field, error.reason) for error in errors.errors] == [
            ("policy", f"Choose one of the policies: {WHY}.")
        ]


class TestSettingsPage:
    def test_states_that_no_round_is_decided(self, pair: Pair, lab: Cluster) -> None:
        shown = page(pair.operator, f"/operate/pools/{lab.pool.name}/settings/")
        assert "No round is decided" in shown
        assert SHOWN in shown
        assert 'value="oef" selected>oef: not installed' in shown

    def test_preview_of_other_policy_names_missing_package(self, pair: Pair, lab: Cluster) -> None:
        client = session(pair.operator.session)
        lengths = {name: str(getattr(lab.pool, name)) for name in ("round_s", "lease_s", "grace_s")}
        rest = {
            "outage_grace_s": "60",
            "idle_warn_s": "1800",
            "idle_return_s": "0",
            "least_lease_s": "0",
            "most_lease_s": "0",
        }
        form = {"do": "preview", "policy": "fifo", "visibility": "full", "profiling_s": "0"}
        path = f"/operate/pools/{lab.pool.name}/settings/"
        answer = client.post(path, {**form, **lengths, **rest})
        assert answer.status_code == 200
        assert "acme-policies" in answer.content.decode()


class TestRounds:
    def test_are_not_replayed(self, lab: Cluster) -> None:
        out = StringIO()
        with pytest.raises(CommandError, match="rounds are of policies that are not installed"):
            call_command("replay_round", "--all", "--pool", lab.pool.name, stdout=out)
        assert f"round 1: NOT DECIDED AGAIN: {WHY}" in out.getvalue()

    def test_are_not_decided(self, lab: Cluster) -> None:
        with pytest.raises(UnknownPolicyError, match="acme-policies"):
            lab.round(after_s=DAY_S)
