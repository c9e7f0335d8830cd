"""Test offers, revocations, holds, settlements and budgets in any order against a model.

1,200 steps run on real rounds, meters and books; `market_model` implements docs/money.md.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from billing.checks import run_checks
from billing.ledger import CreditLimitError, open_accounts, open_book, post_allowance, post_gift
from billing.metering import meter_pool, settle_pool
from billing.models import Transfer, UsageLine, UsageShare
from billing.services.corrections import OverCorrectedError, correct_transfer
from evenshare_core.domain.entitlements import Mode
from evenshare_core.money.fixed_point import to_credits, to_micro
from scheduling.models import LeaseTerm
from scheduling.requests.sharing import OfferRequest, SharingRequest
from scheduling.selectors.pools.lines import pool_facts
from scheduling.selectors.sharing.views import promised_return
from scheduling.services.sharing import make_offer, revoke_offer, set_price_limit, set_sharing
from tenants.audit import Actor
from tenants.models import Budget, DailySpend, Membership, Quota, User
from tenants.selectors.credit import credit_left
from tests.factories import cluster
from tests.integration.market_model import HOUR_S, OPERATOR, Model, ModelOffer, Term
from tests.integration.market_steps import BOOKS, MET, QUOTAS, STEP
from tests.round_states import left_by

# Each policy is a separate test, so that they may run in parallel. Together they make 1,200 steps.
# The first history repeats a single step.
POLICIES = ["fifo", "ltgf", "evenshare"]
HISTORIES, STEPS, LEAST_STEPS = 5, 100, 1200
NODES, GPUS = 2, 4
# Histories start an hour and a half before a month ends, so budgets restart in most of them.
BEGIN = datetime(2030, 1, 31, 21, 20, tzinfo=UTC)


def seconds(at: datetime) -> int:
    """Return pool time in whole seconds, because the demo's virtual jobs end at whole seconds."""
    assert not at.microsecond
    return int(at.timestamp())


