"""Test a table of matching requests with a key, by person, tenant, route, key and body."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from portal.site.api import document
from scheduling.models import Job
from tenants.idempotency import KeyedRequest, MismatchError, begin_reply
from tenants.models import Membership
from tests.functional import (
    test_api_verifications,
    test_credit,
    test_offers,
    test_quota_requests,
    test_sweeps,
)
from tests.functional.api_stage import ROLES, ApiStage, api_stage

pytestmark = pytest.mark.usefixtures("db")
REPLAYED = "Idempotent-Replayed"
KEYED = ("jobs", "jobs/bulk")
# Routes that create no job themselves, each with the test class that repeats its keys.
ELSEWHERE = {
    "operate/allowances": test_credit.TestAllowance,
    "transfers": test_credit.TestTransfer,
    "pools/{name}/offers/{slug}": test_offers.TestRest,
    "quota-requests": test_quota_requests.TestRest,
    "sweeps": test_sweeps.TestSubmission,
    "sweeps/{sweep}/resubmit": test_sweeps.TestResubmission,
    "chain/{name}/verifications": test_api_verifications.TestVerificationReport,
}


@pytest.fixture
def stage() -> ApiStage:
    return api_stage()


def with_keys() -> set[str]:
    """Return the URLs that take a key, by the OpenAPI schema."""
    return {
        path.removeprefix("/api/v1/")
        for path, operations in document()["paths"].items()
        for operation in operations.values()
        if any(one["name"] == "Idempotency-Key" for one in operation.get("parameters", ()))
    }


def bodies(stage: ApiStage, **more: Any) -> dict[str, Any]:
    """Return a request for each URL that takes a key."""
    spec = stage.spec(**more)
    return {"jobs": spec, "jobs/bulk": {"jobs": [spec]}}


def ids(answer: Any) -> list[str]:
    assert answer.status_code == 201, answer.content
    body = answer.json()
    return [row["id"] for row in body.get("results", [body])]


class TestKeyScope:
    def test_consists_of_tenant_user_route_and_key(self, stage: ApiStage) -> None:
        """Sixteen requests differ in one to four of these. Each matches only its own repetition."""
        people, tenants = stage.people.values(), stage.cluster.tenants.values()
        scopes = list(product(tenants, people, ("jobs", "jobs/bulk"), ("k", "K")))
        for scope in scopes:
            request = KeyedRequest.of(*scope, {"gpus": 1, "name": "a"})
            assert request is not None
            assert begin_reply(request, [str(scope)]) is None
        for scope in scopes:
            again = KeyedRequest.of(*scope, {"name": "a", "gpus": 1})
            assert again is not None
            assert begin_reply(again, ["another"]) == [str(scope)]
            other = KeyedRequest.of(*scope, {"gpus": 2, "name": "a"})
            assert other is not None
            with pytest.raises(MismatchError):
                begin_reply(other, ["another"])

    def test_differs_after_user_moves_to_another_tenant(self, stage: ApiStage) -> None:
        """The body does not name a tenant, so it is the same in both requests."""
        for route, body in bodies(stage).items():
            key = {"Idempotency-Key": route}
            (first,) = ids(stage.post(route, body, **key))
            there = Membership.objects.filter(user=stage.people["ada"])
            there.update(tenant=stage.cluster.tenants["bb"])
            answer = stage.post(route, body, **key)
            assert ids(answer) != [first]
            assert REPLAYED not in answer
            there.update(tenant=stage.cluster.tenants["aa"])
            assert ids(stage.post(route, body, **key)) == [first]


class TestKeyedRoutes:
    def test_are_all_covered_by_tests(self, stage: ApiStage) -> None:
        assert with_keys() == {*KEYED, *ELSEWHERE}
        assert set(KEYED) == set(bodies(stage))

    @pytest.mark.parametrize("route", KEYED)
    def test_repeated_request_is_marked_as_replayed(self, stage: ApiStage, route: str) -> None:
        body, key = bodies(stage)[route], {"Idempotency-Key": "once"}
        first, again = stage.post(route, body, **key), stage.post(route, body, **key)
        assert ids(first) == ids(again)
        assert REPLAYED not in first
        assert again[REPLAYED] == "true"
        assert first.headers.get("Location") == again.headers.get("Location")

    @pytest.mark.parametrize("route", KEYED)
    def test_other_user_key_or_route_creates_a_new_job(self, stage: ApiStage, route: str) -> None:
        """A request with another user, key or URL creates a new job."""
        stage.person("max", "aa", ROLES.MEMBER)
        key = {"Idempotency-Key": "once"}
        stage.post(route, bodies(stage)[route], **key)
        for number, (who, where, headers) in enumerate([
            ("max", route, key),
            ("ada", route, {"Idempotency-Key": "twice"}),
            ("ada", route, {}),
            *(("ada", other, key) for other in bodies(stage) if other != route),
        ], start=2):  # fmt: skip
            answer = stage.post(where, bodies(stage)[where], as_=who, **headers)
            assert REPLAYED not in answer
            assert len(ids(answer)) == 1
            assert Job.objects.count() == number

    @pytest.mark.parametrize("route", KEYED)
    def test_reject_different_body_under_same_key(self, stage: ApiStage, route: str) -> None:
        key = {"Idempotency-Key": "once"}
        stage.post(route, bodies(stage)[route], **key)
        refused = stage.post(route, bodies(stage, weight=2)[route], **key)
        assert (refused.status_code, refused.json()["reason_code"]) == (422, "idempotency_mismatch")
        assert REPLAYED not in refused

    @pytest.mark.parametrize("route", KEYED)
    def test_openapi_describes_replay_header(self, route: str) -> None:
        made = document()["paths"][f"/api/v1/{route}"]["post"]["responses"]["201"]
        assert made["headers"][REPLAYED]["schema"] == {"type": "boolean"}
