"""Offers and a tenant's own settings on its page, over REST and by the command."""

from __future__ import annotations

import html
import json
import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from evenshare.cli import api as cli_api
from evenshare.cli.main import main
from evenshare.errors import ApiError
from scheduling.engine.snapshots import read_snapshot
from scheduling.models import Job, Lease, Pool
from scheduling.services.dry_run import dry_run_job
from tenants.models import AuditRecord, IdleOffer, Membership, PriceLimit, Quota, SharingSetting
from tests.functional.visitors import Town, reads, town, visitor

LONG_S = 100_000
JSON = "application/json"
PAGE = "/t/north/sharing/?pool=pool-1"
OFFERS = "/api/v1/pools/pool-1/offers/north"
SHARING = "/api/v1/pools/pool-1/sharing/north"
KIND = f"{SHARING}/v100"


@pytest.fixture
def place(committed_db: str) -> Town:  # noqa: ARG001 - the fixture is what is wanted of it
    return town()


@pytest.fixture
def boss(place: Town) -> Client:
    return visitor("nia", place.tenant, Membership.Role.MANAGER)


def words(answer: Any) -> str:
    text = re.sub(r"<[^>]+>", " ", answer.content.decode())
    return " ".join(html.unescape(text).split())


def put(client: Client, path: str, status: int = 200, **fields: Any) -> Any:
    answer = client.put(path, json.dumps(fields), content_type=JSON)
    assert answer.status_code == status, answer.content
    return answer.json()


def offer(client: Client, status: int = 201, **fields: Any) -> Any:
    body = {"gpu_type": "v100", **fields}
    answer = client.post(OFFERS, json.dumps(body), content_type=JSON)
    assert answer.status_code == status, answer.content
    return answer.json()


def held(tenant: str) -> int:
    live = Lease.objects.filter(tenant__slug=tenant, state__in=Lease.LIVE_STATES)
    return sum(live.values_list("gpus", flat=True))


class TestIdleOffers:
    """24.

    Offer idle quota: amount, floor price, until, revoke; revoking returns the GPUs by the promised
    round.
    """

    def test_lend_above_floor_and_return_by_promised_round(self, place: Town, boss: Client) -> None:
        Pool.objects.update(options={"promises": False})  # quotas are guaranteed by preemption
        put(boss, KIND, by_offer=True)
        for _ in range(8):
            place.submit(1, LONG_S, tenant="south")
        place.play(2)
        assert (held("south"), held("north")) == (4, 0)
        # Half of the pool is in use, so the posted price is 0.414214.
        refused = offer(boss, gpus=2, floor_price="0.5")
        assert refused["state"] == "below_floor"
        assert "its floor is 0.500000 credits, and the posted price is 0.414214" in refused["text"]
        place.play(2)
        assert held("south") == 4
        until = (place.cluster.at + timedelta(hours=9)).isoformat()
        lends = offer(boss, gpus=2, floor_price="0.4", until=until)
        assert lends["state"] == "lends"
        place.play()
        assert held("south") == 6
        # At a price of 0.681793 the first offer lends as well.
        place.play(2)
        assert held("south") == 8
        for one in (refused, lends):
            back = boss.delete(f"{OFFERS}/{one['id']}").json()["back"]
        assert back["rule"] == "guarantee"
        assert (back["borrowed"], back["by"] < back["unasked_by"]) == (4, True)
        assert "4 GPUs of this type are borrowed in the whole pool now" in back["text"]
        by = datetime.fromisoformat(back["by"])
        wanted = [place.submit(2, LONG_S) for _ in range(2)]
        while place.cluster.at + timedelta(seconds=10) <= by:
            place.play()
        assert {Job.objects.get(pk=job.pk).state for job in wanted} == {"running"}
        assert (held("south"), held("north")) == (4, 4)

    def test_revoked_gpus_return_after_running_leases_end(self, place: Town, boss: Client) -> None:
        put(boss, KIND, by_offer=True)
        one = offer(boss, gpus=4)
        for _ in range(8):
            place.submit(1, LONG_S, tenant="south")
        place.play(2)
        assert held("south") == 8
        back = boss.delete(f"{OFFERS}/{one['id']}").json()["back"]
        by = datetime.fromisoformat(back["unasked_by"])
        while place.cluster.at + timedelta(seconds=10) <= by:
            place.play()
        assert held("south") == 4
        waits = Job.objects.filter(tenant__slug="south", state="pending")
        assert set(waits.values_list("reason_code", flat=True)) == {"reserved_quota"}
        assert "do not lend" in words(place.neighbour.get(f"/jobs/{waits[0].uid}/"))


