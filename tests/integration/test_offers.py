"""Test offers and tenants' settings in live rounds: loans, their prices, and their return."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from billing.checks import run_checks
from billing.metering import meter_pool
from billing.models import UsageShare
from evenshare_core.domain.entitlements import Mode
from evenshare_core.policies.registry import POLICIES
from scheduling.engine.snapshots import read_snapshot
from scheduling.models import Job, Lease, LeaseEvent, Round
from scheduling.requests.sharing import OfferRequest, SharingRequest
from scheduling.selectors.pools.lines import pool_facts
from scheduling.selectors.rounds.replay import replay_stored_round
from scheduling.selectors.sharing.views import (
    BackRule,
    OfferState,
    PromisedReturn,
    list_offers,
    offer_view,
    promised_return,
    sharing_views,
)
from scheduling.services.pool_export import export_pool
from scheduling.services.quota_impact import quota_impact
from scheduling.services.sharing import make_offer, revoke_offer, set_price_limit, set_sharing
from tenants.audit import Actor
from tenants.idempotency import MismatchError
from tenants.input.errors import InvalidInputError
from tenants.models import AuditRecord, IdleOffer, Membership, Quota, User
from tenants.periods import QuotaTerms
from tenants.services.quotas import QuotaEdit
from tenants.services.tenants import create_tenant
from tests.factories import Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")
LONG_S = 100_000
# Under these policies no tenant can borrow.
PARTITIONED = {"batch_sche", "yarn_cs"}


class Lab:
    """A pool in which `north` lends and `south` borrows; each has a quota of 4 GPUs."""

    def __init__(self, **fields: Any) -> None:
        self.pool: Cluster = cluster({"north": 4, "south": 4}, nodes=2, gpus=4, **fields)
        self.manager = Actor(User.objects.create(username="mia"))
        self.role = Membership.objects.create(
            user=self.manager.user, tenant=self.pool.tenants["north"], role="manager"
        )

    def set(self, **wanted: Any) -> bool:
        return set_sharing(
            **self._who(), gpu_type="v100", request=SharingRequest(**wanted), now=self.pool.at
        )

    def offer(self, gpus: int, floor: str = "0", *, key: str = "", **more: Any) -> IdleOffer:
        request = OfferRequest(gpu_type="v100", gpus=gpus, floor_price=Decimal(floor), **more)
        return make_offer(**self._who(), request=request, now=self.pool.at, key=key).row

    def revoke(self, offer: IdleOffer) -> PromisedReturn:
        assert revoke_offer(**self._who(), uid=offer.uid, now=self.pool.at) is not None
        return self.promise()

    def promise(self) -> PromisedReturn:
        facts = pool_facts(self.pool.pool.pk)
        assert facts is not None
        return promised_return(facts, self.pool.tenants["north"].pk, "v100", self.pool.at)

    def lends(self) -> int | None:
        """Return north's lend limit in a snapshot that is made now."""
        snapshot = read_snapshot(self.pool.pool.pk, number=99, at=self.pool.at)
        (row,) = [e for e in snapshot.entitlements if e.tenant == self.pool.tenants["north"].pk]
        return row.lendable(row.gpus)

    def held(self, tenant: str = "south") -> int:
        live = Lease.objects.filter(tenant=self.pool.tenants[tenant], state__in=Lease.LIVE_STATES)
        return sum(live.values_list("gpus", flat=True))

    def _who(self) -> dict[str, Any]:
        return {
            "tenant": self.pool.tenants["north"], "actor": self.manager,
            "pool_id": self.pool.pool.pk,
        }  # fmt: skip


