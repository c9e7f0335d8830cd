"""Test the REST API: its answers, their audience, and its refusals."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from scheduling.models import Job, Pool
from tenants.models import ApiToken, Membership
from tenants.tokens import Scope
from tests.functional.api_stage import PASSWORD, ApiStage, api_stage


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    return api_stage()


@pytest.fixture
def live(request: pytest.FixtureRequest) -> ApiStage:
    for needed in ("committed_db", "unhurried"):
        request.getfixturevalue(needed)
    return api_stage()


class TestTokens:
    ASK = {"username": "ada", "password": PASSWORD, "name": "laptop", "scopes": ["read"], "days": 9}

    @pytest.fixture(autouse=True)
    def password(self, stage: ApiStage, settings: Any) -> None:
        settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
        stage.people["ada"].set_password(PASSWORD)
        stage.people["ada"].save()

    def test_secret_is_shown_only_on_creation(self, stage: ApiStage) -> None:
        made = stage.post("tokens", self.ASK, as_="")
        assert made.status_code == 201
        secret = made.json()["token"]
        assert len(secret) >= 40
        assert not ApiToken.objects.filter(digest=secret).exists()
        listed = stage.get("tokens", as_=secret)
        assert secret not in listed.content.decode()
        assert made.json()["id"] in [row["id"] for row in listed.json()["results"]]

    def test_deleted_token_returns_401(self, stage: ApiStage) -> None:
        made = stage.post("tokens", self.ASK, as_="").json()
        assert stage.call("DELETE", f"tokens/{made['id']}", as_=made["token"]).status_code == 204
        assert stage.get("pools", as_=made["token"]).status_code == 401

    def test_expired_token_returns_401(self, stage: ApiStage) -> None:
        ApiToken.objects.update(expires_at=stage.people["ada"].date_joined)
        refused = stage.get("pools")
        assert refused.status_code == 401
        assert refused["WWW-Authenticate"].startswith("Bearer")

    def test_deleting_token_of_another_user_returns_404(self, stage: ApiStage) -> None:
        others = ApiToken.objects.get(user=stage.people["bob"])
        assert stage.call("DELETE", f"tokens/{others.uid}").status_code == 404

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("days", 91), ("days", 0), ("days", True), ("scopes", []), ("scopes", ["admin"]),
            ("scopes", "read"), ("name", ""), ("name", 5), ("username", None), ("password", 1),
            ("user_id", 1), ("expires_at", "2099-01-01"),
        ],
    )  # fmt: skip
    def test_invalid_request_names_field(self, stage: ApiStage, field: str, value: object) -> None:
        refused = stage.post("tokens", self.ASK | {field: value}, as_="")
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["field"].startswith(field)

    def test_creation_locks_after_ten_wrong_passwords(self, stage: ApiStage) -> None:
        wrong = self.ASK | {"password": "wrong"}
        answers = [stage.post("tokens", wrong, as_="").status_code for _ in range(12)]
        assert answers == [401] * 9 + [429] * 3
        right = stage.post("tokens", self.ASK, as_="")
        assert (right.status_code, right.json()["reason_code"]) == (429, "locked_out")
        bob = stage.post("tokens", wrong | {"username": "bob"}, as_="")
        assert bob.status_code == 401

    def test_login_page_locks_after_wrong_passwords(self, stage: ApiStage, client: Any) -> None:
        for _ in range(12):
            client.post("/login/", {"username": "ada", "password": "wrong"})
        client.post("/login/", {"username": "ada", "password": PASSWORD})
        assert "_auth_user_id" not in client.session


class TestJob:
    def test_submission_appears_in_detail_and_filtered_lists(self, stage: ApiStage) -> None:
        made = stage.post("jobs", stage.spec(name="first", environment={"SEED": "1"}))
        assert made.status_code == 201, made.content
        row = made.json()
        assert row["state"] == "pending"
        assert row["charge"] == "0.000000"
        assert made["Location"] == f"/api/v1/jobs/{row['id']}"
        assert stage.get(f"jobs/{row['id']}").json() == row
        for word in ("state=pending", "state=queued", "state=Waiting", "phase=QUEUED"):
            assert stage.get(f"jobs?{word}").json() == {"results": [row], "next": None}
        for word in ("state=starting", "state=done", "phase=canceled"):
            assert stage.get(f"jobs?{word}").json() == {"results": [], "next": None}
        (error,) = stage.get("jobs?state=gone").json()["errors"]
        assert all(word in error["hint"] for word in ("pending", "queued", "starting"))
        assert Job.objects.get().submitted_by == stage.people["ada"]

    def test_shows_lease_and_wait_reason(self, live: ApiStage) -> None:
        Pool.objects.filter(name=live.pool).update(options={"promises": False})
        uid = live.post("jobs", live.spec(gpus=3)).json()["id"]
        live.cluster.at = Job.objects.get(uid=uid).submitted_at + timedelta(seconds=15)
        live.cluster.submit("bb", 6, 900)
        live.cluster.round(after_s=15)
        row = live.get(f"jobs/{uid}").json()
        assert row["state"] == "running"
        assert row["lease"]["nodes"] == ["n0000"]
        assert (row["lease"]["own"], row["lease"]["number"]) == (3, 1)
        other = Job.objects.get(tenant=live.cluster.tenants["bb"]).uid
        why = live.get(f"jobs/{other}/why", as_="bob").json()
        assert (why["reason_code"], why["round"]) == ("lease_turn", 1)
        (skip,) = live.get(f"rounds/{live.pool}/1", as_="bob").json()["decision"]["skips"]
        assert skip["reason_code"] == why["reason_code"]
        # The GPU-time of a job is private to its tenant.
        assert {**skip["tenants"][0]["numbers"], "attained_gpu_us": 0} == why["numbers"]
        assert None not in why["numbers"].values()

    def test_wait_reason_shows_own_need_among_smaller_jobs(self, live: ApiStage) -> None:
        for gpus in (8, 4, 6):
            live.cluster.submit("bb", gpus, 900)
        live.cluster.round(after_s=15)
        for job in Job.objects.filter(state=Job.State.PENDING):
            why = live.get(f"jobs/{job.uid}/why", as_="bob").json()
            assert why["numbers"]["needed"] == job.gpus
            assert f"{job.gpus} GPUs" in why["words"]

    def test_cancel_is_idempotent(self, stage: ApiStage) -> None:
        uid = stage.post("jobs", stage.spec()).json()["id"]
        first = stage.post(f"jobs/{uid}/cancel")
        assert (first.status_code, first.json()["state"]) == (200, "cancelled")
        assert stage.post(f"jobs/{uid}/cancel", {}).json() == first.json()
        assert stage.get(f"jobs/{uid}/why").json()["words"] == "It was cancelled."

    def test_log_is_empty_before_start(self, stage: ApiStage) -> None:
        log = stage.get(f"jobs/{stage.job().uid}/logs").json()
        assert log == {
            "lease": None, "offset": 0, "next_offset": 0, "total": 0, "text": "",
            "complete": False,
        }  # fmt: skip

    def test_dry_run_returns_feasibility_and_creates_no_job(self, stage: ApiStage) -> None:
        answer = stage.post("jobs/dry-run", stage.spec()).json()
        assert answer["feasible"]
        assert (answer["price"], answer["currency"]) == ("0.000000", "credit")
        assert (answer["own"], answer["borrowed"]) == (stage.spec()["gpus"], 0)
        assert answer["note"] == "feasibility, not a reservation"
        too_large = stage.post("jobs/dry-run", stage.spec(gpus=99)).json()
        assert (too_large["feasible"], too_large["reason_code"]) == (False, "too_large")
        assert (too_large["own"], too_large["borrowed"]) == (0, 0)
        assert not Job.objects.exists()

    def test_dry_run_predicts_next_round(self, live: ApiStage) -> None:
        starts = live.post("jobs/dry-run", live.spec(gpus=1)).json()
        eta = starts["next_round"]["eta"]
        assert (starts["reason_code"], starts["next_round"]["starts"]) == ("", True)
        assert eta == {"p50": starts["next_round"]["at"], "p90": eta["p50"], "reason": ""}
        live.cluster.submit("bb", 8, 900)
        live.cluster.round(after_s=15)
        rows = Job.objects.count()
        answer = live.post("jobs/dry-run", live.spec(gpus=8)).json()
        assert Job.objects.count() == rows
        assert answer["feasible"]
        assert (answer["price"], answer["note"]) == ("1.000000", "feasibility, not a reservation")
        row = answer["next_round"]
        assert (row["round"], row["starts"]) == (2, False)
        assert row["reason_code"] == answer["reason_code"] != ""
        assert row["eta"] == {"p50": None, "p90": None, "reason": "too_little_known"}
        assert "No reliable start estimate" in answer["detail"]

    def test_bulk_submission_is_ordered_atomic_and_idempotent(self, stage: ApiStage) -> None:
        specs = [stage.spec(name=f"n{i}") for i in range(30)]
        made = stage.post("jobs/bulk", {"jobs": specs}, **{"Idempotency-Key": "b"})
        assert made.status_code == 201
        assert [row["name"] for row in made.json()["results"]] == [f"n{i}" for i in range(30)]
        again = stage.post("jobs/bulk", {"jobs": specs}, **{"Idempotency-Key": "b"})
        assert again.json() == made.json()
        bad = stage.post("jobs/bulk", {"jobs": [*specs, {"pool": "x"}]})
        assert bad.json()["errors"][0]["field"] == "jobs[30].pool"
        assert Job.objects.count() == 30

    def test_repeated_key_returns_same_job_and_rejects_changed_body(self, stage: ApiStage) -> None:
        key = {"Idempotency-Key": "k1"}
        first = stage.post("jobs", stage.spec(), **key)
        again = stage.post("jobs", stage.spec(), **key)
        assert (again.status_code, again.json()) == (first.status_code, first.json())
        other = stage.post("jobs", stage.spec(gpus=1), **key)
        assert (other.status_code, other.json()["reason_code"]) == (422, "idempotency_mismatch")
        assert Job.objects.count() == 1

    def test_repeated_key_returns_current_state_of_job(self, live: ApiStage) -> None:
        """A repeated submission returns the job's current state, as the job's URL does."""
        spec = live.spec()
        asked = {"jobs": (spec, "k1"), "jobs/bulk": ({"jobs": [spec, spec]}, "k2")}
        for path, (body, key) in asked.items():
            assert live.post(path, body, **{"Idempotency-Key": key}).status_code == 201
        live.cluster.at = Job.objects.earliest("id").submitted_at + timedelta(seconds=15)
        live.cluster.round(after_s=15)
        shown = []
        for path, (body, key) in asked.items():
            again = live.post(path, body, **{"Idempotency-Key": key})
            assert again["Idempotent-Replayed"] == "true"
            shown += again.json().get("results", [again.json()])
        assert all(row["lease"] for row in shown)
        assert shown == [live.get(f"jobs/{row['id']}").json() for row in shown]

    def test_rejects_invalid_idempotency_key(self, stage: ApiStage) -> None:
        for key in ("", "x" * 256, "a\tb"):
            refused = stage.post("jobs", stage.spec(), **{"Idempotency-Key": key})
            assert refused.json()["errors"][0]["field"] == "Idempotency-Key"


class TestLists:
    def test_cursor_reaches_every_job_newest_first(self, stage: ApiStage) -> None:
        for _ in range(5):
            stage.job()
        seen, path = [], "jobs?limit=2"
        while path:
            page = stage.get(path).json()
            seen += [row["id"] for row in page["results"]]
            path = f"jobs?limit=2&cursor={page['next']}" if page["next"] else ""
        newest = [str(uid) for uid in Job.objects.order_by("-id").values_list("uid", flat=True)]
        assert seen == newest

    @pytest.mark.parametrize(
        "query",
        [
            "cursor=5", "cursor=xx:yy", "cursor=%07", "limit=0", "limit=201", "limit=x", "limit=-1",
            "state=gone", "stat=pending", "limit=1&limit=2", "cursor=" + "a" * 600, "limit=%D9%A1",
        ],
    )  # fmt: skip
    def test_rejects_invalid_query_parameters(self, stage: ApiStage, query: str) -> None:
        refused = stage.get(f"jobs?{query}")
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["field"] == query.partition("=")[0]

    def test_rejects_cursor_of_another_list(self, stage: ApiStage) -> None:
        for _ in range(3):
            stage.job()
        cursor = stage.get("jobs?limit=1").json()["next"]
        assert stage.get(f"usage?cursor={cursor}").status_code == 400
        assert stage.get(f"jobs?cursor={cursor[:-2]}xx").status_code == 400

    def test_queue_pages_hide_names_of_other_tenants(self, stage: ApiStage) -> None:
        stage.job("aa")
        stage.job("bb", after_s=1)
        stage.job("aa", after_s=2)
        first = stage.get(f"pools/{stage.pool}/queue?limit=2").json()
        second = stage.get(f"pools/{stage.pool}/queue?limit=2&cursor={first['next']}").json()
        rows = first["results"] + second["results"]
        assert [row["position"] for row in rows] == [None] * 3, "no round has seen them"
        assert [bool(row["name"]) for row in rows] == [True, False, True]
        assert second["next"] is None

    def test_returns_pools_prices_rounds_quotas_and_usage(self, live: ApiStage) -> None:
        live.job()
        live.cluster.round()
        pool = live.get(f"pools/{live.pool}").json()
        (row,) = pool["types"]
        assert (row["gpus"], row["used"], row["own"]) == (8, 2, 2)
        assert live.get("pools").json()["results"][0]["round"] == 1
        rounds = live.get(f"rounds?pool={live.pool}").json()["results"]
        assert rounds[0]["number"] == 1
        whole = live.get(f"rounds/{live.pool}/1").json()
        assert whole["snapshot_sha256"] == rounds[0]["snapshot_sha256"]
        assert {share["tenant"]["name"] for share in whole["shares"]} == {"aa", "bb"}
        quotas = live.get("quotas").json()["results"]
        assert [(row["tenant"], row["gpus"]) for row in quotas] == [("aa", 3)]
        assert live.get("usage").json() == {"results": [], "next": None}
        assert live.get(f"prices?pool={live.pool}").status_code == 200


class TestProblemResponse:
    def test_contains_request_id(self, stage: ApiStage) -> None:
        refused = stage.get(f"jobs/{uuid4()}", **{"X-Request-Id": "abc-123.xyz"})
        assert refused["Content-Type"] == "application/problem+json"
        assert refused["X-Request-Id"] == "abc-123.xyz"
        body = refused.json()
        assert body["request_id"] == "abc-123.xyz"
        assert (body["status"], body["reason_code"], body["title"]) == (
            404, "not_found", "Not Found",
        )  # fmt: skip

    @pytest.mark.parametrize("given", ["short", "has space in it", "x" * 65, "a\r\nb: c123"])
    def test_replaces_invalid_request_id(self, stage: ApiStage, given: str) -> None:
        answer = stage.get("pools", **{"X-Request-Id": given})
        assert answer["X-Request-Id"] != given
        assert len(answer["X-Request-Id"]) == 32

    @pytest.mark.parametrize(("path", "host"), [("jobs?pool=%00", "localhost"), ("jobs", "evil")])
    def test_covers_bad_query_and_bad_host(self, stage: ApiStage, path: str, host: str) -> None:
        refused = stage.get(path, Host=host)
        assert refused.status_code == 400
        assert refused["Content-Type"] == "application/problem+json"
        assert refused.json()["request_id"] == refused["X-Request-Id"]

    def test_covers_unknown_urls_and_methods(self, stage: ApiStage) -> None:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            assert stage.call(method, "nothing/here").status_code in (404, 405)
        assert stage.call("PUT", "jobs").json()["reason_code"] == "method_not_allowed"

    def test_missing_scope_returns_403(self, stage: ApiStage) -> None:
        secret = stage.token("ada", Scope.READ)
        assert stage.get("pools", as_=secret).status_code == 200
        refused = stage.post("jobs", stage.spec(), as_=secret)
        assert (refused.status_code, refused.json()["reason_code"]) == (403, "scope")

    def test_uses_current_role_of_user(self, stage: ApiStage) -> None:
        Membership.objects.filter(user=stage.people["ada"]).update(role="viewer")
        refused = stage.post("jobs", stage.spec())
        assert (refused.status_code, refused.json()["reason_code"]) == (403, "role")
        Membership.objects.all().delete()
        assert stage.get(f"jobs/{stage.job().uid}").status_code == 404

    def test_session_post_without_csrf_token_returns_403(self, stage: ApiStage) -> None:
        from django.test import Client

        client = Client(enforce_csrf_checks=True)
        client.force_login(stage.people["ada"])
        assert client.get("/api/v1/jobs").status_code == 200
        refused = client.post("/api/v1/jobs", "{}", content_type="application/json")
        assert (refused.status_code, refused.json()["reason_code"]) == (403, "csrf")

    def test_submission_rate_is_limited_per_tenant(self, stage: ApiStage, settings: Any) -> None:
        settings.SUBMISSIONS_PER_S = 0.001  # no refill while the test runs
        assert [stage.post("jobs", {}).status_code for _ in range(2)] == [400, 429]
        assert stage.post("jobs", {}, as_="bob").status_code == 400

    def test_other_tenant_looks_like_missing_tenant(self, stage: ApiStage) -> None:
        theirs = stage.post("jobs", stage.spec(tenant="bb"))
        none = stage.post("jobs", stage.spec(tenant="zz"))
        assert theirs.status_code == 400
        assert theirs.json() | {"request_id": ""} == none.json() | {"request_id": ""}
        assert stage.get("jobs?tenant=bb").status_code == 404
        assert stage.get("usage?tenant=bb").status_code == 404
