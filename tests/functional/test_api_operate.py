"""The operator's REST: who may, edits of what was seen, races, records, and hostile input."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.client import HTTPConnection
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok

from scheduling.models import MaintenanceWindow, Node, Pool, PoolClock, PriceSetting, Round
from tenants.models import AuditRecord, Budget, Quota, Tenant
from tenants.tokens import Scope
from tests.factories import BEGIN
from tests.functional.api_stage import PASSWORD, ApiStage, api_stage
from tests.functional.test_api_nasty import BODIES
from tests.functional.test_api_schema import CHECKS

QUOTA = "operate/quotas/{pool}/aa/v100"
SOON, LATER = "2099-01-01T00:00:00Z", "2099-01-02T00:00:00Z"


def _stage() -> ApiStage:
    stage = api_stage()
    for name, role in (("otto", "operator"), ("fin", "finance"), ("aud", "auditor")):
        stage.person(name, site_role=role)
    stage.person("max", "aa", "manager")
    stage.secrets["reader"] = stage.token("otto", Scope.READ)
    stage.secrets["writer"] = stage.token("otto", Scope.JOBS_WRITE, Scope.JOBS_READ)
    return stage


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    return _stage()


@pytest.fixture
def committed(committed_db: str) -> ApiStage:
    assert committed_db
    return _stage()


def tag(stage: ApiStage, path: str) -> str:
    """The ETag of a GET."""
    answer = stage.get(path.format(pool=stage.pool), as_="otto")
    assert answer.status_code == 200, answer.content
    return str(answer["ETag"])


def edit(
    stage: ApiStage, method: str, path: str, body: Any = None, *, seen: str, as_: str = "otto"
) -> Any:
    """Edit on the base of a GET of `seen` (an address, or a tag in quotes)."""
    etag = seen if seen.startswith('"') else tag(stage, seen)
    return stage.call(method, path.format(pool=stage.pool), body, as_=as_, **{"If-Match": etag})


def edits(stage: ApiStage) -> dict[str, tuple[str, str, Any, str]]:
    """Every edit: method, address, a good body, and what it is based on."""
    pool = stage.pool
    one, nodes = f"operate/pools/{pool}", f"operate/nodes?pool={pool}"
    windows, quotas = f"operate/maintenance?pool={pool}", f"operate/quotas?pool={pool}"
    window = MaintenanceWindow.objects.first() or MaintenanceWindow.objects.create(
        pool=stage.cluster.pool,
        node=Node.objects.order_by("id")[0],
        starts_at=BEGIN + timedelta(days=30_000),
        ends_at=BEGIN + timedelta(days=30_001),
    )
    plan = {"pool": pool, "nodes": ["n0000"], "starts_at": SOON, "ends_at": LATER}
    node = {"pool": pool, "name": "extra", "gpu_type": "a100", "gpus": 8}
    return {
        "change": ("PATCH", one, {"lease_s": 600}, one),
        "pause": ("POST", f"{one}/pause", {}, one),
        "scale": ("POST", f"{one}/scale", {"scale": 1}, one),
        "resume": ("POST", f"{one}/resume", {"reason": "done"}, one),
        "quota": ("PUT", f"operate/quotas/{pool}/aa/v100", {"gpus": 4}, quotas),
        "add": ("POST", "operate/nodes", node, nodes),
        "drain": ("POST", f"operate/nodes/{pool}/n0001/drain", {"reason": "fan"}, nodes),
        "up": ("POST", f"operate/nodes/{pool}/n0001/resume", None, nodes),
        "drain again": ("POST", f"operate/nodes/{pool}/n0001/drain", None, nodes),
        "remove": ("DELETE", f"operate/nodes/{pool}/n0001", None, nodes),
        "plan": ("POST", "operate/maintenance", plan, windows),
        "call off": ("DELETE", f"operate/maintenance/{pool}/{window.pk}", None, windows),
        "open": (
            "POST", "operate/tenants", {"slug": "cc", "name": "C", "initials": "c"},
            "operate/tenants",
        ),
    }  # fmt: skip


class TestWhoMay:
    READS = (
        "operate/pools/{pool}", "operate/quotas?pool={pool}", QUOTA, "operate/nodes",
        "operate/nodes?pool={pool}", "operate/maintenance", "operate/tenants", "operate/audit",
    )  # fmt: skip

    def test_read_is_whoever_runs_the_site(self, stage: ApiStage) -> None:
        expected = {
            "otto": 200, "reader": 200, "fin": 200, "aud": 200, "writer": 403,
            "ada": 404, "bob": 404, "max": 404, "": 401,
        }  # fmt: skip
        for path in self.READS:
            for who, status in expected.items():
                answer = stage.get(path.format(pool=stage.pool), as_=who)
                assert (path, who, answer.status_code) == (path, who, status)

    def test_edit_is_the_operator_with_the_scope_alone(self, stage: ApiStage) -> None:
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
        assert not AuditRecord.objects.exists()

    def test_edit_ends_with_the_role(self, stage: ApiStage) -> None:
        seen = tag(stage, "operate/pools/{pool}")
        stage.people["otto"].site_role = ""
        stage.people["otto"].save()
        assert edit(stage, "POST", "operate/pools/{pool}/pause", seen=seen).status_code == 404

    def test_ask_for_the_scope_is_an_operator(self, stage: ApiStage) -> None:
        for name in ("ada", "otto", "fin"):
            stage.people[name].set_password(PASSWORD)
            stage.people[name].save()
        ask = {"username": "ada", "password": PASSWORD, "scopes": ["read", "operate"]}
        refused = stage.post("tokens", ask, as_="")
        assert (refused.status_code, refused.json()["reason_code"]) == (403, "role")
        assert stage.post("tokens", {**ask, "username": "fin"}, as_="").status_code == 403
        made = stage.post("tokens", {**ask, "username": "otto"}, as_="").json()
        assert made["scopes"] == ["operate", "read"]
        del ask["scopes"]
        usual = stage.post("tokens", {**ask, "username": "otto"}, as_="").json()
        assert "operate" not in usual["scopes"]


class TestEveryEdit:
    def test_is_made_and_recorded_with_its_request(self, stage: ApiStage) -> None:
        for name, (method, path, body, seen) in edits(stage).items():
            before = AuditRecord.objects.count()
            answer = edit(stage, method, path, body, seen=seen)
            assert answer.status_code in (200, 201, 204), (name, answer.content)
            assert answer["ETag"] == tag(stage, seen), name
            if name != "scale":  # it is 1 already, and a change of nothing is no change
                record = AuditRecord.objects.order_by("-id")[0]
                assert AuditRecord.objects.count() == before + 1, name
                assert record.request_id == answer["X-Request-Id"]
                assert record.actor == stage.people["otto"]

    def test_needs_if_match(self, stage: ApiStage) -> None:
        for name, (method, path, body, _) in edits(stage).items():
            refused = stage.call(method, path, body, as_="otto")
            told = (name, refused.status_code, refused.json()["reason_code"])
            assert told == (name, 428, "if_match_required")
            assert (
                stage.call(method, path, body, as_="otto", **{"If-Match": "*"}).status_code == 428
            )

    @pytest.mark.parametrize("sent", ['"old"', "old", 'W/"{tag}"', ",,", '"' + "a" * 5000 + '"'])
    def test_is_refused_when_stale_with_the_present_tag(self, stage: ApiStage, sent: str) -> None:
        all_ = edits(stage)
        for name, (method, path, body, seen) in all_.items():
            now = tag(stage, seen)
            match = sent.replace("{tag}", now.strip('"'))
            refused = stage.call(method, path, body, as_="otto", **{"If-Match": match})
            assert (name, refused.status_code, refused["ETag"]) == (name, 412, now)
            assert refused["Content-Type"] == "application/problem+json"
            assert refused.json()["reason_code"] == "stale"
        assert not AuditRecord.objects.exists()

    def test_takes_one_of_several_tags(self, stage: ApiStage) -> None:
        now = tag(stage, "operate/pools/{pool}")
        made = edit(stage, "POST", "operate/pools/{pool}/pause", seen=f'"old", {now}')
        assert made.status_code == 200

    def test_makes_the_tag_before_it_stale(self, stage: ApiStage) -> None:
        seen = tag(stage, "operate/quotas?pool={pool}")
        assert edit(stage, "PUT", QUOTA, {"gpus": 1}, seen=seen).status_code == 200
        assert edit(stage, "PUT", QUOTA, {"gpus": 2}, seen=seen).status_code == 412

    def test_refuses_fields_and_parameters_that_it_does_not_know(self, stage: ApiStage) -> None:
        for name, (method, path, body, seen) in edits(stage).items():
            if method != "DELETE":
                refused = edit(stage, method, path, {**(body or {}), "id": 7}, seen=seen)
                assert refused.status_code == 400, (name, refused.content)
                assert refused.json()["errors"][0]["field"] == "id"
            assert edit(stage, method, f"{path}?x=1", body, seen=seen).status_code == 400
        assert not AuditRecord.objects.exists()

    def test_of_what_is_not_there_is_not_there(self, stage: ApiStage) -> None:
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


class TestAPool:
    ONE = "operate/pools/{pool}"

    def test_changes_what_is_named_and_nothing_else(self, stage: ApiStage) -> None:
        before = stage.get(self.ONE.format(pool=stage.pool), as_="otto").json()
        body = {
            "policy": "fifo", "round_s": 20, "grace_s": 0, "visibility": "own",
            "prices": {"v100": {"base": "0.5"}}, "reason": "summer",
        }  # fmt: skip
        after = edit(stage, "PATCH", self.ONE, body, seen=self.ONE).json()
        assert after["policy"] == "fifo"
        assert after["prices"] == {"v100": {"base": "0.500000", "theta": "2.000"}}
        assert (after["lease_s"], after["scale"]) == (before["lease_s"], before["scale"])
        pool = Pool.objects.get()
        assert (pool.round_s, pool.grace_s, pool.visibility) == (20, 0, "own")
        actions = AuditRecord.objects.order_by("id").values_list("action", "reason")
        assert list(actions) == [("pool.changed", "summer"), ("price.changed", "")]

    def test_keeps_the_options_that_are_not_named(self, stage: ApiStage) -> None:
        options = stage.get(self.ONE.format(pool=stage.pool), as_="otto").json()["options"]
        name, value = next((key, item) for key, item in options.items() if isinstance(item, bool))
        body = {"options": {name: not value}}
        after = edit(stage, "PATCH", self.ONE, body, seen=self.ONE).json()
        assert after["options"] == {**options, name: not value}

    def test_tells_all_errors_at_once_and_changes_nothing(self, stage: ApiStage) -> None:
        body = {"policy": "none", "prices": {"v100": {"base": "1", "theta": "1"}, "x": {}}}
        refused = edit(stage, "PATCH", self.ONE, body, seen=self.ONE)
        assert refused.status_code == 400
        fields = {error["field"] for error in refused.json()["errors"]}
        assert fields == {"policy", "prices.v100.theta", "prices.x"}
        half = {"lease_s": 60, "prices": {"v100": {"theta": "0.5"}}}
        assert edit(stage, "PATCH", self.ONE, half, seen=self.ONE).status_code == 400
        assert Pool.objects.get().lease_s == 900
        assert PriceSetting.objects.get().theta == 2

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("round_s", 0), ("round_s", "5"), ("round_s", None), ("lease_s", 10**30),
            ("grace_s", -1), ("outage_grace_s", True), ("visibility", "all"), ("visibility", []),
            ("policy", 5), ("policy", "a" * 500), ("options", []), ("options", {"none": 1}),
            ("options", {"a: b": 1}), ("options", {"alpha": {}}), ("options", {"x" * 70: 1}),
            ("prices", []), ("prices", {"v100": 1}), ("prices", {"v100": {"base": -1}}),
            ("prices", {"v100": {"base": "1e3"}}), ("prices", {"v100": {"price": "1"}}),
            ("prices", {"v100": {"theta": True}}), ("options", {"a": [1]}),
            ("reason", 5), ("reason", "a\nb"), ("reason", "x" * 2000),
        ],
    )  # fmt: skip
    def test_names_the_field_that_is_wrong(self, stage: ApiStage, field: str, value: Any) -> None:
        body = {"grace_s": 5, field: value}
        refused = edit(stage, "PATCH", self.ONE, body, seen=self.ONE)
        assert refused.status_code == 400, refused.content
        assert refused.json()["errors"][0]["field"].split(".")[0] == field
        assert not AuditRecord.objects.exists()

    def test_is_not_changed_by_a_body_that_names_nothing(self, stage: ApiStage) -> None:
        for body in ({}, {"reason": "why not"}, None):
            assert edit(stage, "PATCH", self.ONE, body, seen=self.ONE).status_code == 400

    def test_refuses_numbers_that_no_column_holds(self, stage: ApiStage) -> None:
        for text in ("1e999", "-1e400", "1e-999"):
            body = f'{{"options": {{"alpha": {text}}}}}'.encode()
            assert edit(stage, "PATCH", self.ONE, body, seen=self.ONE).status_code == 400

    def test_pauses_resumes_and_scales_its_clock(self, stage: ApiStage) -> None:
        Pool.objects.update(book="sandbox")
        assert edit(stage, "POST", f"{self.ONE}/pause", seen=self.ONE).json()["paused"]
        assert PoolClock.objects.get().paused
        assert not edit(stage, "POST", f"{self.ONE}/resume", seen=self.ONE).json()["paused"]
        scaled = edit(stage, "POST", f"{self.ONE}/scale", {"scale": 60}, seen=self.ONE)
        assert scaled.json()["scale"] == 60
        for wrong in (0, 3601, "60", None, 1.5, True):
            refused = edit(stage, "POST", f"{self.ONE}/scale", {"scale": wrong}, seen=self.ONE)
            assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "scale")

    def test_at_real_time_keeps_scale_1(self, stage: ApiStage) -> None:
        refused = edit(stage, "POST", f"{self.ONE}/scale", {"scale": 60}, seen=self.ONE)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "scale")


class TestAQuota:
    SEEN = "operate/quotas?pool={pool}"

    def test_is_set_from_an_instant_until_another(self, stage: ApiStage) -> None:
        body = {
            "gpus": 7, "mode": "LEND", "borrow_limit": 2, "lend_limit": None,
            "from": SOON, "until": LATER, "reason": "course",
        }  # fmt: skip
        made = edit(stage, "PUT", QUOTA, body, seen=self.SEEN)
        assert made.status_code == 200, made.content
        rows = made.json()["results"]
        assert [(row["gpus"], row["until"]) for row in rows] == [
            (3, "2099-01-01T00:00:00.000000Z"),
            (7, "2099-01-02T00:00:00.000000Z"),
            (3, None),
        ]
        assert rows == stage.get(QUOTA.format(pool=stage.pool), as_="fin").json()["results"]
        assert AuditRecord.objects.get().reason == "course"

    def test_ends_with_null_and_begins_with_a_budget(self, stage: ApiStage) -> None:
        ended = edit(stage, "PUT", QUOTA, {"gpus": None}, seen=self.SEEN)
        assert ended.json() == {"results": [], "next": None}
        Tenant.objects.create(slug="new", name="new", initials="N")
        path = "operate/quotas/{pool}/new/v100"
        assert edit(stage, "PUT", path, {"gpus": 2}, seen=self.SEEN).status_code == 200
        assert Budget.objects.filter(tenant__slug="new").exists()

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("gpus", -1), ("gpus", "3"), ("gpus", 1.5), ("gpus", 10**9), ("gpus", True),
            ("mode", "ALL"), ("mode", None), ("mode", []), ("borrow_limit", -1),
            ("lend_limit", "1"), ("from", "2020-01-01T00:00:00Z"), ("from", "soon"),
            ("from", 5), ("from", "2099-01-01"), ("from", "0001-01-01T00:00:00+10:00"),
            ("until", "2020-01-01T00:00:00Z"), ("until", "9999-12-31T23:59:59-10:00"),
            ("until", []), ("reason", {}),
        ],
    )  # fmt: skip
    def test_names_the_field_that_is_wrong(self, stage: ApiStage, field: str, value: Any) -> None:
        refused = edit(stage, "PUT", QUOTA, {"gpus": 3, field: value}, seen=self.SEEN)
        assert refused.status_code == 400, refused.content
        assert refused.json()["errors"][0]["field"] == field
        assert Quota.objects.count() == 2

    def test_does_not_run_into_a_planned_one(self, stage: ApiStage) -> None:
        edit(stage, "PUT", QUOTA, {"gpus": 7, "from": SOON, "until": LATER}, seen=self.SEEN)
        refused = edit(stage, "PUT", QUOTA, {"gpus": 4}, seen=self.SEEN)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "until")

    def test_needs_its_gpus(self, stage: ApiStage) -> None:
        refused = edit(stage, "PUT", QUOTA, {"mode": "LEND"}, seen=self.SEEN)
        assert refused.json()["errors"][0]["field"] == "gpus"


class TestThePreview:
    def body(self, stage: ApiStage, **more: Any) -> dict[str, Any]:
        draft = {"tenant": "aa", "gpu_type": "v100", "gpus": 8, **more}
        return {"pool": stage.pool, "quotas": [draft]}

    def test_tells_the_next_round_and_writes_nothing(self, committed: ApiStage) -> None:
        for tenant in ("aa", "bb", "aa", "bb"):
            committed.cluster.submit(tenant, 2, 600)
        rows = (Quota, AuditRecord, Round, Budget)
        before = [list(model.objects.values()) for model in rows]
        told = committed.post("operate/quotas/preview", self.body(committed), as_="otto")
        assert told.status_code == 200, told.content
        assert told.json()["error"] == ""
        quotas = {
            row["tenant"]: (row["before"]["quota"], row["after"]["quota"])
            for row in told.json()["results"]
        }
        assert quotas["aa"][0] == 3
        assert quotas["aa"][1] > 3
        assert [list(model.objects.values()) for model in rows] == before

    @pytest.mark.parametrize(
        "more",
        [
            {"tenant": "none"}, {"tenant": 5}, {"gpu_type": "none"}, {"gpus": -1},
            {"gpus": "x"}, {"mode": "ALL"}, {"until": "2020-01-01T00:00:00Z"}, {"extra": 1},
        ],
    )  # fmt: skip
    def test_names_the_field_that_is_wrong(self, stage: ApiStage, more: dict[str, Any]) -> None:
        refused = stage.post("operate/quotas/preview", self.body(stage, **more), as_="otto")
        assert refused.status_code == 400, refused.content
        field = refused.json()["errors"][0]["field"]
        assert field in (f"quotas[0].{next(iter(more))}", f"quotas.aa.v100.{next(iter(more))}")

    def test_refuses_other_bodies(self, stage: ApiStage) -> None:
        good = self.body(stage)
        for wrong in (
            {}, {"pool": stage.pool, "quotas": []}, {**good, "pool": "none"}, {**good, "x": 1},
            {**good, "quotas": [5]}, {**good, "quotas": good["quotas"] * 2},
            {**good, "from": "2020-01-01T00:00:00Z"},
        ):  # fmt: skip
            assert stage.post("operate/quotas/preview", wrong, as_="otto").status_code == 400, wrong


class TestNodes:
    SEEN = "operate/nodes?pool={pool}"

    def test_are_removed_when_drained_and_empty_alone(self, committed: ApiStage) -> None:
        one = "operate/nodes/{pool}/n0000"
        committed.cluster.submit("aa", 4, 600)
        committed.cluster.submit("bb", 4, 600)
        committed.cluster.round()
        refused = edit(committed, "DELETE", one, seen=self.SEEN)
        assert (refused.status_code, refused.json()["reason_code"]) == (409, "conflict")
        drained = edit(committed, "POST", f"{one}/drain", seen=self.SEEN).json()
        assert (drained["state"], drained["held"]) == ("drained", 4)
        assert edit(committed, "DELETE", one, seen=self.SEEN).status_code == 409
        assert Node.objects.filter(pool__isnull=False).count() == 2

    def test_keep_their_tag_while_leases_come_and_go(self, committed: ApiStage) -> None:
        before = tag(committed, self.SEEN)
        committed.cluster.submit("aa", 4, 600)
        committed.cluster.round()
        assert tag(committed, self.SEEN) == before

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("name", "UP"), ("name", "n0000"), ("name", 5), ("name", "a" * 64),
            ("gpu_type", ""), ("gpu_type", "x" * 40), ("gpus", 0), ("gpus", 1025), ("gpus", None),
            ("gpus", "4"), ("pool", "none"), ("pool", None),
        ],
    )  # fmt: skip
    def test_name_the_field_that_is_wrong(self, stage: ApiStage, field: str, value: Any) -> None:
        body = {"pool": stage.pool, "name": "new", "gpu_type": "v100", "gpus": 4, field: value}
        refused = edit(stage, "POST", "operate/nodes", body, seen=self.SEEN)
        assert refused.status_code == 400, refused.content
        assert refused.json()["errors"][0]["field"] == field

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("nodes", []), ("nodes", ["none"]), ("nodes", "n0000"), ("nodes", [5]),
            ("starts_at", None), ("starts_at", "x"), ("ends_at", "2020-01-01T00:00:00Z"),
            ("ends_at", "2098-01-01T00:00:00Z"), ("pool", "none"), ("reason", 7),
        ],
    )  # fmt: skip
    def test_maintenance_names_the_field_that_is_wrong(
        self, stage: ApiStage, field: str, value: Any
    ) -> None:
        body = {"pool": stage.pool, "nodes": ["n0000"], "starts_at": SOON, "ends_at": LATER}
        refused = edit(
            stage, "POST", "operate/maintenance", {**body, field: value},
            seen="operate/maintenance?pool={pool}",
        )  # fmt: skip
        assert refused.status_code == 400, refused.content
        assert refused.json()["errors"][0]["field"].split("[")[0] == field
        assert not MaintenanceWindow.objects.exists()


class TestTenants:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("slug", "aa"), ("slug", "A b"), ("slug", None), ("slug", "a" * 64), ("name", ""),
            ("name", "a\nb"), ("name", 5), ("name", "n" * 121), ("initials", "abc"),
            ("initials", "--"), ("initials", []),
        ],
    )  # fmt: skip
    def test_name_the_field_that_is_wrong(self, stage: ApiStage, field: str, value: Any) -> None:
        body = {"slug": "cc", "name": "C", "initials": "C", field: value}
        refused = edit(stage, "POST", "operate/tenants", body, seen="operate/tenants")
        assert refused.status_code == 400, refused.content
        assert refused.json()["errors"][0]["field"] == field
        assert Tenant.objects.count() == 2


class TestTheAuditLog:
    def test_is_read_by_cursor_and_filter(self, stage: ApiStage) -> None:
        one = "operate/pools/{pool}"
        for _ in range(3):
            edit(stage, "POST", f"{one}/pause", seen=one)
            edit(stage, "POST", f"{one}/resume", seen=one)
        seen, path = [], "operate/audit?limit=4"
        while path:
            page = stage.get(path, as_="aud").json()
            seen += [row["action"] for row in page["results"]]
            path = page["next"] and f"operate/audit?limit=4&cursor={page['next']}"
        assert seen == ["clock.resumed", "clock.paused"] * 3
        for query, count in (
            ("action=clock.paused", 3), ("actor=otto", 6), ("actor=ada", 0),
            (f"subject={stage.pool}", 6), ("subject=x", 0),
        ):  # fmt: skip
            rows = stage.get(f"operate/audit?{query}", as_="aud").json()["results"]
            assert (query, len(rows)) == (query, count)
        assert stage.get("operate/audit?cursor=made-up", as_="aud").status_code == 400


class TestARace:
    """Two edits that saw the same: one wins, the other is told."""

    @pytest.mark.parametrize("what", ["pool", "clock", "quota", "quotas", "node", "tenant"])
    def test_is_won_by_one(self, site: str, what: str) -> None:
        stage = _stage()
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
            client = HTTPConnection(str(where.hostname), where.port, timeout=30)
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


class TestHostileInput:
    @pytest.mark.parametrize("name", BODIES)
    def test_as_a_body_is_refused(self, stage: ApiStage, name: str) -> None:
        for method, path, _, seen in edits(stage).values():
            if method == "DELETE" or path.endswith(("pause", "resume", "drain")):
                continue
            answer = edit(stage, method, path, BODIES[name], seen=seen)
            assert answer.status_code in (400, 413), (path, answer.content[:300])
        assert not AuditRecord.objects.exists()

    def test_as_the_schema_makes_it_never_fails(self, committed: ApiStage) -> None:
        schema = schemathesis.openapi.from_wsgi("/api/v1/schema", get_wsgi_application())
        known = {
            "name": committed.pool, "slug": "aa", "node": "n0000", "gpu_type": "v100", "number": 1
        }  # fmt: skip
        sent: Counter[int] = Counter()
        for result in schema.include(path_regex="/operate/").get_all_operations():
            assert isinstance(result, Ok)
            operation = result.ok()
            seen = _seen(operation.path, committed.pool)
            for mode in schemathesis.GenerationMode:
                strategy = operation.as_strategy(generation_mode=mode)

                @settings(
                    max_examples=8,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                )
                @given(case=strategy)
                def once(case: Any, seen: str = seen) -> None:
                    for name in case.path_parameters or {}:
                        case.path_parameters[name] = known[name]
                    if isinstance(case.body, dict) and "pool" in case.body:
                        case.body["pool"] = committed.pool
                    headers = {
                        "Authorization": f"Bearer {committed.secrets['otto']}",
                        "Host": "localhost",
                    }
                    if case.method != "GET" and seen:
                        headers["If-Match"] = tag(committed, seen)
                    answer = case.call_and_validate(headers=headers, checks=CHECKS)
                    sent[answer.status_code // 100] += 1

                once()
        assert sent[2] > 20
        assert sent[4] > 20
        assert not sent[5]


def _seen(path: str, pool: str) -> str:
    """Where the tag for an address comes from."""
    kind = path.removeprefix("/api/v1").split("/")[2]
    if kind == "pools":
        return f"operate/pools/{pool}"
    if kind in ("quotas", "nodes", "maintenance"):
        return f"operate/{kind}?pool={pool}"
    return "operate/tenants" if kind == "tenants" else ""