class TestOffer:
    def test_lends_from_its_floor_price_and_shows_state(self) -> None:
        lab = Lab()
        lab.set(by_offer=True)
        assert lab.lends() == 0
        for _ in range(4):
            lab.pool.submit("south", 2, LONG_S)
        lab.pool.round()  # only own quota is used: with 4 of 8 GPUs in use, 0.414214 is posted
        assert lab.held() == 4
        dear, cheap = lab.offer(1, "0.414215"), lab.offer(2, "0.414214")
        assert lab.lends() == 2
        at = lab.pool.at
        assert offer_view(dear, at).state is OfferState.BELOW_FLOOR
        assert "0.414215 credits, and the posted price is 0.414214" in offer_view(dear, at).text
        assert offer_view(cheap, at).state is OfferState.LENDS
        lab.pool.round(after_s=10)
        assert lab.held() == 6
        lab.pool.round(after_s=10)
        (view,) = sharing_views(lab.pool.pool.pk, lab.pool.tenants["north"].pk, lab.pool.at)
        # With 6 of 8 GPUs in use, the price of 0.681793 is above both floors.
        assert (view.offered, view.lendable, view.idle, view.standing) == (3, 3, 4, 3)

    def test_respects_limits_of_operator_and_tenant(self) -> None:
        lab = Lab()
        lab.set(by_offer=True, lend_limit=3)
        lab.offer(4)
        assert lab.lends() == 3
        Quota.objects.filter(tenant=lab.pool.tenants["north"]).update(lend_limit=2)
        assert lab.lends() == 2
        Quota.objects.filter(tenant=lab.pool.tenants["north"]).update(mode=Mode.RESERVE.value)
        assert lab.lends() == 0

    def test_lends_until_its_end_time(self) -> None:
        lab = Lab()
        lab.set(by_offer=True)
        lab.offer(4, until=lab.pool.at + timedelta(minutes=5))
        assert lab.lends() == 4
        lab.pool.at += timedelta(seconds=299)
        assert lab.lends() == 4
        lab.pool.at += timedelta(seconds=1)
        assert lab.lends() == 0
        rows, _ = list_offers(lab.pool.pool.pk, lab.pool.tenants["north"].pk, lab.pool.at, limit=5)
        assert [row.state for row in rows] == [OfferState.RAN_OUT]

    def test_is_unused_if_idle_quota_is_lent_without_offers(self) -> None:
        lab = Lab()
        with pytest.raises(InvalidInputError, match="lent without offers"):
            lab.offer(1)
        lab.set(by_offer=True)
        offer = lab.offer(1)
        lab.set(by_offer=False)
        assert offer_view(offer, lab.pool.at).state is OfferState.NOT_USED
        assert lab.lends() == 4

    @pytest.mark.parametrize(
        ("wanted", "field"),
        [({"gpus": 5}, "gpus"), ({"gpus": 1, "until": "past"}, "until")],
    )
    def test_rejects_impossible_values_by_field(self, wanted: dict[str, Any], field: str) -> None:
        lab = Lab()
        lab.set(by_offer=True)
        if wanted.get("until"):
            wanted = {**wanted, "until": lab.pool.at}
        with pytest.raises(InvalidInputError) as refused:
            lab.offer(**wanted)
        assert list(refused.value.by_field) == [field]
        assert not IdleOffer.objects.exists()

    def test_is_idempotent_by_key(self) -> None:
        lab = Lab()
        lab.set(by_offer=True)
        assert lab.offer(2, key="k").pk == lab.offer(2, key="k").pk
        assert lab.lends() == 2
        with pytest.raises(MismatchError):
            lab.offer(3, key="k")

    def test_is_restricted_to_managers_and_audited(self) -> None:
        lab = Lab()
        assert lab.set(by_offer=True)
        assert not lab.set(by_offer=True)
        lab.revoke(lab.offer(1, "0.5"))
        actions = list(AuditRecord.objects.order_by("id").values_list("action", flat=True))
        assert actions == ["sharing.changed", "offer.made", "offer.revoked"]
        lab.role.role = "member"
        lab.role.save()
        with pytest.raises(PermissionDenied):
            lab.offer(1)
        with pytest.raises(PermissionDenied):
            lab.set(by_offer=False)


class TestBooks:
    def test_pay_only_for_offered_gpus(self) -> None:
        """Both tenants lend idle quota to a third tenant.

        North offers half as many GPUs as south.
        """
        lab = Lab()
        lab.set(by_offer=True)
        lab.offer(2)
        pool = lab.pool
        pool.tenants["east"] = create_tenant(
            slug="east", name="east", initials="EA", swatch=3, book=pool.pool.book
        )
        pool.submit("east", 3, 600)
        pool.round()
        pool.rounds(62, every_s=10)
        entitled = LeaseEvent.objects.filter(kind="entitled").order_by("number").first()
        assert entitled is not None
        north, south = pool.tenants["north"].pk, pool.tenants["south"].pk
        assert entitled.data["quotas"] == {str(north): [4, 2], str(south): [4, None]}
        meter_pool(pool.pool.pk)
        shares = UsageShare.objects.values_list("account__tenant_id", "weight")
        weights = dict(shares)
        assert weights[south] == 2 * weights[north]
        assert not [one for result in run_checks() for one in result.violations]

    def test_stay_sound_while_offers_change(self) -> None:
        lab = Lab()
        lab.set(by_offer=True)
        for _ in range(4):
            lab.pool.submit("south", 2, 400)
        for step in range(24):
            offer = lab.offer(1 + step % 3, "0.3" if step % 2 else "0")
            lab.pool.round(after_s=30)
            if step % 4:
                lab.revoke(offer)
            lab.pool.submit("south", 2, 200)
        meter_pool(lab.pool.pool.pk)
        assert not [one for result in run_checks() for one in result.violations]
        assert LeaseEvent.objects.filter(kind="entitled").count() > 3
        for row in Round.objects.filter(number__in=(2, 9, 17)):
            assert replay_stored_round(row).same


