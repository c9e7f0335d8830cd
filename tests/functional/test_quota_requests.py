"""Test requests for quota: asked with a preview, decided by an operator, used by the next round."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction
from django.test import Client

from scheduling.models import Lease, Message, Subscription
from scheduling.outbox.texts import text_of
from scheduling.selectors.sharing.views import sharing_views
from tenants.models import AuditRecord, Membership, Quota, QuotaChangeRequest, User
from tenants.scopes import site_scope
from tests.functional.page_text import words
from tests.functional.visitors import Town, town, visitor

LONG_S = 100_000
JSON = "application/json"
PAGE, HOME = "/t/north/quota/?pool=pool-1", "/operate/"
API, OPERATE = "/api/v1/quota-requests", "/api/v1/operate/quota-requests"
WISH = {"gpu_type": "v100", "gpus": "6", "until": "", "reason": "Deadline on Friday"}


@pytest.fixture
def place(committed_db: str) -> Town:  # noqa: ARG001 - the fixture is what is wanted of it
    """Return a pool of 8 GPUs, of which each of two tenants wants all and has quota for 4."""
    made = town()
    for tenant in ("north", "south"):
        for _ in range(8):
            made.submit(1, LONG_S, tenant=tenant)
    return made


@pytest.fixture
def boss(place: Town) -> Client:
    return visitor("nia", place.tenant, Membership.Role.MANAGER)


def held(tenant: str) -> int:
    live = Lease.objects.filter(tenant__slug=tenant, state__in=Lease.LIVE_STATES)
    return sum(live.values_list("gpus", flat=True))


def shown(
    client: Client, path: str, form: Mapping[str, str] | None = None, status: int = 200
) -> str:
    """Return the text of a page, requested with a form if there is one."""
    answer = client.post(path, form) if form else client.get(path)
    assert answer.status_code == status, words(answer.content.decode())
    return words(answer.content.decode())


def asked(client: Client, **change: str) -> QuotaChangeRequest:
    answer = client.post(PAGE, {"do": "ask", **WISH, **change})
    assert answer.status_code == 302, words(answer.content.decode())
    return QuotaChangeRequest.objects.latest("pk")


def call(client: Client, path: str, body: Any, **headers: str) -> Any:
    return client.post(path, json.dumps(body), content_type=JSON, headers=headers)


def decision(client: Client, request: QuotaChangeRequest, **form: str) -> Any:
    """Send the operator's form with the values of its page."""
    page = client.get(f"/operate/quota-requests/{request.uid}/")
    basis = page.context["basis"]
    fields = {"gpus": str(request.gpus), "answer": "", "previewed": str(request.gpus)}
    return client.post(page.request["PATH_INFO"], {**fields, "basis": basis, **form})


def audited() -> list[tuple[str, str]]:
    rows = AuditRecord.objects.filter(action__startswith="quota.").order_by("pk")
    return list(rows.values_list("action", "actor__username"))


