"""Test bundles and names over REST: the same bytes for all readers, without hidden data."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import psycopg
import pytest
from django.test import Client

from evenshare_core.chain.records import read_record, record_bytes
from evenshare_core.disclosure.bundle import bundle_schema, read_bundle
from evenshare_core.disclosure.own import own_digest
from evenshare_core.disclosure.pseudonyms import job_name, own_salt, tenant_name
from evenshare_core.policies.base import decide_round
from scheduling.models import Pool, RoundSealing
from tenants import transparency
from tests.functional.api_stage import PLAIN, ROLES, ApiStage, api_stage
from tests.stages import Copy, copied, name_of_copy

GZIP = {"Accept-Encoding": "gzip, deflate"}


def sealed_stage() -> ApiStage:
    """Create a pool with three sealed rounds; `ada` and `bob` each see half of the rows."""
    stage = api_stage()
    stage.person("otto", site_role="operator")
    stage.person("fin", site_role="finance")
    stage.person("eve")
    stage.cluster.submit("aa", 2, 1000)
    stage.cluster.submit("bb", 8, 1000)
    stage.cluster.rounds(3, every_s=10)
    stage.cluster.seal()
    return stage


copy = copied(sealed_stage)
committed_db = name_of_copy


@pytest.fixture
def there(copy: Copy[ApiStage]) -> ApiStage:
    return copy.made


def see(there: ApiStage, visibility: str) -> None:
    Pool.objects.filter(pk=there.cluster.pool.pk).update(visibility=visibility)


def path(there: ApiStage, number: int = 3) -> str:
    return f"rounds/{there.pool}/{number}/bundle"


def bundle(
    there: ApiStage, as_: str = "ada", number: int = 3, headers: Mapping[str, str] = PLAIN
) -> Any:
    return there.call("GET", path(there, number), as_=as_, **headers)


def names(there: ApiStage, as_: str, query: str = "") -> Any:
    return there.call("GET", f"chain/{there.pool}/names{query}", as_=as_)


def record(there: ApiStage, number: int) -> Any:
    first = RoundSealing.objects.get(pool=there.cluster.pool).first
    (entry,) = transparency.entries(transparency.round_log(there.pool), number - first, 1)
    return read_record(entry.record)


class TestBundle:
    @pytest.mark.parametrize("visibility", ["full", "pseudonyms"])
    def test_bytes_are_identical_for_all_readers_and_match_log(
        self, there: ApiStage, visibility: str
    ) -> None:
        see(there, visibility)
        answers = [bundle(there, who) for who in ("ada", "bob", "otto", "fin")]
        assert {answer.status_code for answer in answers} == {200}
        (data,) = {answer.content for answer in answers}
        sha256 = hashlib.sha256(data).hexdigest()
        assert {answer["ETag"] for answer in answers} == {f'"{sha256}"'}
        assert record(there, 3).bundle == sha256
        disclosed = read_bundle(data)
        assert decide_round(disclosed.snapshot) == disclosed.decision

    def test_returns_404_to_strangers(self, there: ApiStage) -> None:
        assert bundle(there, "eve").status_code == 404
        assert bundle(there, "").status_code == 401
        assert names(there, "eve").status_code == 404

    def test_is_served_gzipped_if_accepted(self, there: ApiStage) -> None:
        plain, packed = bundle(there), bundle(there, headers=GZIP)
        assert packed["Content-Encoding"] == "gzip"
        assert gzip.decompress(packed.content) == plain.content
        assert "Content-Encoding" not in plain.headers
        assert packed["ETag"] == f"W/{plain['ETag']}", "weak: of two encodings"
        refused = bundle(there, headers={"Accept-Encoding": "gzip;q=0, identity"})
        assert refused.content == plain.content
        assert {answer["Vary"] for answer in (plain, packed)} == {"Accept-Encoding"}

    def test_returns_304_for_known_etag(self, there: ApiStage) -> None:
        etag = bundle(there)["ETag"]
        for known in (etag, f"W/{etag}", f'"other", {etag}'):
            answer = bundle(there, headers=PLAIN | {"If-None-Match": known})
            assert (answer.status_code, answer.content) == (304, b"")
            assert answer["ETag"] == etag
        assert bundle(there, headers=PLAIN | {"If-None-Match": '"other"'}).status_code == 200

    def test_head_request_returns_etag_without_body(self, there: ApiStage) -> None:
        answer = there.call("HEAD", path(there), **PLAIN)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer["ETag"] == bundle(there)["ETag"]

    def test_links_to_its_public_schema(self, there: ApiStage) -> None:
        link = bundle(there)["Link"]
        assert link.startswith("</api/v1/bundle-schema>")
        answer = there.call("GET", "bundle-schema", as_="")
        assert answer.json() == json.loads(msgspec.json.encode(bundle_schema()))

    def test_round_response_links_to_bundle(self, there: ApiStage) -> None:
        shown = there.call("GET", f"rounds/{there.pool}/3").json()
        assert shown["bundle"] == f"/api/v1/{path(there)}"
        assert shown["record"]["bundle_sha256"] == record(there, 3).bundle
        assert shown["record"]["index"] == 2
        assert shown["record"]["follows"] is True

    def test_unsealed_round_returns_404_with_retry_after(self, there: ApiStage) -> None:
        there.cluster.submit("aa", 1, 100)
        there.cluster.round(after_s=10)
        answer = bundle(there, number=4)
        assert (answer.status_code, answer.json()["reason_code"]) == (404, "not_sealed")
        assert int(answer["Retry-After"]) > 0
        assert there.call("GET", f"rounds/{there.pool}/4").json()["bundle"] is None
        there.cluster.seal()
        assert bundle(there, number=4).status_code == 200

    def test_unknown_round_returns_404(self, there: ApiStage) -> None:
        for number in (0, 99, 2**62, 2**70):
            answer = bundle(there, number=number)
            assert (answer.status_code, answer.json()["reason_code"]) == (404, "not_found")

    def test_damaged_round_returns_404_with_cause(
        self, there: ApiStage, owner: psycopg.Connection[Any]
    ) -> None:
        there.cluster.submit("aa", 1, 100)
        there.cluster.round(after_s=10)
        owner.execute("UPDATE scheduling_roundblob SET snapshot = 'x' WHERE number = 4")
        there.cluster.seal()
        answer = bundle(there, number=4)
        assert (answer.status_code, answer.json()["reason_code"]) == (404, "damaged")
        assert "its snapshot" in answer.json()["detail"]

    def test_dropped_bundle_has_reason_not_kept(
        self, there: ApiStage, owner: psycopg.Connection[Any]
    ) -> None:
        owner.execute("DELETE FROM scheduling_roundbundle WHERE number = 1")
        assert bundle(there, number=1).json()["reason_code"] == "not_kept"
        shown = there.call("GET", f"rounds/{there.pool}/1").json()
        assert shown["bundle"] is None
        assert shown["record"]["bundle_sha256"]


class TestOwnRowsBundle:
    """The answers for a tenant in a pool that shows it only its own rows."""

    def test_own_rows_match_digest_in_record(self, there: ApiStage) -> None:
        see(there, "own")
        for who, slug in (("ada", "aa"), ("bob", "bb")):
            answer = bundle(there, who)
            assert answer.status_code == 200
            body = answer.json()
            assert body["form"] == "own"
            assert "recompute" in body["not_recomputable"]
            assert body["record"] == json.loads(record_bytes(record(there, 3)))
            (own,) = body["own"]
            assert own["tenant"] == slug
            (key,) = names(there, who).json()["tenants"]
            raw = bytes(msgspec.json.decode(answer.content, type=_Own).own[0].excerpt)
            salt = own_salt(bytes.fromhex(key["key"]), there.pool, 3)
            assert own_digest(salt, raw) in body["record"]["own"]

    def test_has_etag_per_tenant(self, there: ApiStage) -> None:
        see(there, "own")
        answers = [bundle(there, who) for who in ("ada", "bob")]
        assert answers[0]["ETag"] != answers[1]["ETag"]
        again = bundle(there, headers=PLAIN | {"If-None-Match": answers[0]["ETag"]})
        assert again.status_code == 304

    def test_site_staff_receive_the_full_bundle(self, there: ApiStage) -> None:
        see(there, "own")
        for who in ("otto", "fin"):
            assert read_bundle(bundle(there, who).content).round == 3


class _Excerpt(msgspec.Struct):
    tenant: str
    excerpt: msgspec.Raw


class _Own(msgspec.Struct):
    own: list[_Excerpt]


class TestNames:
    def test_each_tenant_receives_its_own_day_key(self, there: ApiStage) -> None:
        disclosed = read_bundle(bundle(there).content)
        for who, slug in (("ada", "aa"), ("bob", "bb")):
            body = names(there, who, "?day=2030-01-01").json()
            assert (body["pool"], body["day"]) == (there.pool, "2030-01-01")
            (own,) = body["tenants"]
            assert own["tenant"] == slug
            key = bytes.fromhex(own["key"])
            assert own["name"] == tenant_name(key)
            assert own["name"] in disclosed.names.tenants
            job = there.cluster.pool.jobs.get(tenant__slug=slug)
            assert job_name(key, job.uid.hex) in disclosed.names.jobs

    @pytest.mark.parametrize(
        ("visibility", "seen"), [("own", {"aa"}), ("pseudonyms", {"aa"}), ("full", {"aa", "bb"})]
    )
    def test_follow_visibility_of_pool(
        self, there: ApiStage, visibility: str, seen: set[str]
    ) -> None:
        see(there, visibility)
        assert set(names(there, "ada").json()["names"].values()) == seen
        for who in ("otto", "fin"):
            body = names(there, who).json()
            assert set(body["names"].values()) == {"aa", "bb"}
            assert body["tenants"] == [], "whoever runs the site is given no tenant's key"

    def test_day_without_rounds_is_not_sealed(self, there: ApiStage) -> None:
        assert names(there, "ada", "?day=2031-05-05").json()["reason_code"] == "not_sealed"

    @pytest.mark.parametrize("day", ["tomorrow", "20300101", "2030-W01-1", "2030-13-01"])
    def test_invalid_day_returns_400(self, there: ApiStage, day: str) -> None:
        answer = names(there, "ada", f"?day={day}")
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["field"] == "day"

    def test_member_of_two_tenants_receives_both_keys(self, there: ApiStage) -> None:
        there.person("both", "aa", ROLES.VIEWER)
        person = there.people["both"]
        person.memberships.create(tenant=there.cluster.tenants["bb"], role=ROLES.VIEWER)
        assert [row["tenant"] for row in names(there, "both").json()["tenants"]] == ["aa", "bb"]


class TestRoundPage:
    def test_shows_predecessor_and_verify_command(self, there: ApiStage) -> None:
        client = _signed_in(there, "ada")
        page = client.get(f"/pools/{there.pool}/rounds/3/").content.decode()
        assert "It follows from round 2." in page
        assert f"evenshare round verify 3 --pool {there.pool}" in page
        assert path(there) in page
        shown = there.call("GET", f"rounds/{there.pool}/3").json()
        assert shown["record"]["sha256"] in page
        first = client.get(f"/pools/{there.pool}/rounds/1/").content.decode()
        assert "The first round of the log" in first

    def test_marks_unsealed_round(self, there: ApiStage) -> None:
        there.cluster.submit("aa", 1, 100)
        there.cluster.round(after_s=10)
        page = _signed_in(there, "ada").get(f"/pools/{there.pool}/rounds/4/").content.decode()
        assert "Not sealed yet" in page
        assert "evenshare round verify 4" not in page


def _signed_in(there: ApiStage, who: str) -> Any:
    client = Client()
    client.force_login(there.people[who])
    return client