class TestPage:
    def test_members_can_view_and_managers_can_change(self, place: Town, boss: Client) -> None:
        place.play()
        shown = words(place.owner.get(PAGE))
        assert "4 GPUs of the quota are idle; other tenants may borrow 4." in shown
        assert "Offer idle quota" not in shown
        assert place.owner.post(PAGE, {"act": "limit", "max_price": "1"}).status_code == 403
        form = {"act": "set", "gpu_type": "v100", "mode": "LEND", "by_offer": "offers"}
        answer = boss.post(PAGE, {**form, "lend_limit": "3"}, follow=True)
        assert "other tenants may borrow 0." in words(answer)
        assert "lends nothing, only by offers; borrows nothing" in words(answer)
        form = {"act": "offer", "gpu_type": "v100", "gpus": "2", "floor_price": "0.25"}
        answer = boss.post(PAGE, form, follow=True)
        assert "Nothing is lent: the posted price of v100 is 0.000000" in words(answer)
        assert "Lends nothing: its floor is 0.250000 credits" in words(answer)
        boss.post(PAGE, {"act": "offer", "gpu_type": "v100", "gpus": "1", "floor_price": "0"})
        assert "other tenants may borrow 1." in words(boss.get(PAGE))
        answer = boss.post(PAGE, {"act": "limit", "max_price": "0.75"}, follow=True)
        assert "Its jobs pay at most 0.750000 credits" in words(answer)
        uid = IdleOffer.objects.order_by("id")[0].uid
        answer = boss.post(PAGE, {"act": "revoke", "offer": str(uid)}, follow=True)
        assert "Offer revoked. Nothing was borrowed" in words(answer)
        assert "1 open offer of idle quota" in words(answer)
        boss.post(PAGE, {"act": "limit", "max_price": ""})
        assert not PriceLimit.objects.exists()

    def test_saved_offer_sets_lending_by_offers(self, place: Town, boss: Client) -> None:
        shown = words(boss.get(PAGE))
        assert shown.count("Offer idle quota") == 3  # the button, the hint, the form
        opened = re.compile(r'id="f-offer"\s+open')
        assert not opened.search(boss.get(PAGE).content.decode())
        assert opened.search(boss.get(f"{PAGE}&offer=1").content.decode())
        form = {"act": "offer", "gpu_type": "v100", "gpus": "5", "floor_price": "0.25"}
        assert boss.post(PAGE, form).status_code == 422
        assert not SharingSetting.objects.exists()
        answer = boss.post(PAGE, {**form, "gpus": "2"}, follow=True)
        assert "Idle quota of v100 is lent only by offers now." in words(answer)
        assert SharingSetting.objects.get().by_offer
        assert IdleOffer.objects.get().gpus == 2
        assert {row.action for row in AuditRecord.objects.all()} == {
            "sharing.changed",
            "offer.made",
        }

    def test_starts_with_what_is_lent_now_and_to_whom(self, place: Town) -> None:
        for _ in range(8):
            place.submit(1, LONG_S, tenant="south")
        place.play()
        assert (held("south"), held("north")) == (8, 0)
        assert "4 GPUs of the quota are lent now, to south." in words(place.owner.get(PAGE))

    def test_shows_errors_and_keeps_input(self, place: Town, boss: Client) -> None:
        put(boss, KIND, by_offer=True)
        form = {"act": "offer", "gpu_type": "v100", "gpus": "5", "floor_price": "0.25"}
        answer = boss.post(PAGE, form)
        assert answer.status_code == 422
        assert "gpus: is more than the quota. The quota is 4." in words(answer)
        assert 'value="0.25"' in answer.content.decode()
        answer = boss.post(PAGE, {"act": "set", "gpu_type": "v100", "mode": "X", "lend_limit": "y"})
        assert answer.status_code == 422
        assert 'value="y"' in answer.content.decode()
        assert boss.post(PAGE, {"act": "revoke", "offer": "x"}).status_code == 404
        assert boss.post(PAGE, {"act": "other"}).status_code == 422
        assert not IdleOffer.objects.exists()
        assert SharingSetting.objects.get().mode == "LEND_AND_BORROW"

    def test_query_count_does_not_grow_with_offers(self, place: Town, boss: Client) -> None:
        put(boss, KIND, by_offer=True)
        offer(boss, gpus=1)
        boss.get(PAGE)
        few = len(reads(boss, PAGE))
        for _ in range(10):
            offer(boss, gpus=1)
        assert len(reads(boss, PAGE)) == few

    def test_shows_posted_price_without_own_settings(self, place: Town, boss: Client) -> None:
        for _ in range(4):
            place.submit(1, LONG_S, tenant="south")
        place.play(2)
        # Half of the pool is in use, so the posted price is 0.414214.
        assert not SharingSetting.objects.exists()
        assert "0.414214" in words(boss.get(PAGE))
        (row,) = boss.get(SHARING).json()["results"]
        assert row["price"] == "0.414214"

    def test_is_linked_from_overview(self, place: Town) -> None:
        assert (
            'href="/t/north/sharing/?pool=pool-1"' in place.owner.get("/t/north/").content.decode()
        )


