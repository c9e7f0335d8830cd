"""Test verifications that clients report over REST: stored only for a head of this log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from scheduling.models import Verification
from tenants import transparency
from tenants.models import User
from tenants.rate import Rate
from tenants.tokens import Scope
from tenants.transparency.log import root
from tests.functional.api_stage import ROLES, ApiStage, api_stage
from tests.functional.logs import log_rounds
from tests.plugin import Services
from tests.stages import Copy, copied, name_of_copy

ROUNDS = 3


def played_stage() -> ApiStage:
    stage = api_stage()
    for _ in range(ROUNDS):
        stage.job()
        stage.cluster.round(after_s=10)
    return stage


copy = copied(played_stage)
committed_db = name_of_copy


@pytest.fixture
def stage(copy: Copy[ApiStage], tmp_path: Path, settings: Settings) -> ApiStage:
    settings.LOG_KEYS_DIR = str(tmp_path / "log-keys")
    log_rounds(copy.made.cluster.pool)
    return copy.made


def said(stage: ApiStage, size: int = ROUNDS, **more: Any) -> dict[str, Any]:
    """Return a client's report about the first rounds."""
    log = transparency.round_log(stage.pool)
    told = {
        "kind": "rounds", "size": size, "root": root(log, size).hex(), "first": 1, "last": size,
        "checked": size, "findings": 0, "client": "evenshare 1.0",
    }  # fmt: skip
    return changed(told, more)