class TestQuotaRequest:
    """18.

    Quota change request with an impact preview; approve, and the next round uses it; both steps
    audited.
    """

    def test_is_previewed_approved_and_used_by_next_round(self, place: Town, boss: Client) -> None:
        Subscription.objects.create(
            person=User.objects.get(username="nia"), tenant=place.tenant, channel="ntfy",
            address="https://ntfy.example/x", kinds=["quota_decided"],
        )  # fmt: skip
        assert "Request more GPUs" in shown(boss, "/t/north/?pool=pool-1")
        assert "Request more GPUs" not in shown(place.mate, "/t/north/?pool=pool-1")
        # Quotas of 6 and 4 in 8 GPUs are scaled to 5 and 3. The tenant sees only its own part.
        preview = shown(boss, PAGE, {**WISH, "do": "preview"})
        assert "v100 4 → 5" in preview
        assert "This is 2 GPUs more than now." in preview
        fewer = shown(boss, PAGE, {**WISH, "gpus": "1", "do": "preview"})
        assert "This is 3 GPUs fewer than now." in fewer
        assert "A request for v100 is open" not in fewer
        said = re.search(r"would give the tenant (\d) GPUs instead of (\d)", preview)
        assert said is not None
        assert int(said[1]) == int(said[2]) + 1
        assert "south" not in preview
        assert "so 40 GPUs count as 7." in shown(
            boss, PAGE, {**WISH, "gpus": "40", "do": "preview"}
        )
        assert not QuotaChangeRequest.objects.exists()
        request = asked(boss)
        assert "1 open quota request" in shown(boss, PAGE)
        assert "A request for v100 is open. Withdraw it" in shown(boss, PAGE)
        assert "1 open quota request" in shown(place.operator, HOME)
        assert "1 open quota request" in shown(place.operator, "/operate/pools/pool-1/quotas/")
        full = shown(place.operator, f"/operate/quota-requests/{request.uid}/")
        assert "north gets 1 GPU more; south gets 1 GPU fewer." in full
        assert "Deadline on Friday" in full
        assert (
            decision(place.operator, request, do="approve", answer="Good luck").status_code == 302
        )
        assert Quota.objects.get(tenant=place.tenant, valid_until=None).gpus == 6
        place.play(1)
        assert (held("north"), held("south")) == (int(said[1]), 8 - int(said[1]))
        assert "Quota now: 6 GPUs (counted as 5, because" in shown(boss, PAGE)
        lending = shown(boss, "/t/north/sharing/?pool=pool-1")
        assert "6 (counted as 5, because all quotas exceed the pool's GPUs)" in lending
        with site_scope():
            (view,) = sharing_views(place.cluster.pool.pk, place.tenant.pk, place.cluster.at)
        assert view.idle == 0
        assert audited() == [
            ("quota.asked", "nia"), ("quota.saved", "eve"), ("quota.approved", "eve"),
        ]  # fmt: skip
        request.refresh_from_db()
        assert request.record == AuditRecord.objects.get(action="quota.saved")
        assert "approved by eve: Good luck" in shown(boss, PAGE)
        message = Message.objects.get()
        assert text_of(message.kind, message.data).sentence == (
            "north has a quota of 6 v100 GPUs from the next round on. Good luck"
        )

    def test_can_be_approved_with_another_number_after_its_preview(
        self, place: Town, boss: Client
    ) -> None:
        request = asked(boss)
        late = decision(place.operator, request, do="approve", gpus="5")
        assert late.status_code == 422
        assert "This number has no preview yet" in words(late.content.decode())
        assert "If you approve 5 GPUs" in words(late.content.decode())
        done = decision(place.operator, request, do="approve", gpus="5", previewed="5")
        assert done.status_code == 302
        assert Quota.objects.get(tenant=place.tenant, valid_until=None).gpus == 5
        assert "approved by eve, 5 GPUs" in shown(boss, PAGE)

    def test_is_declined_with_a_reason_or_withdrawn(self, place: Town, boss: Client) -> None:
        request = asked(boss)
        assert decision(place.operator, request, do="decline").status_code == 422
        done = decision(place.operator, request, do="decline", answer="Full until May")
        assert done.status_code == 302
        assert "declined by eve: Full until May" in shown(boss, PAGE)
        request = asked(boss)
        assert boss.post(PAGE, {"do": "withdraw", "request": str(request.uid)}).status_code == 302
        assert "withdrawn by nia" in shown(boss, PAGE)
        refused = decision(place.operator, request, do="approve")
        assert "nia already withdrew this request." in words(refused.content.decode())
        request = asked(boss)
        decision(place.operator, request, do="decline", answer="No")
        late = boss.post(PAGE, {"do": "withdraw", "request": str(request.uid)})
        assert "eve already declined this request." in words(late.content.decode())
        assert Quota.objects.get(tenant=place.tenant).gpus == 4
        names = [action for action, _ in audited()]
        assert names == [
            *("quota.asked", "quota.declined", "quota.asked", "quota.withdrawn"),
            *("quota.asked", "quota.declined"),
        ]

    def test_is_open_again_after_undo(self, place: Town, boss: Client) -> None:
        request = asked(boss)
        decision(place.operator, request, do="approve")
        place.operator.post("/operate/pools/pool-1/quotas/undo/", {})
        request.refresh_from_db()
        assert (request.state, request.record) == ("open", None)
        assert "quota.reopened" in [action for action, _ in audited()]
        assert Quota.objects.get(tenant=place.tenant).gpus == 4

    def test_refuses_wrong_fields(self, boss: Client) -> None:
        wrong: tuple[tuple[dict[str, str], str], ...] = (
            ({"gpus": "4"}, "is the quota already. Request another number of GPUs"),
            ({"gpus": "0"}, "must be"),
            (
                {"gpus": "+20"},
                "New total (now 4) (required) ? The whole quota that you want, not the difference.",
            ),
            ({"gpus": "+20"}, "Enter the new total, such as 24."),
            ({"until": "2001-01-01"}, "Its end must be after its start"),
            ({"reason": ""}, "Give a short reason"),
            ({"gpu_type": "k80"}, "is not a GPU type of the pool. GPU types of the pool: v100."),
        )
        for change, complaint in wrong:
            for do in ("preview", "ask"):
                assert complaint in shown(boss, PAGE, {**WISH, **change, "do": do}, 422)
        assert not QuotaChangeRequest.objects.exists()

    def test_shows_end_in_the_pools_time(self, place: Town, boss: Client) -> None:
        day = (place.cluster.at + timedelta(days=3)).date()
        example = f"Enter a day or a time, such as {day} or {day}T08:00."
        page = shown(boss, PAGE)
        assert f"pool time, now {place.cluster.at:%Y-%m-%d}" in page
        assert example in page
        refused = shown(boss, PAGE, {**WISH, "do": "ask", "until": "Monday"}, status=422)
        assert refused.count(example) == 2  # the help and the error
        assert "offset" not in refused
        asked(boss, until=f"{day}T08:00")

    def test_only_one_can_be_open(self, place: Town, boss: Client) -> None:
        request = asked(boss)
        again = shown(boss, PAGE, {**WISH, "do": "ask", "gpus": "7"}, 422)
        assert "A request for this quota is open: withdraw it" in again
        values = {"tenant": place.tenant, "pool": request.pool, "gpu_type": request.gpu_type}
        with pytest.raises(IntegrityError, match="quota_request_open_once"), transaction.atomic():
            QuotaChangeRequest.objects.create(
                **values, gpus=1, quota_gpus=1, reason="r", asked_by=request.asked_by
            )

    def test_only_managers_ask_and_only_operators_decide(self, place: Town, boss: Client) -> None:
        request = asked(boss)
        auditor = visitor("aud", site_role=User.SiteRole.AUDITOR)
        decide = f"/operate/quota-requests/{request.uid}/"
        people = {
            "member": (place.owner, 403, 404, 404), "viewer": (place.mate, 403, 404, 404),
            "other tenant": (place.neighbour, 404, 404, 404),
            "auditor": (auditor, 403, 403, 200), "manager": (boss, 422, 404, 404),
        }  # fmt: skip
        for who, (client, asks, decides, reads) in people.items():
            statuses = (
                client.post(PAGE, {"do": "ask", **WISH}).status_code,
                client.post(decide, {"do": "approve"}).status_code,
                client.get(decide).status_code,
            )
            assert (who, statuses) == (who, (asks, decides, reads))
        assert place.neighbour.get(API).json()["results"] == []
        withdraw = call(place.neighbour, f"{API}/{request.uid}/withdraw", {})
        assert withdraw.status_code == 404
        request.refresh_from_db()
        assert request.state == "open"