class TestRest:
    def test_returns_bounds_own_and_effective_settings(self, place: Town, boss: Client) -> None:
        Quota.objects.filter(tenant=place.tenant).update(lend_limit=3, borrow_limit=5)
        row = put(boss, KIND, mode="LEND_AND_BORROW", lend_limit=4, borrow_limit=1)
        assert row["bounds"] == {"mode": "LEND_AND_BORROW", "lend_limit": 3, "borrow_limit": 5}
        assert row["effective"] == {"mode": "LEND_AND_BORROW", "lend_limit": 3, "borrow_limit": 1}
        assert (row["idle"], row["lendable"], row["back"]) == (4, 3, None)
        place.play()
        less = put(boss, KIND, mode="RESERVE")
        assert less["back"]["rule"] == "none_lent"
        assert less["effective"]["mode"] == "RESERVE"
        shown = place.mate.get(SHARING).json()
        assert shown["results"][0]["own"]["mode"] == "RESERVE"
        assert shown["max_price"] is None
        snapshot = read_snapshot(place.cluster.pool.pk, number=1, at=place.cluster.at)
        mine = [one for one in snapshot.entitlements if one.tenant == place.tenant.pk]
        assert [one.mode.value for one in mine] == ["RESERVE"]

    def test_rejects_invalid_values_by_field(self, place: Town, boss: Client) -> None:
        wrong = put(boss, KIND, 400, mode="X", lend_limit=-1, by_offer="yes", more=1)
        fields = {one["field"] for one in wrong["errors"]}
        assert fields == {"mode", "lend_limit", "by_offer", "more"}
        assert put(boss, f"{SHARING}/k80", 400)["errors"][0]["field"] == "gpu_type"
        assert put(boss, SHARING, 400)["errors"][0]["field"] == "max_price"
        assert put(boss, SHARING, 400, max_price="-1")["errors"][0]["field"] == "max_price"
        assert offer(boss, 400, gpus=1)["errors"][0]["field"] == "gpu_type"
        assert not AuditRecord.objects.exclude(action="access.refused").exists()

    def test_lists_offers_newest_first_with_cursor(self, place: Town, boss: Client) -> None:
        put(boss, KIND, by_offer=True)
        made = [offer(boss, gpus=1, floor_price=f"0.{number}")["id"] for number in range(5)]
        first = place.mate.get(OFFERS, {"limit": 3}).json()
        last = place.mate.get(OFFERS, {"limit": 3, "cursor": first["next"]}).json()
        assert [row["id"] for row in (*first["results"], *last["results"])] == made[::-1]
        assert last["next"] is None

    def test_creates_one_offer_per_idempotency_key(self, place: Town, boss: Client) -> None:
        put(boss, KIND, by_offer=True)
        body = json.dumps({"gpu_type": "v100", "gpus": 1})
        answers = [
            boss.post(OFFERS, body, content_type=JSON, headers={"Idempotency-Key": "a"})
            for _ in range(2)
        ]
        assert [answer.get("Idempotent-Replayed") for answer in answers] == [None, "true"]
        assert answers[0].json() == answers[1].json()
        assert IdleOffer.objects.count() == 1

    def test_revocation_is_idempotent_and_audited(self, place: Town, boss: Client) -> None:
        put(boss, KIND, by_offer=True)
        one = f"{OFFERS}/{offer(boss, gpus=1)['id']}"
        first, second = boss.delete(one).json(), boss.delete(one).json()
        assert first["revoked_at"] == second["revoked_at"]
        assert AuditRecord.objects.filter(action="offer.revoked").count() == 1
        record = AuditRecord.objects.get(action="offer.made")
        assert record.after == {"gpus": 1, "floor_price": "0.000000", "until": None}


