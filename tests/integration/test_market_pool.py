"""Test demo pool `market`: prices rise and fall, jobs are refused with a price, a tenant earns."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from billing.checks import run_checks
from billing.metering import meter_pool, settle_pool
from billing.models import PostedPrice
from billing.selectors.contribution import contribution
from evenshare_core.domain.reasons import Reason
from portal.demo.data import DATA
from portal.demo.market import (
    BASE,
    BEGIN,
    GPUS_PER_NODE,
    NODES,
    REVOKED_AFTER,
    ROUND_S,
    SCALE,
    TRACE,
    revoke_when_due,
)
from portal.demo.market_trace import COLUMNS, TEAMS, market_rows
from portal.demo.people import DEMO_PEOPLE
from portal.demo.philly import seed_demo
from portal.site.celery import demo_task
from scheduling.engine.clock import PoolNow
from scheduling.models import Job, Pool, Round
from scheduling.requests.sharing import OfferRequest
from scheduling.selectors.rounds.stored import round_decision
from scheduling.selectors.sharing.views import sharing_views
from scheduling.services.sharing import make_offer, revoke_offer
from tenants.audit import Actor
from tenants.models import AuditRecord, IdleOffer, Quota, SharingSetting, Tenant
from tests.factories import Cluster
from tests.stages import Stages

# Six hours of pool time: two cycles of the trace, in six minutes of wall time.
STEP_S = ROUND_S * SCALE
ROUNDS = 6 * 3600 // STEP_S


@pytest.fixture
def pool(stages: Stages) -> Iterator[Pool]:
    with stages.copy(seed_demo):
        yield Pool.objects.get(name="market")


def lab_of(pool: Pool) -> Cluster:
    first = pool.nodes.select_related("gpu_type").first()
    assert first is not None
    return Cluster(pool, first.gpu_type, {}, BEGIN)


class TestDemoTrace:
    def test_matches_its_seed(self) -> None:
        with gzip.open(DATA / f"{TRACE}.csv.gz", "rt", newline="") as file:
            rows = list(csv.reader(file))
        assert rows == [list(COLUMNS), *([str(cell) for cell in row] for row in market_rows())]

    def test_has_teams_of_every_utility_kind(self) -> None:
        kinds = {row[1]: row[5].partition(" ")[0] for row in market_rows()}
        assert sorted(kinds.values()) == ["", "bid", "convex", "linear"]


class TestDemoSeed:
    def test_shares_all_gpus(self, pool: Pool) -> None:
        quotas = {row.tenant.slug: row.gpus for row in Quota.objects.filter(pool=pool)}
        assert quotas == {f"vc-{team.tenant}": team.quota for team in TEAMS}
        assert sum(quotas.values()) == NODES * GPUS_PER_NODE

    def test_is_idempotent(self, pool: Pool) -> None:
        assert not seed_demo()
        assert pool.policy == "market"


class TestDemoFeed:
    def test_sets_utilities_and_estimates_of_jobs(self, pool: Pool) -> None:
        lab = lab_of(pool)
        lab.round()
        lab.round(after_s=3600)
        rows = {row[0]: row for row in market_rows()}
        jobs = list(Job.objects.filter(pool=pool))
        assert {job.utility["kind"] for job in jobs if job.utility} >= {"bid"}
        for job in jobs:
            *_, duration_s, _, utility = rows[int(job.name.removeprefix("market-"))]
            assert bool(job.utility) == bool(utility)
            assert job.estimate_s == (duration_s if utility else None)


class TestSixMinutesOfDemo:
    def test_show_clearing_prices_refusals_and_earning_lender(self, pool: Pool) -> None:
        lab, refusals = lab_of(pool), []
        offered = set()
        patient = Tenant.objects.get(slug=f"vc-{TEAMS[1].tenant}")
        for count in range(ROUNDS):
            result = lab.round(after_s=STEP_S if count else 0)
            if result.round is not None:
                refusals += refused(result.round, patient)
            offered.add(offered_now(pool, lab))
        meter_pool(pool.pk)
        settle_pool(pool.pk)
        prices = [row.price for row in PostedPrice.objects.filter(pool=pool).order_by("posted_at")]
        most = max(prices)
        # The price rises above that of a full pool at the operator's theta of 2, and falls again.
        assert most > 2 * BASE
        assert min(prices[prices.index(most) :]) < most * Decimal("0.6")
        # The price at which a refused job would start is above the value of an hour of the job.
        assert len(refusals) > 5
        assert all(price > value for value, price in refusals)
        lender = the_lender()
        # The tenant's first offer has a low floor and lends at nearly any price, the second a high
        # floor.
        assert {6, 10} <= offered <= {0, 6, 10}
        shown = contribution(
            lender.pk, pool.pk, pool.book, since=BEGIN, until=BEGIN + timedelta(days=1)
        )
        assert shown.reconciliation.settled > Decimal(1)
        assert shown.reconciliation.difference == 0
        assert [check.name for check in run_checks() if check.violations] == []


class TestDemoOffers:
    def test_first_offer_lends_until_both_are_revoked(self, pool: Pool) -> None:
        lab, lender = lab_of(pool), the_lender()
        lab.round()
        for _ in range(4):
            lab.round(after_s=STEP_S)
        assert offered_now(pool, lab) == 6
        for offer in IdleOffer.objects.filter(tenant=lender):
            revoke_offer(
                tenant=lender,
                actor=Actor(offer.made_by),
                pool_id=pool.pk,
                uid=offer.uid,
                now=lab.at,
            )
        assert offered_now(pool, lab) == 0

    def test_are_added_to_older_pool_only_once(self, pool: Pool) -> None:
        """The pool is older than offers.

        Seeding adds offers once, and not again after they are revoked.
        """
        IdleOffer.objects.filter(pool=pool).delete()
        SharingSetting.objects.filter(pool=pool).delete()
        assert seed_demo()
        offers = list(IdleOffer.objects.filter(pool=pool).order_by("id"))
        assert [one.gpus for one in offers] == [6, 4]
        assert offers[1].until == offers[1].made_at + timedelta(hours=12)
        for offer in offers:
            assert offer.made_at > BEGIN
            revoke_offer(
                tenant=the_lender(), actor=Actor(offer.made_by), pool_id=pool.pk, uid=offer.uid,
                now=offer.made_at,
            )  # fmt: skip
        assert not seed_demo()
        assert not IdleOffer.objects.filter(pool=pool, revoked_at=None).exists()

    def test_are_skipped_if_lender_has_own_settings(self, pool: Pool) -> None:
        IdleOffer.objects.filter(pool=pool).delete()
        SharingSetting.objects.filter(pool=pool).update(by_offer=False)
        assert not seed_demo()
        assert not IdleOffer.objects.filter(pool=pool).exists()

    def test_second_offer_is_revoked_once_when_due(
        self, pool: Pool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def pass_to(at: timedelta) -> None:
            now = PoolNow(BEGIN + at, BEGIN + at, SCALE, paused=False)
            monkeypatch.setattr("portal.demo.market.read_clock", lambda _pool: now)

        pass_to(REVOKED_AFTER - timedelta(seconds=1))
        demo_task()
        assert not IdleOffer.objects.filter(revoked_at__isnull=False).exists()
        pass_to(REVOKED_AFTER)
        demo_task()
        offer = IdleOffer.objects.get(revoked_at__isnull=False)
        assert (offer.gpus, offer.revoked_at) == (4, BEGIN + REVOKED_AFTER)
        record = AuditRecord.objects.get(action="offer.revoked")
        assert record.actor == offer.made_by
        make_offer(
            tenant=the_lender(), actor=Actor(offer.made_by), pool_id=pool.pk, now=BEGIN,
            request=OfferRequest(gpu_type="a100", gpus=4, floor_price=Decimal("0.60")),
        )  # fmt: skip
        pass_to(2 * REVOKED_AFTER)
        assert not revoke_when_due()

    def test_expired_offer_is_not_revoked(
        self, pool: Pool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        late = BEGIN + timedelta(hours=13)
        now = PoolNow(late, late, SCALE, paused=False)
        monkeypatch.setattr("portal.demo.market.read_clock", lambda _pool: now)
        assert not revoke_when_due()
        assert pool.name == "market"

    def test_belong_to_manager_and_one_has_end(self, pool: Pool) -> None:
        offers = IdleOffer.objects.filter(pool=pool).order_by("id")
        assert {offer.made_by.username for offer in offers} == {DEMO_PEOPLE["manager"]}
        assert [offer.until for offer in offers] == [None, BEGIN + timedelta(hours=12)]


def the_lender() -> Tenant:
    return Tenant.objects.get(slug=f"vc-{TEAMS[0].tenant}")


def offered_now(pool: Pool, lab: Cluster) -> int:
    """Return the GPUs of the offers whose floor is at most the last posted price, idle or not."""
    (view,) = sharing_views(pool.pk, the_lender().pk, lab.at)
    return view.effective.lendable(view.bounds.gpus)


def refused(round_: Round, tenant: Tenant) -> list[tuple[int, int]]:
    """Return (value of an hour, lowest price) of each refused job of a tenant."""
    return [
        (skip.numbers["value_micro"], skip.numbers["price_micro"])
        for skip in round_decision(round_).skips
        if skip.reason is Reason.PRICE_ABOVE_VALUE and skip.tenant == tenant.pk
    ]
