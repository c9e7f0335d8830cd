"""Test offers, revocations, settings and bounds in any order against a plain model of lending."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from billing.checks import run_checks
from billing.metering import meter_pool
from evenshare_core.domain.entitlements import Mode
from scheduling.engine.snapshots import read_snapshot
from scheduling.models import Lease
from scheduling.requests.sharing import OfferRequest, SharingRequest
from scheduling.services.sharing import make_offer, revoke_offer, set_sharing
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.models import IdleOffer, Membership, Quota, User
from tests.factories import cluster
from tests.round_states import left_by

EXAMPLES, STEPS = 5, 30
MODES = st.sampled_from(list(Mode))
LIMITS = st.none() | st.integers(0, 5)
FLOORS = st.sampled_from(["0", "0.2", "0.414214", "0.6", "1"])
ORDER = ["RESERVE", "LEND", "LEND_AND_BORROW"]


@dataclass
class ModelOffer:
    """An offer in the model."""

    gpus: int
    floor: Decimal
    until: datetime | None
    row: IdleOffer
    stands: bool = True


class Histories(RuleBasedStateMachine):
    """`north` lends and `south` borrows; the model is a few plain fields and `lent`."""

    number = 0

    @initialize()
    def begin(self) -> None:
        Histories.number += 1
        north, south = f"north{self.number}", f"south{self.number}"
        self.lab = cluster({north: 4, south: 2}, nodes=2, gpus=4, policy="fifo", lease_s=60)
        self.north, self.south = self.lab.tenants[north], self.lab.tenants[south]
        self.manager = Actor(User.objects.create(username=f"mia{self.number}"))
        Membership.objects.create(user=self.manager.user, tenant=self.north, role="manager")
        self.bounds: dict[str, Any] = {"mode": "LEND_AND_BORROW", "lend_limit": None}
        self.own: dict[str, Any] = {"mode": "LEND_AND_BORROW", "lend_limit": None}
        self.by_offer = False
        self.offers: list[ModelOffer] = []

    @rule(mode=MODES, limit=LIMITS, by_offer=st.sampled_from([True, True, False]))
    def set_own(self, mode: Mode, limit: int | None, by_offer: bool) -> None:
        request = SharingRequest(mode=mode.value, lend_limit=limit, by_offer=by_offer)
        set_sharing(**self._who(), gpu_type="v100", request=request, now=self.lab.at)
        self.own, self.by_offer = {"mode": mode.value, "lend_limit": limit}, by_offer

    @rule(mode=st.sampled_from([Mode.LEND_AND_BORROW, Mode.LEND]), limit=LIMITS)
    def set_bounds(self, mode: Mode, limit: int | None) -> None:
        self.bounds = {"mode": mode.value, "lend_limit": limit}
        Quota.objects.filter(tenant=self.north).update(**self.bounds)

    @rule(gpus=st.integers(1, 5), floor=FLOORS, lasts_s=st.none() | st.integers(1, 90))
    def offer(self, gpus: int, floor: str, lasts_s: int | None) -> None:
        until = None if lasts_s is None else self.lab.at + timedelta(seconds=lasts_s)
        request = OfferRequest(gpu_type="v100", gpus=gpus, floor_price=Decimal(floor), until=until)
        try:
            made = make_offer(**self._who(), request=request, now=self.lab.at)
        except InvalidInputError:
            assert gpus > 4 or not self.by_offer
            return
        assert gpus <= 4
        assert self.by_offer
        self.offers.append(ModelOffer(gpus, Decimal(floor), until, made.row))

    @precondition(lambda self: self.offers)
    @rule(which=st.integers(0, 50))
    def revoke(self, which: int) -> None:
        chosen = self.offers[which % len(self.offers)]
        revoke_offer(**self._who(), uid=chosen.row.uid, now=self.lab.at)
        chosen.stands = False

    @rule(tenant=st.sampled_from(["north", "south", "south"]), gpus=st.integers(1, 3))
    def submit(self, tenant: str, gpus: int) -> None:
        slug = self.north.slug if tenant == "north" else self.south.slug
        self.lab.submit(slug, gpus, 45)

    @rule(seconds=st.sampled_from([10, 10, 20, 60]))
    def play(self, seconds: int) -> None:
        """Run a round, and check that its new loans are within the model's limit."""
        self.lab.at += timedelta(seconds=seconds)
        before = self._borrowed()
        most = self._lent()
        self.lab.round()
        terms = self._borrowed()
        new = {key for key in terms if key not in before}
        if any(terms[key] for key in new):
            # The free GPUs cover all quota that is not lent, however much is borrowed or used.
            assert sum(terms.values()) <= most + 2  # unallocated GPUs: 8 GPUs, quotas of 6

    @invariant()
    def lends_what_the_model_lends(self) -> None:
        snapshot = read_snapshot(self.lab.pool.pk, number=1, at=self.lab.at)
        (row,) = [one for one in snapshot.entitlements if one.tenant == self.north.pk]
        assert row.lendable(4) == min(4, self._most())
        assert row.mode.value == min(self.own["mode"], self.bounds["mode"], key=ORDER.index)

    def teardown(self) -> None:
        if hasattr(self, "lab"):
            meter_pool(self.lab.pool.pk)

    def _most(self) -> int:
        """Return how many GPUs of a quota may be lent if all of it is idle."""
        if Mode.RESERVE.value in (self.own["mode"], self.bounds["mode"]):
            return 0
        limits = [row["lend_limit"] for row in (self.own, self.bounds)]
        most: int = min([4, *(limit for limit in limits if limit is not None)])
        return min(most, self._offered()) if self.by_offer else most

    def _offered(self) -> int:
        posted = left_by(self.lab.pool).prices
        price = Decimal(posted[0]["price_micro"] if posted else 0) / 10**6
        return sum(
            one.gpus
            for one in self.offers
            if one.stands and (one.until is None or self.lab.at < one.until) and one.floor <= price
        )

    def _lent(self) -> int:
        return min(4, self._most())

    def _borrowed(self) -> dict[tuple[int, int], int]:
        """Return borrowed GPUs by lease and term of both tenants, because north also borrows."""
        live = Lease.objects.filter(pool=self.lab.pool, state__in=Lease.LIVE_STATES)
        rows = live.filter(tenant=self.south).values_list("id", "term", "borrowed")
        return {(id_, term): borrowed for id_, term, borrowed in rows}

    def _who(self) -> dict[str, Any]:
        return {"tenant": self.north, "actor": self.manager, "pool_id": self.lab.pool.pk}


@pytest.mark.usefixtures("committed_db")
class TestOfferHistories:
    @pytest.mark.parametrize(
        "part", [0, 1, *(pytest.param(part, marks=pytest.mark.soak) for part in (2, 3))]
    )
    def test_lent_amounts_match_plain_model(self, part: int) -> None:
        run_state_machine_as_test(
            seed(part)(type("Histories", (Histories,), {})),
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
        assert not [one for result in run_checks() for one in result.violations]
