"""Test the operator's REST API field by field: valid values, refusals, hostile input."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok

from scheduling.models import MaintenanceWindow, Node, Pool, PoolClock, PriceSetting, Round
from tenants.models import AuditRecord, Budget, Quota, Tenant
from tests.functional.api_stage import PLAIN, ApiStage
from tests.functional.operate_stage import LATER, QUOTA, SOON, edit, edits, operate_stage, tag
from tests.functional.test_api_nasty import BODIES
from tests.functional.test_api_schema import CHECKS
from tests.stages import staged

EXAMPLES = 2, 5  # examples per operation, in `make test` and in `make test-rest`


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    return operate_stage()


committed = staged(operate_stage)


class TestPool:
    ONE = "operate/pools/{pool}"

    def test_patch_changes_only_given_fields(self, stage: ApiStage) -> None:
        before = stage.get(self.ONE.format(pool=stage.pool), as_="otto").json()
        body = {
            "policy": "fifo", "round_s": 20, "grace_s": 0, "visibility": "own",
            "prices": {"v100": {"base": "0.5"}}, "reason": "summer" * 33,
        }  # fmt: skip
        after = edit(stage, "PATCH", self.ONE, body, seen=self.ONE).json()
        assert after["policy"] == "fifo"
        off = {"surcharge_cap": "0.000", "surcharge_step": "5.0"}
        assert after["prices"] == {"v100": {"base": "0.500000", "theta": "2.000", **off}}
        assert (after["lease_s"], after["scale"]) == (before["lease_s"], before["scale"])
        pool = Pool.objects.get()
        assert (pool.round_s, pool.grace_s, pool.visibility) == (20, 0, "own")
        actions = [(row.action, row.reason) for row in AuditRecord.objects.order_by("id")]
        assert actions == [("pool.changed", "summer" * 33), ("price.changed", "")]

    def test_patch_keeps_surcharge_if_only_base_price_changes(self, stage: ApiStage) -> None:
        on = {"surcharge_cap": "2.5", "surcharge_step": "0.5"}
        edit(stage, "PATCH", self.ONE, {"prices": {"v100": on}}, seen=self.ONE)
        after = edit(stage, "PATCH", self.ONE, {"prices": {"v100": {"base": "3"}}}, seen=self.ONE)
        assert after.json()["prices"]["v100"] == {
            "base": "3.000000", "theta": "2.000", "surcharge_cap": "2.500", "surcharge_step": "0.5"
        }  # fmt: skip
        record = AuditRecord.objects.order_by("id")[0]
        assert (record.before, record.after) == (
            {"surcharge_cap": "0.000", "surcharge_step": "5.0"},
            {"surcharge_cap": "2.500", "surcharge_step": "0.5"},
        )

    @pytest.mark.parametrize(
        ("terms", "field"),
        [
            ({"surcharge_cap": "1000"}, "surcharge_cap"),
            ({"surcharge_cap": "0.0001"}, "surcharge_cap"),
            ({"surcharge_step": "0"}, "surcharge_step"),
            ({"surcharge_step": "100.5"}, "surcharge_step"),
            ({"surcharge_step": "0.15"}, "surcharge_step"),
        ],
    )
    def test_rejects_invalid_surcharge(
        self, stage: ApiStage, terms: dict[str, str], field: str
    ) -> None:
        body = {"prices": {"v100": {"base": "3", **terms}}}
        refused = edit(stage, "PATCH", self.ONE, body, seen=self.ONE)
        assert refused.status_code == 400
        assert [one["field"] for one in refused.json()["errors"]] == [f"prices.v100.{field}"]
        assert PriceSetting.objects.get().base == 1

    def test_patch_keeps_other_options(self, stage: ApiStage) -> None:
        options = stage.get(self.ONE.format(pool=stage.pool), as_="otto").json()["options"]
        name, value = next((key, item) for key, item in options.items() if isinstance(item, bool))
        body = {"options": {name: not value}}
        after = edit(stage, "PATCH", self.ONE, body, seen=self.ONE).json()
        assert after["options"] == {**options, name: not value}

    def test_reports_all_errors_and_changes_nothing(self, stage: ApiStage) -> None:
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
        ("bound", "body", "field", "problem"),
        [
            ("least_lease_s", {"lease_s": 800}, "lease_s", "Enter at least 900, or lower"),
            ("most_lease_s", {"lease_s": 1000}, "lease_s", "Enter at most 900, or raise"),
            (
                "most_lease_s",
                {"most_lease_s": 800},
                "most_lease_s",
                "Enter at least the lease length, 900, or",
            ),
        ],
    )
    def test_rejects_values_beyond_pool_bound(
        self, stage: ApiStage, bound: str, body: dict[str, int], field: str, problem: str
    ) -> None:
        Pool.objects.update(lease_s=900, **{bound: 900})
        refused = edit(stage, "PATCH", self.ONE, body, seen=self.ONE)
        (error,) = refused.json()["errors"]
        assert (refused.status_code, error["field"]) == (400, field)
        assert problem in error["reason"]

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
            ("reason", 5), ("reason", "a\nb"), ("reason", "x" * 201),
        ],
    )  # fmt: skip
    def test_invalid_value_names_field(self, stage: ApiStage, field: str, value: Any) -> None:
        body = {"grace_s": 5, field: value}
        refused = edit(stage, "PATCH", self.ONE, body, seen=self.ONE)
        assert refused.status_code == 400, refused.content
        assert refused.json()["errors"][0]["field"].split(".")[0] == field
        assert not AuditRecord.objects.exists()

    def test_rejects_patch_without_changes(self, stage: ApiStage) -> None:
        for body in ({}, {"reason": "why not"}, None):
            assert edit(stage, "PATCH", self.ONE, body, seen=self.ONE).status_code == 400

    def test_rejects_numbers_out_of_column_range(self, stage: ApiStage) -> None:
        for text in ("1e999", "-1e400", "1e-999"):
            body = f'{{"options": {{"alpha": {text}}}}}'.encode()
            assert edit(stage, "PATCH", self.ONE, body, seen=self.ONE).status_code == 400

    def test_pauses_resumes_and_scales_clock(self, stage: ApiStage) -> None:
        Pool.objects.update(book="sandbox")
        assert edit(stage, "POST", f"{self.ONE}/pause", seen=self.ONE).json()["paused"]
        assert PoolClock.objects.get().paused
        assert not edit(stage, "POST", f"{self.ONE}/resume", seen=self.ONE).json()["paused"]
        scaled = edit(stage, "POST", f"{self.ONE}/scale", {"scale": 60}, seen=self.ONE)
        assert scaled.json()["scale"] == 60
        for wrong in (0, 3601, "60", None, 1.5, True):
            refused = edit(stage, "POST", f"{self.ONE}/scale", {"scale": wrong}, seen=self.ONE)
            assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "scale")

    def test_rejects_clock_scale_of_real_time_pool(self, stage: ApiStage) -> None:
        refused = edit(stage, "POST", f"{self.ONE}/scale", {"scale": 60}, seen=self.ONE)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "scale")


class TestQuota:
    SEEN = "operate/quotas?pool={pool}"

    def test_applies_from_and_until_given_instants(self, stage: ApiStage) -> None:
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

    def test_null_ends_quota_and_first_quota_creates_budget(self, stage: ApiStage) -> None:
        ended = edit(stage, "PUT", QUOTA, {"gpus": None}, seen=self.SEEN)
        assert ended.json() == {"results": [], "next": None, "warnings": []}
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
    def test_invalid_value_names_field(self, stage: ApiStage, field: str, value: Any) -> None:
        refused = edit(stage, "PUT", QUOTA, {"gpus": 3, field: value}, seen=self.SEEN)
        assert refused.status_code == 400, refused.content
        assert refused.json()["errors"][0]["field"] == field
        assert Quota.objects.count() == 2

    def test_rejects_overlap_with_planned_quota(self, stage: ApiStage) -> None:
        edit(stage, "PUT", QUOTA, {"gpus": 7, "from": SOON, "until": LATER}, seen=self.SEEN)
        refused = edit(stage, "PUT", QUOTA, {"gpus": 4}, seen=self.SEEN)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "until")

    def test_requires_gpus(self, stage: ApiStage) -> None:
        refused = edit(stage, "PUT", QUOTA, {"mode": "LEND"}, seen=self.SEEN)
        assert refused.json()["errors"][0]["field"] == "gpus"


class TestQuotaPreview:
    def body(self, stage: ApiStage, **more: Any) -> dict[str, Any]:
        draft = {"tenant": "aa", "gpu_type": "v100", "gpus": 8, **more}
        return {"pool": stage.pool, "quotas": [draft]}

    def test_predicts_next_round_and_writes_nothing(self, committed: ApiStage) -> None:
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
    def test_invalid_value_names_field(self, stage: ApiStage, more: dict[str, Any]) -> None:
        refused = stage.post("operate/quotas/preview", self.body(stage, **more), as_="otto")
        assert refused.status_code == 400, refused.content
        field = refused.json()["errors"][0]["field"]
        assert field in (f"quotas[0].{next(iter(more))}", f"quotas.aa.v100.{next(iter(more))}")

    def test_rejects_malformed_bodies(self, stage: ApiStage) -> None:
        good = self.body(stage)
        for wrong in (
            {}, {"pool": stage.pool, "quotas": []}, {**good, "pool": "none"}, {**good, "x": 1},
            {**good, "quotas": [5]}, {**good, "quotas": good["quotas"] * 2},
            {**good, "from": "2020-01-01T00:00:00Z"},
        ):  # fmt: skip
            assert stage.post("operate/quotas/preview", wrong, as_="otto").status_code == 400, wrong


class TestNodes:
    SEEN = "operate/nodes?pool={pool}"

    def test_removal_is_rejected_while_leases_remain(self, committed: ApiStage) -> None:
        one = "operate/nodes/{pool}/n0000"
        committed.cluster.submit("aa", 4, 600)
        committed.cluster.submit("bb", 4, 600)
        committed.cluster.round()
        refused = edit(committed, "DELETE", one, seen=self.SEEN)
        assert (refused.status_code, refused.json()["reason_code"]) == (409, "conflict")
        why = {"reason": "new fans"}
        silent = edit(committed, "POST", f"{one}/drain", {}, seen=self.SEEN)
        assert (silent.status_code, silent.json()["errors"][0]["field"]) == (400, "reason")
        drained = edit(committed, "POST", f"{one}/drain", why, seen=self.SEEN).json()
        assert (drained["state"], drained["held"]) == ("draining", 4)
        assert drained["reason"] == "new fans"
        assert edit(committed, "DELETE", one, seen=self.SEEN).status_code == 409
        assert Node.objects.filter(pool__isnull=False).count() == 2

    def test_etag_is_stable_across_leases(self, committed: ApiStage) -> None:
        before = tag(committed, self.SEEN)
        committed.cluster.submit("aa", 4, 600)
        committed.cluster.round()
        assert tag(committed, self.SEEN) == before

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("name", "UP"), ("name", "n0000"), ("name", 5), ("name", "a" * 64),
            ("gpu_type", ""), ("gpu_type", "x" * 40), ("gpus", 0), ("gpus", 1025), ("gpus", None),
            ("gpus", "4"), ("pool", "none"), ("pool", None), ("cpus", -1), ("cpus", "8"),
            ("memory_mb", 10**9), ("memory_mb", 1.5),
        ],
    )  # fmt: skip
    def test_invalid_value_names_field(self, stage: ApiStage, field: str, value: Any) -> None:
        body = {"pool": stage.pool, "name": "new", "gpu_type": "v100", "gpus": 4, field: value}
        refused = edit(stage, "POST", "operate/nodes", body, seen=self.SEEN)
        assert refused.status_code == 400, refused.content
        assert refused.json()["errors"][0]["field"] == field

    def test_stores_cpus_and_memory(self, stage: ApiStage) -> None:
        one = "operate/nodes/{pool}/n0000"
        said = edit(stage, "PATCH", one, {"cpus": 64, "memory_mb": 1024}, seen=self.SEEN)
        assert said.status_code == 200, said.content
        assert (said.json()["cpus"], said.json()["memory_mb"]) == (64, 1024)
        less = edit(stage, "PATCH", one, {"memory_mb": 0}, seen=said["ETag"]).json()
        assert (less["cpus"], less["memory_mb"]) == (64, 0)
        records = list(AuditRecord.objects.filter(action="node.changed").order_by("id"))
        assert [record.after for record in records] == [
            {"cpus": 64, "memory_mb": 1024}, {"memory_mb": 0}
        ]  # fmt: skip
        body = {"pool": stage.pool, "name": "new", "gpu_type": "v100", "gpus": 4, "cpus": 8}
        added = edit(stage, "POST", "operate/nodes", body, seen=self.SEEN).json()
        assert (added["cpus"], added["memory_mb"]) == (8, 0)

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "cpus"), ({"cpus": None}, "cpus"), ({"cpus": -1}, "cpus"),
            ({"cpus": 10**6 + 1}, "cpus"), ({"memory_mb": "1024"}, "memory_mb"),
            ({"memory_mb": 10**8 + 1}, "memory_mb"), ({"gpus": 4, "cpus": 1}, "gpus"),
        ],
    )  # fmt: skip
    def test_rejects_invalid_cpus_and_memory(self, stage: ApiStage, body: Any, field: str) -> None:
        refused = edit(stage, "PATCH", "operate/nodes/{pool}/n0000", body, seen=self.SEEN)
        assert refused.status_code == 400, refused.content
        assert refused.json()["errors"][0]["field"] == field
        assert not Node.objects.exclude(cpus=0, memory_mb=0).exists()

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("nodes", []), ("nodes", ["none"]), ("nodes", "n0000"), ("nodes", [5]),
            ("starts_at", None), ("starts_at", "x"), ("ends_at", "2020-01-01T00:00:00Z"),
            ("ends_at", "2098-01-01T00:00:00Z"), ("pool", "none"), ("reason", 7),
        ],
    )  # fmt: skip
    def test_invalid_maintenance_window_names_field(
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
    def test_invalid_value_names_field(self, stage: ApiStage, field: str, value: Any) -> None:
        body = {"slug": "cc", "name": "C", "initials": "C", field: value}
        refused = edit(stage, "POST", "operate/tenants", body, seen="operate/tenants")
        assert refused.status_code == 400, refused.content
        assert refused.json()["errors"][0]["field"] == field
        assert Tenant.objects.count() == 2


class TestAuditLog:
    def test_supports_cursor_and_filters(self, stage: ApiStage) -> None:
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


class TestHostileInput:
    @pytest.mark.parametrize("name", BODIES)
    def test_hostile_body_is_rejected_by_every_edit(self, stage: ApiStage, name: str) -> None:
        for method, path, _, seen in edits(stage).values():
            if method == "DELETE" or path.endswith(("pause", "resume", "drain", "accept")):
                continue
            answer = edit(stage, method, path, BODIES[name], seen=seen)
            assert answer.status_code in (400, 413), (path, answer.content[:300])
        assert not AuditRecord.objects.exists()

    @pytest.mark.parametrize("turn", range(len(EXAMPLES)))
    def test_generated_requests_never_return_5xx(self, committed: ApiStage, turn: int) -> None:
        schema = schemathesis.openapi.from_wsgi("/api/v1/schema", get_wsgi_application())
        sent: Counter[int] = Counter()
        for result in schema.include(path_regex="/operate/").get_all_operations():
            assert isinstance(result, Ok)
            for mode in schemathesis.GenerationMode:
                attack(committed, result.ok(), mode, sent, EXAMPLES[turn])
        assert sent[2] > 20, sent
        assert sent[4] > 20, sent
        assert not sent[5]


def attack(stage: ApiStage, operation: Any, mode: Any, sent: Counter[int], examples: int) -> None:
    """Send operators' requests that the schema allows, and others."""
    seen = _seen(operation.path, stage.pool)
    known = {"name": stage.pool, "slug": "aa", "node": "n0000", "gpu_type": "v100", "number": 1}
    known |= {"book": "main", "uid": "00000000-0000-4000-8000-000000000000"}

    @settings(max_examples=examples, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def once(case: Any) -> None:
        for name in case.path_parameters or {}:
            case.path_parameters[name] = known[name]
        if isinstance(case.body, dict) and "pool" in case.body:
            case.body["pool"] = stage.pool
        headers = {"Authorization": f"Bearer {stage.secrets['otto']}", "Host": "localhost"} | PLAIN
        if case.method != "GET" and seen:
            headers["If-Match"] = tag(stage, seen)
        answer = case.call_and_validate(headers=headers, checks=CHECKS)
        sent[answer.status_code // 100] += 1

    once()


def _seen(path: str, pool: str) -> str:
    """Return the source of the ETag for a URL."""
    kind = path.removeprefix("/api/v1").split("/")[2]
    if kind == "pools":
        lists = [one for one in ("/losses", "/overdue") if one in path]
        return f"operate/pools/{pool}{''.join(lists)}"
    if kind in ("quotas", "nodes", "maintenance"):
        return f"operate/{kind}?pool={pool}"
    return {"credit": "operate/credit/aa/main", "tenants": "operate/tenants"}.get(kind, "")