class TestPriceLimit:
    def test_keeps_job_queued_until_price_is_allowed(self, place: Town, boss: Client) -> None:
        put(boss, SHARING, max_price="0.3")
        place.submit(4, LONG_S)
        place.play()
        job = place.submit(1, LONG_S)
        place.play()
        why = place.owner.get(f"/api/v1/jobs/{job.uid}/why").json()
        assert why["reason_code"] == "price_above_max"
        assert "costs 0.41 credits; the maximum of the job or its tenant is 0.30" in json.dumps(why)
        spec = {"pool": "pool-1", "gpus": 1, "command": ["true"], "duration_s": 60}
        dry = dry_run_job(tenant=place.tenant, spec=spec, now=lambda _: place.cluster.now())
        assert dry.reason_code == "price_above_max"
        put(boss, SHARING, max_price="0.5")
        place.play()
        job.refresh_from_db()
        assert job.state == "running"


class TestCommand:
    def test_creates_lists_and_revokes_offers(
        self,
        place: Town,
        boss: Client,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def send(_: cli_api.Transport, call: cli_api.Call, read: object) -> Any:  # noqa: ARG001 - the client's
            path = call.url.removeprefix("http://portal")
            data = "" if call.body is None else json.dumps(call.body)
            answer = boss.generic(call.method, path, data, content_type=JSON)
            if answer.status_code >= 400:
                raise ApiError(answer.status_code, answer.json())
            return answer.json()

        def run(*words: str) -> str:
            assert main([*words, "--pool", "pool-1", "--tenant", "north"]) == 0
            said = capsys.readouterr()
            return said.out + said.err

        monkeypatch.setenv("EVENSHARE_URL", "http://portal")
        monkeypatch.setenv("EVENSHARE_TOKEN", "es_x")
        monkeypatch.setattr(cli_api.Transport, "_send", send)
        assert "offers" in run("sharing", "set", "--gpu-type", "v100", "--by-offer")
        assert "no offers" in run("offer", "list")
        made = run("offer", "create", "--gpu-type", "v100", "--gpus", "2", "--floor", "0.25")
        uid, said = made.split("\n")[:2]
        assert said.startswith("Lends nothing: its floor is 0.250000")
        assert "2     0.250000" in run("offer", "list").replace("  0.250000", "     0.250000")
        assert "Revoked" in run("offer", "revoke", uid)
        assert "maximum price of jobs: 0.500000" in run("sharing", "limit", "0.5")
        assert "maximum price of jobs: no limit" in run("sharing", "limit", "none")
        assert "LEND_AND_BORROW" in run("sharing", "show")
        assert main(["sharing", "set", "--pool", "pool-1", "--tenant", "north", "--gpu-type",
                     "v100", "--lend-limit", "x"]) == 2  # fmt: skip