def changed(told: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return the report with other fields; None removes one."""
    return {key: value for key, value in {**told, **more}.items() if value is not None}


def say(stage: ApiStage, body: Any, **more: Any) -> Any:
    return stage.post(f"chain/{stage.pool}/verifications", body, **more)


STATEMENT: dict[str, Any] = {
    "kind": "statement", "first": None, "last": None, "since": "2030-01-01T00:00:00Z",
    "until": "2030-01-02T00:00:00Z",
}  # fmt: skip

SENSELESS: list[tuple[dict[str, Any], str]] = [
    ({"kind": "jobs"}, "kind"),
    ({"kind": None}, "kind"),
    ({"size": 0}, "size"),
    ({"size": True}, "size"),
    ({"size": 2**63}, "size"),
    ({"root": "0" * 63}, "root"),
    ({"root": "A" * 64}, "root"),
    ({"root": None}, "root"),
    ({"last": None}, "last"),
    ({"first": 0}, "first"),
    ({"first": 3, "last": 2}, "last"),
    ({"last": ROUNDS + 1}, "last"),
    ({"since": "2030-01-01T00:00:00Z"}, "since"),
    ({"checked": ROUNDS + 1}, "checked"),
    ({"checked": -1}, "checked"),
    ({"findings": None}, "findings"),
    ({"findings": 10**12}, "findings"),
    ({"client": "a\x1b[31m"}, "client"),
    ({"client": "c" * 41}, "client"),
    ({"tenant": "bb"}, "tenant"),
    ({"tenant": "nobody"}, "tenant"),
    ({"tenant": 5}, "tenant"),
    ({"host": "laptop"}, "host"),
    ({**STATEMENT, "until": "2030-01-01T00:00:00Z"}, "until"),
    ({**STATEMENT, "since": "yesterday"}, "since"),
    ({**STATEMENT, "last": 3}, "last"),
]


class TestVerificationReport:
    def test_is_stored_as_submitted(self, stage: ApiStage) -> None:
        answer = say(stage, said(stage, 2, findings=2))
        assert answer.status_code == 201, answer.json()
        row = Verification.objects.get()
        assert (row.tenant.slug, row.user.username, row.pool.name) == ("aa", "ada", stage.pool)
        assert (row.kind, row.first, row.last, row.size) == ("rounds", 1, 2, 2)
        assert (row.checked, row.findings, row.client) == (2, 2, "evenshare 1.0")
        shown = answer.json()
        assert (shown["id"], shown["tenant"], shown["root"]) == (str(row.uid), "aa", row.root)
        assert shown["said_at"].endswith("Z")

    def test_accepts_report_on_statement(self, stage: ApiStage) -> None:
        answer = say(stage, said(stage, **STATEMENT, checked=999, tenant="aa"))
        assert answer.status_code == 201, answer.json()
        shown = answer.json()
        assert (shown["since"], shown["until"]) == (
            "2030-01-01T00:00:00.000000Z", "2030-01-02T00:00:00.000000Z",
        )  # fmt: skip
        assert (shown["first"], shown["last"]) == (None, None)

    def test_is_stored_once_per_idempotency_key(self, stage: ApiStage) -> None:
        key = {"Idempotency-Key": "run-1"}
        first, again = (say(stage, said(stage), **key) for _ in range(2))
        assert (first.status_code, again.status_code) == (201, 201)
        assert first.json() == again.json()
        assert again.headers["Idempotent-Replayed"] == "true"
        assert Verification.objects.count() == 1
        other = say(stage, said(stage, findings=1), **key)
        assert (other.status_code, Verification.objects.count()) == (422, 1)

    def test_different_root_returns_409_as_fork(self, stage: ApiStage) -> None:
        for size in (1, ROUNDS):
            told = said(stage, size)
            bent = {**told, "root": told["root"][:-1] + ("0" if told["root"][-1] != "0" else "1")}
            answer = say(stage, bent)
            assert answer.status_code == 409
            problem = answer.json()
            assert problem["reason_code"] == "other_head"
            assert [error["field"] for error in problem["errors"]] == ["root"]
            assert told["root"] in problem["detail"]
            assert "forked or rewritten" in problem["detail"]
        assert not Verification.objects.exists()

    def test_longer_log_returns_409_as_shortened(self, stage: ApiStage) -> None:
        answer = say(stage, {**said(stage), "size": ROUNDS + 1})
        assert answer.status_code == 409
        assert [error["field"] for error in answer.json()["errors"]] == ["size"]
        assert "it was shortened" in answer.json()["detail"]

    def test_invalid_report_names_field(self, stage: ApiStage) -> None:
        for more, field in SENSELESS:
            answer = say(stage, changed(said(stage), more))
            assert answer.status_code == 400, (more, answer.json())
            assert [error["field"] for error in answer.json()["errors"]] == [field], more
        shapeless: list[Any] = [[], "x", 5, None]
        for body in shapeless:
            assert say(stage, body).status_code == 400
        assert not Verification.objects.exists()

    def test_requires_membership_of_its_tenant(self, stage: ApiStage) -> None:
        stage.person("olga")
        stage.person("otto", site_role=User.SiteRole.OPERATOR)
        stage.person("vera", "aa", ROLES.VIEWER)
        for who, tenant, status in (
            ("vera", None, 201), ("bob", None, 201), ("bob", "aa", 400), ("otto", None, 403),
            ("otto", "aa", 400), ("olga", None, 404), ("", None, 401),
        ):  # fmt: skip
            answer = say(stage, said(stage, tenant=tenant), as_=who)
            assert answer.status_code == status, (who, tenant, answer.json())
        kept = Verification.objects.order_by("id").values_list("user__username", "tenant__slug")
        assert list(kept) == [("vera", "aa"), ("bob", "bb")]

    def test_requires_tenant_from_members_of_several(self, stage: ApiStage) -> None:
        stage.person("mia", "aa", ROLES.VIEWER)
        stage.people["mia"].memberships.create(
            tenant=stage.cluster.tenants["bb"], role=ROLES.VIEWER
        )
        answer = say(stage, said(stage), as_="mia")
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "tenant")
        assert say(stage, said(stage, tenant="bb"), as_="mia").status_code == 201
        assert Verification.objects.get().tenant.slug == "bb"

    def test_requires_only_read_scope(self, stage: ApiStage) -> None:
        reader, writer = stage.token("ada", Scope.READ), stage.token("ada", Scope.JOBS_WRITE)
        assert say(stage, said(stage), as_=reader).status_code == 201
        assert say(stage, said(stage), as_=writer).status_code == 403

    def test_is_rate_limited(self, stage: ApiStage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("scheduling.api.verifications.REPORTS", Rate(per_s=0.001, full=1))
        statuses = [say(stage, said(stage)).status_code for _ in range(2)]
        assert statuses == [201, 429]

    def test_returns_503_while_log_is_unprovable(
        self, stage: ApiStage, committed_db: str, services: Services
    ) -> None:
        body = said(stage)
        with services.postgres.connect(committed_db) as session:
            session.execute("SET session_replication_role = replica")
            session.execute("DELETE FROM tenants_lognode")
        answer = say(stage, body)
        assert (answer.status_code, answer.json()["reason_code"]) == (503, "log_unavailable")
