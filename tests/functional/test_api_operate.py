"""Test the operator's REST API: permissions, edits with ETags, races, and audit records."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

import pytest

from tenants import refusals
from tenants.models import AuditRecord
from tests.functional.api_stage import PASSWORD, ApiStage
from tests.functional.operate_stage import QUOTA, edit, edits, operate_stage, tag
from tests.tools import PATIENCE_S


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    return operate_stage()


class TestPermissions:
    READS = (
        "operate/pools/{pool}", "operate/quotas?pool={pool}", QUOTA, "operate/nodes",
        "operate/nodes?pool={pool}", "operate/maintenance", "operate/tenants", "operate/audit",
        "operate/pools/{pool}/losses", "operate/pools/{pool}/overdue",
    )  # fmt: skip

    def test_reads_require_site_role_and_scope(self, stage: ApiStage) -> None:
        expected = {
            "otto": 200, "reader": 200, "fin": 200, "aud": 200, "writer": 403,
            "ada": 404, "bob": 404, "max": 404, "": 401,
        }  # fmt: skip
        for path in self.READS:
            for who, status in expected.items():
                answer = stage.get(path.format(pool=stage.pool), as_=who)
                assert (path, who, answer.status_code) == (path, who, status)

    def test_edits_require_operator_with_operate_scope(self, stage: ApiStage) -> None:
        expected = {
            "reader": 403, "writer": 403, "fin": 403, "aud": 403,
            "ada": 404, "bob": 404, "max": 404, "": 401,
        }  # fmt: skip
        for name, (method, path, body, seen) in edits(stage).items():
            for who, status in expected.items():
                answer = edit(stage, method, path, body, seen=seen, as_=who)
                assert (name, who, answer.status_code) == (name, who, status)
        drafts = {"pool": stage.pool, "quotas": [{"tenant": "aa", "gpu_type": "v100", "gpus": 1}]}
        for who, status in expected.items():
            assert stage.post("operate/quotas/preview", drafts, as_=who).status_code == status
        # No change was made; refusals are recorded.
        assert set(AuditRecord.objects.values_list("action", flat=True)) == {refusals.ACTION}

    def test_edits_fail_once_role_is_removed(self, stage: ApiStage) -> None:
        seen = tag(stage, "operate/pools/{pool}")
        stage.people["otto"].site_role = ""
        stage.people["otto"].save()
        assert edit(stage, "POST", "operate/pools/{pool}/pause", seen=seen).status_code == 404

    def test_operate_scope_requires_operator_or_finance_role(self, stage: ApiStage) -> None:
        for name in ("ada", "otto", "fin"):
            stage.people[name].set_password(PASSWORD)
            stage.people[name].save()
        ask = {"username": "ada", "password": PASSWORD, "scopes": ["read", "operate"]}
        refused = stage.post("tokens", ask, as_="")
        assert (refused.status_code, refused.json()["reason_code"]) == (403, "role")
        for name in ("otto", "fin"):
            made = stage.post("tokens", {**ask, "username": name}, as_="").json()
            assert made["scopes"] == ["operate", "read"]
        del ask["scopes"]
        usual = stage.post("tokens", {**ask, "username": "otto"}, as_="").json()
        assert "operate" not in usual["scopes"]


class TestEdits:
    def test_return_new_etag_and_audit_request_id(self, stage: ApiStage) -> None:
        for name, (method, path, body, seen) in edits(stage).items():
            before = AuditRecord.objects.count()
            answer = edit(stage, method, path, body, seen=seen)
            assert answer.status_code in (200, 201, 204), (name, answer.content)
            assert answer["ETag"] == tag(stage, seen), name
            # the scale is already 1, and an edit that changes nothing is not recorded
            if name != "scale":
                record = AuditRecord.objects.order_by("-id")[0]
                assert AuditRecord.objects.count() == before + 1, name
                assert record.request_id == answer["X-Request-Id"]
                assert record.actor == stage.people["otto"]

    def test_require_if_match(self, stage: ApiStage) -> None:
        for name, (method, path, body, _) in edits(stage).items():
            refused = stage.call(method, path, body, as_="otto")
            told = (name, refused.status_code, refused.json()["reason_code"])
            assert told == (name, 428, "if_match_required")
            assert (
                stage.call(method, path, body, as_="otto", **{"If-Match": "*"}).status_code == 428
            )

    @pytest.mark.parametrize(
        "sent", ['"old"', "old", "{tag}", '"{tag}x"', ",,", '"' + "a" * 5000 + '"']
    )
    def test_stale_etag_returns_412_with_current_etag(self, stage: ApiStage, sent: str) -> None:
        all_ = edits(stage)
        for name, (method, path, body, seen) in all_.items():
            now = tag(stage, seen)
            match = sent.replace("{tag}", now.strip('"'))
            refused = stage.call(method, path, body, as_="otto", **{"If-Match": match})
            assert (name, refused.status_code, refused["ETag"]) == (name, 412, now)
            assert refused["Content-Type"] == "application/problem+json"
            assert refused.json()["reason_code"] == "stale"
        assert not AuditRecord.objects.exists()

    def test_accept_list_of_etags(self, stage: ApiStage) -> None:
        now = tag(stage, "operate/pools/{pool}")
        made = edit(stage, "POST", "operate/pools/{pool}/pause", seen=f'"old", {now}')
        assert made.status_code == 200

    @pytest.mark.parametrize("form", ['W/"{}"', '"{}-gzip"', 'W/"{}-zstd"'])
    def test_accept_etag_altered_by_compressing_proxy(self, stage: ApiStage, form: str) -> None:
        one = f"operate/pools/{stage.pool}"
        match = form.format(tag(stage, one).strip('"'))
        made = stage.call("POST", f"{one}/pause", as_="otto", **{"If-Match": match})
        assert made.status_code == 200

    def test_invalidate_previous_etag(self, stage: ApiStage) -> None:
        seen = tag(stage, "operate/quotas?pool={pool}")
        assert edit(stage, "PUT", QUOTA, {"gpus": 1}, seen=seen).status_code == 200
        assert edit(stage, "PUT", QUOTA, {"gpus": 2}, seen=seen).status_code == 412

    def test_reject_unknown_fields_and_parameters(self, stage: ApiStage) -> None:
        for name, (method, path, body, seen) in edits(stage).items():
            if method != "DELETE":
                refused = edit(stage, method, path, {**(body or {}), "id": 7}, seen=seen)
                assert refused.status_code == 400, (name, refused.content)
                assert refused.json()["errors"][0]["field"] == "id"
            assert edit(stage, method, f"{path}?x=1", body, seen=seen).status_code == 400
        assert not AuditRecord.objects.exists()

    def test_return_404_for_missing_objects(self, stage: ApiStage) -> None:
        for method, path in (
            ("PATCH", "operate/pools/none"),
            ("POST", "operate/pools/none/pause"),
            ("PUT", "operate/quotas/none/aa/v100"),
            ("PUT", "operate/quotas/{pool}/none/v100"),
            ("PUT", "operate/quotas/{pool}/aa/none"),
            ("POST", "operate/nodes/{pool}/none/drain"),
            ("DELETE", "operate/nodes/none/n0000"),
            ("DELETE", "operate/maintenance/{pool}/999999999999999999999999"),
        ):
            body = {"PUT": {"gpus": 1}, "PATCH": {"lease_s": 60}}.get(method)
            assert edit(stage, method, path, body, seen='"x"').status_code == 404, path
        assert stage.get("operate/quotas?pool=none", as_="otto").status_code == 404
        assert stage.get("operate/quotas", as_="otto").status_code == 400


class TestConcurrentEdits:
    """Two edits with the same ETag; one succeeds, and the other gets 412."""

    @pytest.mark.parametrize("what", ["pool", "clock", "quota", "quotas", "node", "tenant"])
    def test_only_one_of_six_succeeds(self, site: str, what: str) -> None:
        stage = operate_stage()
        pool = stage.pool
        method, paths, seen = {
            "pool": ("PATCH", [f"operate/pools/{pool}"], f"operate/pools/{pool}"),
            "clock": ("POST", [f"operate/pools/{pool}/pause"], f"operate/pools/{pool}"),
            "quota": ("PUT", [f"operate/quotas/{pool}/aa/v100"], f"operate/quotas?pool={pool}"),
            "quotas": (
                "PUT",
                [f"operate/quotas/{pool}/{slug}/v100" for slug in ("aa", "bb")],
                f"operate/quotas?pool={pool}",
            ),
            "node": ("POST", ["operate/nodes"], f"operate/nodes?pool={pool}"),
            "tenant": ("POST", ["operate/tenants"], "operate/tenants"),
        }[what]
        bodies: dict[str, Any] = {
            "pool": lambda n: {"lease_s": 600 + n},
            "clock": lambda _: {},
            "quota": lambda n: {"gpus": 10 + n},
            "quotas": lambda n: {"gpus": 10 + n},
            "node": lambda n: {"pool": pool, "name": f"x{n}", "gpu_type": "v100", "gpus": 1},
            "tenant": lambda n: {"slug": f"x{n}", "name": "X", "initials": "X"},
        }
        etag, where, barrier = tag(stage, seen), urlsplit(site), Barrier(6)

        def one(n: int) -> int:
            client = HTTPConnection(str(where.hostname), where.port, timeout=PATIENCE_S)
            headers = {
                "Authorization": f"Bearer {stage.secrets['otto']}",
                "Content-Type": "application/json",
                "If-Match": etag,
            }
            barrier.wait()
            path = f"/api/v1/{paths[n % len(paths)]}"
            client.request(method, path, json.dumps(bodies[what](n)), headers)
            status = client.getresponse().status
            client.close()
            return status

        with ThreadPoolExecutor(6) as threads:
            statuses = Counter(threads.map(one, range(6)))
        assert statuses[412] == 5, statuses
        assert statuses[200] + statuses[201] == 1
        assert AuditRecord.objects.count() == 1