class Markets(RuleBasedStateMachine):
    """north (4 of 8 GPUs) and east (2) lend to south (1), or the reverse; 1 GPU is in no quota."""

    policy = ""
    number = steps = 0
    # Counts of situations, to check that the histories reach them.
    seen: dict[str, int] = {}

    @initialize(is_short=st.booleans())
    def begin(self, is_short: bool) -> None:
        Markets.number += 1
        slugs = {f"{name}{self.number}": gpus for name, gpus in QUOTAS.items()}
        self.book = open_book(f"m{self.number}")
        self.lab = cluster(
            slugs, nodes=NODES, gpus=GPUS, policy=self.policy, lease_s=900, book=self.book.slug,
            begin=BEGIN,
        )  # fmt: skip
        self.tenants = {slug.rstrip("0123456789"): row for slug, row in self.lab.tenants.items()}
        self.ids = {name: row.pk for name, row in self.tenants.items()}
        self.actors = {}
        for name, tenant in self.tenants.items():
            user = User.objects.create(username=f"{name}{self.number}")
            Membership.objects.create(user=user, tenant=tenant, role="manager")
            self.actors[name] = Actor(user)
        self.accounts = open_accounts(self.book, self.ids.values())
        quotas = {self.ids[name]: gpus for name, gpus in QUOTAS.items()}
        self.model = Model(NODES * GPUS, quotas, seconds(BEGIN))
        self.offers: list[tuple[str, ModelOffer, UUID]] = []
        self.promises: list[tuple[int, int, int]] = []  # (owner, revoked at, GPUs back by)
        self.is_lending = False
        self.charges: dict[UUID, list[int]] = {}  # [amount charged, sum of its corrections so far]
        self.lend_an_hour()
        if is_short:
            self.budget("south", 500_000, True)  # south has less credit than its next term costs

    def lend_an_hour(self) -> None:
        """Lend and settle an hour: later steps need leases to stop and charges to correct."""
        self.submit("south", 3, 9000)
        self.submit("east", 3, 9000)
        self.rounds()
        for seconds_ in (900, 900, 2400):
            self.play(seconds_)
        self.deliver(1)
        assert self.charges

    # A single rule with a table of steps, because Hypothesis would use only some of many rules.

    @rule(step=STEP)
    def act(self, step: tuple[str, dict[str, Any]]) -> None:
        name, given = step
        self.is_lending = name in ("set_own", "set_bounds", "offer", "revoke", "submit")
        if not (name == "revoke" and not self.offers) and not (
            name == "correct" and not self.charges
        ):
            getattr(self, name)(**given)

    # Steps that change lending.

    def set_own(self, who: str, mode: Mode, limit: int | None, by_offer: bool) -> None:
        request = SharingRequest(mode=mode.value, lend_limit=limit, by_offer=by_offer)
        set_sharing(**self.of(who), gpu_type="v100", request=request, now=self.lab.at)
        party = self.party(who)
        party.own, party.by_offer = (mode.value, limit), by_offer
        self.count("settings")

    def set_bounds(self, who: str, mode: Mode, limit: int | None) -> None:
        rows = Quota.objects.filter(tenant=self.tenants[who])
        rows.update(mode=mode.value, lend_limit=limit)
        self.party(who).bounds = (mode.value, limit)
        self.count("bounds")

    def offer(self, who: str, gpus: int, floor: int, lasts_s: int | None) -> None:
        party = self.party(who)
        if not party.by_offer:
            set_sharing(
                **self.of(who), gpu_type="v100", request=SharingRequest(by_offer=True),
                now=self.lab.at,
            )  # fmt: skip
            party.own, party.by_offer = ("LEND_AND_BORROW", None), True
        until = None if lasts_s is None else self.lab.at + timedelta(seconds=lasts_s)
        request = OfferRequest(
            gpu_type="v100", gpus=gpus, floor_price=to_credits(floor), until=until
        )
        made = make_offer(**self.of(who), request=request, now=self.lab.at)
        offer = ModelOffer(gpus, floor, None if until is None else seconds(until))
        party.offers.append(offer)
        self.offers.append((who, offer, made.row.uid))
        self.count("offers")

    def revoke(self, which: int) -> None:
        who, offer, uid = self.offers[which % len(self.offers)]
        for _ in range(2):
            revoke_offer(**self.of(who), uid=uid, now=self.lab.at)
        offer.stands = False
        facts = pool_facts(self.lab.pool.pk)
        assert facts is not None
        back = promised_return(facts, self.ids[who], "v100", self.lab.at)
        self.promises.append((self.ids[who], seconds(self.lab.at), seconds(back.unasked_by)))
        self.count("revocations")

    def highest_price(self, who: str, price: int | None) -> None:
        most = None if price is None else to_credits(price)
        set_price_limit(**self.of(who), max_price=most)
        self.party(who).max_price = price
        self.count("highest prices")

    # Steps that use GPUs.

    def submit(self, who: str, gpus: int, lasts_s: int) -> None:
        self.lab.submit(self.tenants[who].slug, gpus, lasts_s)
        self.count("jobs")

    def play(self, seconds_: int) -> None:
        self.lab.at += timedelta(seconds=seconds_)
        self.rounds()

    def deliver(self, times: int) -> None:
        """Meter events and settle hours several times, which must have the same effect as once."""
        meter_pool(self.lab.pool.pk)
        for _ in range(times):
            settle_pool(self.lab.pool.pk)
            if times > 1:
                meter_pool(self.lab.pool.pk)
        self.model.meter()
        self.model.settle(seconds(self.lab.at) // HOUR_S * HOUR_S)
        self.lines_are_the_models()
        self.count("deliveries")

    # Steps that change credit.

    def allow(self, who: str, micro: int) -> None:
        for _ in range(2):
            post_allowance(
                book=self.book, tenant_id=self.ids[who], amount_micro=micro,
                effective_at=self.lab.at, name=str(Markets.steps),
            )  # fmt: skip
        self.party(who).balance += micro
        self.model.operator -= micro
        self.count("allowances")

    def give(self, who: str, to: str, micro: int) -> None:
        if who == to:
            to = "south" if who == "north" else "north"
        giver, receiver, request = self.party(who), self.party(to), uuid4()
        try:
            for _ in range(2):
                post_gift(
                    book=self.book, giver_id=self.ids[who], receiver_id=self.ids[to],
                    amount_micro=micro, effective_at=self.lab.at, request=request,
                )  # fmt: skip
        except CreditLimitError:
            assert not giver.may_give(micro)
            self.count("gifts refused")
            return
        assert giver.may_give(micro)
        giver.balance -= micro
        receiver.balance += micro
        self.count("gifts")

    def limit(self, who: str, limit: int | None) -> None:
        given = None if limit is None else to_credits(limit)
        Budget.objects.filter(tenant=self.tenants[who]).update(credit_limit=given)
        self.party(who).limit = limit
        self.count("limits")

    def budget(self, who: str, micro: int | None, is_block: bool) -> None:
        party = self.party(who)
        party.budget, party.is_block = micro or None, is_block
        Budget.objects.filter(tenant=self.tenants[who]).update(
            period_amount=to_credits(micro) if micro else None,
            period_action="block" if is_block else "warn",
        )
        self.count("budgets")

    def correct(self, which: int, percent: int) -> None:
        """Pay back a part of a charge, all of it, or too much; or charge more."""
        charge = list(self.charges)[which % len(self.charges)]
        source, known = Transfer.objects.get(pk=charge), self.charges[charge]
        back = known[0] * percent // 100 or 1
        assert source.tenant_id is not None
        who, payee = self.model.parties[source.tenant_id], self.accounts[OPERATOR]
        entries = [(self.accounts[source.tenant_id], back), (payee, -back)]
        try:
            for _ in range(2):
                correct_transfer(
                    source, entries=entries, effective_at=self.lab.at, why=str(Markets.steps)
                )
        except CreditLimitError:
            assert not who.may_give(-back)
            self.count("corrections refused")
            return
        except OverCorrectedError:
            assert known[1] + back > known[0]
            self.count("corrections refused")
            return
        assert known[1] + back <= known[0] or back < 0
        known[1] += back
        who.balance += back
        self.model.operator -= back
        assert source.hour is not None
        who.spent[source.hour.date().isoformat()] -= back
        self.count("corrections")

    # Invariants that are checked after each step.

    @invariant()
    def credit_is_the_models(self) -> None:
        Markets.steps += 1
        with connection.cursor() as cursor:
            cursor.execute(BOOKS, [self.book.pk])
            rows = {tenant: [*map(to_micro, amounts)] for tenant, *amounts in cursor.fetchall()}
        operator, *_ = rows.pop(None)
        assert rows == {
            # available >= -limit, unless the use exceeded the reservation or the limit was lowered.
            tenant: [party.balance, party.balance, party.reserved, party.short]
            for tenant, party in self.model.parties.items()
        }
        assert operator == self.model.operator
        assert operator + sum(balance for balance, *_ in rows.values()) == 0

    @invariant()
    def budgets_are_the_models(self) -> None:
        if self.is_lending:
            return
        left = credit_left(self.book.slug, list(self.model.parties), self.lab.at)
        for tenant, party in self.model.parties.items():
            assert left[tenant].micro == party.may_promise(f"{self.lab.at:%Y-%m}")

    def teardown(self) -> None:
        if hasattr(self, "lab"):
            self.deliver(2)
            kept = DailySpend.objects.filter(book=self.book.slug)
            rows = {(row.tenant_id, row.day.isoformat()): to_micro(row.amount) for row in kept}
            spent = {
                (tenant, day): micro
                for tenant, party in self.model.parties.items()
                for day, micro in party.spent.items()
            }
            assert {key: row for key, row in rows.items() if row} == {
                key: row for key, row in spent.items() if row
            }

    # Helpers.

    def rounds(self) -> None:
        """Run a round, pass its terms to the model, and check that they were allowed."""
        at = seconds(self.lab.at)
        posted = left_by(self.lab.pool).prices
        price = posted[0]["price_micro"] if posted else 0
        most = {id_: row.most_lent(at, price) for id_, row in self.model.parties.items()}
        self.model.note_round(at)
        if self.lab.round().round is not None:
            self.model.lendable.append((at, most))
        fresh = self.show()
        self.new_terms_are_paid_for(fresh, price)
        self.new_loans_leave_what_is_kept(fresh, most)
        for owner, revoked, by in self.promises:
            if at >= by:
                # A tenant that borrowed at that time did not lend.
                lent = [row for row in self.running() if row.borrowed and row.tenant != owner]
                assert not [row for row in lent if row.starts < revoked]
        self.promises = [one for one in self.promises if at < one[-1]]
        self.count("rounds")

    def show(self) -> list[Term]:
        """Read the terms of all leases, and return the new ones."""
        fresh = []
        rows = LeaseTerm.objects.filter(lease__pool=self.lab.pool).order_by("lease_id", "number")
        for lease, number, last, ended_at, starts_at, expires_at, price, *who in rows.values_list(
            "lease_id", "number", "lease__term", "lease__ended_at", "starts_at", "expires_at",
            "price", "lease__tenant_id", "own", "borrowed",
        ):  # fmt: skip
            terms = self.model.terms.setdefault(lease, {})
            if number not in terms:
                starts = seconds(starts_at)
                tenant, own, lent = who
                term = Term(tenant, own, lent, to_micro(price), starts, seconds(expires_at))
                terms[number] = term
                fresh.append(term)
                self.model.parties[term.tenant].reserved += term.worst
                if number > 1:
                    terms[number - 1].ends = starts
            if number == last and ended_at is not None:
                terms[number].ends = seconds(ended_at)
        return fresh

    def new_terms_are_paid_for(self, fresh: list[Term], price: int) -> None:
        month = f"{self.lab.at:%Y-%m}"
        for tenant, party in self.model.parties.items():
            mine = [term for term in fresh if term.tenant == tenant]
            lent = [term for term in mine if term.borrowed]
            own = sum(term.own for term in self.running() if term.tenant == tenant)
            # Own quota is used first, and costs nothing.
            assert own <= party.quota
            assert not lent or own == party.quota
            assert all(term.price == (price if term.borrowed else 0) for term in mine)
            if lent:
                assert party.mode == "LEND_AND_BORROW"
                assert party.max_price is None or price <= party.max_price
                room = party.may_promise(month)  # the credit that these terms leave
                assert not price or room is None or room >= 0
                self.count("loans")

    def new_loans_leave_what_is_kept(self, fresh: list[Term], most: dict[int, int]) -> None:
        """Check that free GPUs cover the quota that owners keep, less new terms within quota."""
        borrowers = {term.tenant for term in fresh if term.borrowed}
        if not borrowers:
            return
        running = self.running()
        free = NODES * GPUS - sum(term.own + term.borrowed for term in running)
        kept = 0
        for tenant, party in self.model.parties.items():
            left = party.quota - sum(term.own for term in running if term.tenant == tenant)
            if tenant not in borrowers:
                kept += max(0, left - most[tenant])
        assert free + sum(term.own for term in fresh if not term.borrowed) >= kept

    def lines_are_the_models(self) -> None:
        """Check charges, shares, hours and transfers. Only whole hours are settled."""
        pool = self.lab.pool
        terms = {
            (lease, number): term
            for lease, terms in self.model.terms.items()
            for number, term in terms.items()
            if term.charge is not None
        }
        lines = UsageLine.objects.filter(pool=pool)
        paid: dict[tuple[int, int], int] = {}
        for line in lines.exclude(meter="own", amount=0):
            term = terms[line.lease_id, line.term]
            found = line.meter, to_micro(line.amount), to_micro(line.borne), seconds(line.hour)
            assert found == ("borrowed", term.charge, term.borne, term.hour)
            if term.settled and term.full:
                key = (term.tenant, term.hour)
                paid[key] = paid.get(key, 0) + (term.charge or 0)
        charges = sum(term.charge or 0 for term in terms.values())
        assert sum(to_micro(line.amount) for line in lines) == charges
        assert not lines.filter(meter="own", amount__gt=0).exists()
        shares: dict[tuple[int, int], dict[int, int]] = {}
        rows = UsageShare.objects.filter(line__pool=pool, amount__gt=0)
        for lease, number, lender, amount in rows.values_list(
            "line__lease_id", "line__term", "account__tenant_id", "amount"
        ):
            shares.setdefault((lease, number), {})[lender or OPERATOR] = to_micro(amount)
        # No owner earns more than its part of the idle GPUs, and all parts add up to the charge.
        assert shares == {key: term.shares for key, term in terms.items() if term.shares}
        charged = Transfer.objects.filter(pool=pool, code="usage")
        assert {(row.tenant_id, seconds(row.hour)): row.pk for row in charged if row.hour}.keys() \
            == paid.keys()  # fmt: skip
        for row in charged:
            assert row.hour is not None
            assert row.tenant_id is not None
            self.charges.setdefault(row.pk, [paid[row.tenant_id, seconds(row.hour)], 0])

    def running(self) -> list[Term]:
        return [term for term in self.model.every() if term.ends is None]

    def party(self, who: str) -> Any:
        return self.model.parties[self.ids[who]]

    def of(self, who: str) -> dict[str, Any]:
        return {
            "tenant": self.tenants[who], "actor": self.actors[who], "pool_id": self.lab.pool.pk,
        }  # fmt: skip

    def count(self, what: str) -> None:
        Markets.seen[what] = Markets.seen.get(what, 0) + 1


@pytest.mark.usefixtures("committed_db")
class TestMarketHistories:
    @pytest.mark.parametrize("policy", POLICIES)
    def test_offers_and_credit_match_plain_model(self, policy: str) -> None:
        Markets.number = Markets.steps = 0
        Markets.seen = {}
        markets = type("Markets", (Markets,), {"policy": policy})
        run_state_machine_as_test(
            seed(POLICIES.index(policy))(markets),
            settings=settings(
                max_examples=HISTORIES,
                stateful_step_count=STEPS,
                deadline=None,
                derandomize=True,  # each run has the same steps and situations
                suppress_health_check=list(HealthCheck),
            ),
            _min_steps=STEPS,
        )
        assert len(POLICIES) * (Markets.steps - STEPS) >= LEAST_STEPS
        assert set(Markets.seen) == MET
        # No transfer in this test needed an approval.
        checks = [result for result in run_checks() if result.name != "gifts_were_approved"]
        assert not [one for result in checks for one in result.violations]