class TestRevoking:
    @pytest.mark.parametrize("end", ["revoke", "reserve", "limit", "price", "until"])
    def test_prevents_further_borrowing(self, end: str) -> None:
        lab = Lab(policy="fifo")
        lab.set(by_offer=True)
        until = lab.pool.at + timedelta(seconds=15)
        offer = lab.offer(4, until=until if end == "until" else None)
        lab.pool.submit("south", 4, LONG_S)
        lab.pool.submit("south", 2, LONG_S)
        lab.pool.round()
        assert lab.held() == 6
        if end in ("revoke", "price"):
            lab.revoke(offer)
        if end == "price":
            lab.offer(4, "0.9")
        if end == "reserve":
            lab.set(mode=Mode.RESERVE.value, by_offer=True)
        if end == "limit":
            lab.set(by_offer=True, lend_limit=2)
        job = lab.pool.submit("south", 2, LONG_S)
        lab.pool.round(after_s=20)
        job.refresh_from_db()
        assert (lab.held(), job.state) == (6, "pending")

    @pytest.mark.parametrize(
        ("policy", "options"),
        [("evenshare", {"promises": False}), ("evenshare", {}), ("fifo", {}), ("ltgf", {})],
    )
    def test_returns_gpus_by_promised_round(self, policy: str, options: dict[str, Any]) -> None:
        """Lent GPUs return within minutes if guaranteed, otherwise when the last lease ends."""
        is_guaranteed = "promises" in options
        lab = Lab(policy=policy, options=options, grace_s=60, lease_s=900, round_s=30)
        lab.set(by_offer=True)
        offer = lab.offer(4)
        for _ in range(4):
            lab.pool.submit("south", 2, LONG_S)
        lab.pool.round()
        lab.pool.rounds(13, every_s=30)
        assert lab.held() == 8
        back = lab.revoke(offer)
        assert back.borrowed == 4
        assert back.rule is (BackRule.GUARANTEE if is_guaranteed else BackRule.LEASE_ENDS)
        assert back.by < back.unasked_by if is_guaranteed else back.by == back.unasked_by
        wants = [lab.pool.submit("north", 2, LONG_S) for _ in range(2)]
        while lab.pool.at + timedelta(seconds=30) <= back.by:
            lab.pool.round(after_s=30)
        states = Job.objects.filter(pk__in=[job.pk for job in wants])
        assert list(states.values_list("state", flat=True)) == ["running", "running"]
        assert (lab.held(), lab.held("north")) == (4, 4)

    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_returns_gpus_at_end_of_leases_without_demand(self, policy: str) -> None:
        lab = Lab(policy=policy, grace_s=20, lease_s=120, round_s=20)
        lab.set(by_offer=True)
        offer = lab.offer(3)
        for _ in range(8):
            lab.pool.submit("south", 1, LONG_S, estimate_s=LONG_S)
        lab.pool.rounds(3, every_s=20)
        assert lab.held() == (4 if policy in PARTITIONED else 7)
        back = lab.revoke(offer)
        while lab.pool.at + timedelta(seconds=20) <= back.unasked_by:
            lab.pool.round(after_s=20)
        assert lab.held() == 4
        assert lab.promise().rule is BackRule.NONE_LENT


class TestOtherUses:
    def test_quota_estimate_matches_next_round(self) -> None:
        """The estimate uses the tenants' own settings and offers at the current price."""
        lab = Lab(policy="fifo")
        lab.set(by_offer=True)
        lab.offer(1)
        lab.offer(3, "0.9")
        for _ in range(8):
            lab.pool.submit("south", 1, LONG_S)
        south = lab.pool.tenants["south"].pk
        edits = [QuotaEdit(south, lab.pool.gpu_type.pk, QuotaTerms(3, "LEND_AND_BORROW"), None)]
        impact = quota_impact(
            pool_id=lab.pool.pool.pk, edits=edits, since=lab.pool.at, now=lab.pool.now()
        )
        # 3 own GPUs, 1 lent by the offer, and 1 unallocated.
        assert {row.tenant: row.after.got for row in impact.rows}[south] == 5
        Quota.objects.filter(tenant=south).update(gpus=3)
        lab.pool.round(after_s=10)
        assert lab.held() == 5

    def test_exported_pool_contains_limits(self) -> None:
        lab = Lab()
        lab.set(by_offer=True, borrow_limit=2)
        lab.offer(3)
        set_price_limit(**lab._who(), max_price=Decimal("0.25"))
        lab.pool.submit("north", 1, 60, max_price=Decimal(1))
        lab.pool.round()
        files = export_pool(lab.pool.pool.name).files
        assert "north,v100,4,LEND_AND_BORROW,2,3" in files["quotas.csv"]
        assert ",0.25" in files["jobs.csv"]


class TestPriceLimit:
    def test_tenant_limit_applies_unless_job_limit_is_lower(self) -> None:
        lab = Lab()
        who = lab._who()
        lab.pool.submit("north", 4, LONG_S)
        lab.pool.round()  # at this use, 0.414214 is posted
        assert set_price_limit(**who, max_price=Decimal("0.3"))
        jobs = [
            lab.pool.submit("north", 1, LONG_S, max_price=price)
            for price in (None, Decimal(2), Decimal("0.1"))
        ]
        lab.pool.round(after_s=10)
        snapshot = read_snapshot(lab.pool.pool.pk, number=99, at=lab.pool.at)
        most = {job.id: job.max_price_micro for job in snapshot.jobs}
        assert [most[job.pk] for job in jobs] == [300_000, 300_000, 100_000]
        assert Job.objects.filter(state="pending").count() == 3
        assert set_price_limit(**who, max_price=None)
        lab.pool.round(after_s=10)
        assert Job.objects.filter(state="pending").count() == 1