class TestRest:
    def body(self, **change: Any) -> dict[str, Any]:
        return {"pool": "pool-1", "gpu_type": "v100", "gpus": 6, "reason": "more", **change}

    def test_asks_once_per_key_and_approves_by_etag(self, place: Town, boss: Client) -> None:
        made = [call(boss, API, self.body(), **{"Idempotency-Key": "k"}) for _ in range(2)]
        assert [one.status_code for one in made] == [201, 201]
        assert made[0].json() == made[1].json()
        assert call(boss, API, self.body(gpus=7)).status_code == 409
        assert call(boss, API, self.body(pool="pool-2")).json()["errors"][0]["field"] == "pool"
        path = f"{OPERATE}/{made[0].json()['id']}"
        quotas = place.operator.get("/api/v1/operate/quotas?pool=pool-1")
        assert call(place.operator, f"{path}/approve", {}).status_code == 428
        stale = call(place.operator, f"{path}/approve", {}, **{"If-Match": '"old"'})
        assert (stale.status_code, stale["ETag"]) == (412, quotas["ETag"])
        etag = {"If-Match": quotas["ETag"]}
        done = call(place.operator, f"{path}/approve", {"gpus": 5, "answer": "fine"}, **etag)
        assert done.status_code == 200, done.content
        assert (done.json()["state"], done.json()["approved_gpus"]) == ("approved", 5)
        late = call(place.operator, f"{path}/decline", {"answer": "no"})
        assert late.status_code == 409
        assert late.json()["detail"] == "eve already approved this request."
        (row,) = boss.get(f"{API}?state=approved&pool=pool-1").json()["results"]
        assert row == done.json()

    def test_of_two_approvals_one_wins(self, place: Town, boss: Client) -> None:
        call(boss, API, self.body())
        uid = QuotaChangeRequest.objects.get().uid
        other = visitor("oda", site_role=User.SiteRole.OPERATOR)
        etag = place.operator.get("/api/v1/operate/quotas?pool=pool-1")["ETag"]
        barrier = Barrier(2)

        def approve(client: Client) -> Any:
            barrier.wait()
            answer = call(client, f"{OPERATE}/{uid}/approve", {}, **{"If-Match": etag})
            connections.close_all()
            return answer

        with ThreadPoolExecutor(2) as threads:
            answers = list(threads.map(approve, (place.operator, other)))
        assert sorted(one.status_code for one in answers) == [200, 409]
        lost = next(one for one in answers if one.status_code == 409)
        assert "already approved this request." in lost.json()["detail"]
        assert [action for action, _ in audited()].count("quota.approved") == 1
