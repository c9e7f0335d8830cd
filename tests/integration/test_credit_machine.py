"""Test credit against a plain model: limits, budgets, reservations, settlements, transfers."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from billing.checks import CHECKS
from billing.ledger import (
    CreditLimitError,
    Posting,
    open_accounts,
    open_book,
    post_allowance,
    post_gift,
    post_transfers,
    transfer_id,
)
from billing.metering.budgets import _change_reserved, add_spend, release_reserved
from billing.models import Account, Transfer
from evenshare_core.domain.decision import Grant, Key
from evenshare_core.money.fixed_point import to_credits, to_micro
from evenshare_core.units import HOUR_US
from scheduling.engine.holds import hold_credit, write_reserved
from scheduling.engine.write import RoundWrite
from scheduling.models import Pool
from tenants.models import Budget, DailySpend, Tenant

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING: Any = None
# The amounts in micro-credits are small, so that limits are often reached.
AMOUNTS = st.integers(1, 60)
LIMITS = st.none() | st.integers(0, 200)
WHO = st.sampled_from("ab")
STEPS = 40
CHECKED = (
    *("transfers_sum_to_zero", "balances_equal_entries", "budgets_follow_balances"),
    "limits_are_one",
)


@dataclass
class Party:
    """A tenant in the model, with amounts in whole micro-credits."""

    tenant: Tenant
    balance: int = 0
    limit: int | None = None
    budget: int | None = None
    is_block: bool = False
    spent: int = 0

    def __post_init__(self) -> None:
        self.holds: list[int] = []

    @property
    def free(self) -> int | None:
        """The credit left for terms and transfers."""
        return None if self.limit is None else self.balance + self.limit - sum(self.holds)

    @property
    def promisable(self) -> int | None:
        """Return how much rounds may reserve: the lower of credit and budget."""
        of_budget = None
        if self.budget is not None:
            percent = 100 if self.is_block else 120
            of_budget = self.budget * percent // 100 - self.spent - sum(self.holds)
        limits = [limit for limit in (self.free, of_budget) if limit is not None]
        return min(limits, default=None)


class CreditMachine(RuleBasedStateMachine):
    """A machine whose rules change the books and the model, which must agree after each rule."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.savepoint = transaction.atomic()
        self.savepoint.__enter__()
        self.book = open_book("demo")
        self.pool = Pool.objects.create(name=f"p-{uuid.uuid4().hex[:8]}", book="demo")
        self.parties = {
            name: Party(Tenant.objects.create(slug=name, name=name, initials="T")) for name in "ab"
        }
        self.accounts = open_accounts(self.book, [p.tenant.pk for p in self.parties.values()])
        self.step = 0
        self.now = BEGIN

    @rule(who=WHO, micro=AMOUNTS)
    def allow(self, who: str, micro: int) -> None:
        party = self.parties[who]
        self.step += 1
        for _ in range(2):  # a repeated transfer posts nothing
            post_allowance(
                book=self.book, tenant_id=party.tenant.pk, amount_micro=micro,
                effective_at=BEGIN, name=str(self.step),
            )  # fmt: skip
        party.balance += micro

    @rule(who=WHO, micro=AMOUNTS)
    def give(self, who: str, micro: int) -> None:
        giver, receiver = self.parties[who], self.parties["b" if who == "a" else "a"]
        try:
            with transaction.atomic():
                post_gift(
                    book=self.book, giver_id=giver.tenant.pk, receiver_id=receiver.tenant.pk,
                    amount_micro=micro, effective_at=BEGIN, request=uuid.uuid4(),
                )  # fmt: skip
        except CreditLimitError:
            assert giver.free is not None
            assert giver.free < micro
            return
        assert giver.free is None or giver.free >= micro
        giver.balance -= micro
        receiver.balance += micro

    @rule(who=WHO, limit=LIMITS)
    def limit(self, who: str, limit: int | None) -> None:
        party = self.parties[who]
        credits_ = None if limit is None else to_credits(limit)
        Budget.objects.filter(tenant=party.tenant).update(credit_limit=credits_)
        party.limit = limit

    @rule(who=WHO, amount=st.none() | st.integers(1, 300), is_block=st.booleans())
    def budget(self, who: str, amount: int | None, is_block: bool) -> None:
        party = self.parties[who]
        Budget.objects.filter(tenant=party.tenant).update(
            period_amount=None if amount is None else to_credits(amount),
            period_action="block" if is_block else "warn",
        )
        party.budget, party.is_block = amount, is_block

    @rule(who=WHO, terms=st.lists(AMOUNTS, min_size=1, max_size=4))
    def hold(self, who: str, terms: list[int]) -> None:
        """Run a round with new terms, and reserve those that fit, in their order."""
        party = self.parties[who]
        grants = tuple(
            Grant(
                *(order, order, party.tenant.pk, "v100", ((1, 1),), Key(None, None)),
                borrowed=1,
                price_micro=micro,
            )
            for order, micro in enumerate(terms)
        )
        decision = SimpleNamespace(renewals=(), grants=grants, lengths=())
        plan: Any = SimpleNamespace(
            snapshot=SimpleNamespace(lease_us=HOUR_US), decision=decision, book="demo"
        )
        with connection.cursor() as cursor:
            write = RoundWrite(plan, NOTHING, cursor, self.now, NOTHING)
            hold_credit(write)
            for grant in grants:
                if grant.job not in write.unfunded_jobs:
                    write.reserve(grant)
            write_reserved(write)
        room = party.promisable
        for order, micro in enumerate(terms):
            fits = room is None or micro <= room
            assert fits == (order not in write.unfunded_jobs)
            if fits:
                party.holds.append(micro)
                room = None if room is None else room - micro

    @rule(who=WHO, which=st.integers(0, 50), late=st.integers(-60, 20))
    def settle(self, who: str, which: int, late: int) -> None:
        """End a term and settle its hour. If rounds were late, it costs more than was reserved."""
        party, lender = self.parties[who], self.parties["b" if who == "a" else "a"]
        if not party.holds:
            return
        held = party.holds.pop(which % len(party.holds))
        cost = max(1, held + late)
        self.change_reserved(party, cost - held)
        self.step += 1
        hour = self.now + timedelta(hours=self.step % (24 * 27))
        posting = Posting(
            id=transfer_id("machine", self.step, party.tenant.pk),
            book_id=self.book.pk,
            code=Transfer.Code.USAGE,
            effective_at=hour,
            entries=[
                (self.accounts[party.tenant.pk], -cost),
                (self.accounts[lender.tenant.pk], cost),
            ],
            pool_id=self.pool.pk,
            tenant_id=party.tenant.pk,
            hour=BEGIN - timedelta(hours=self.step),
        )
        post_transfers([posting])
        charge = (party.tenant.pk, hour, cost)  # any hour of this month
        release_reserved(self.book, [charge])
        add_spend(self.book, [charge])
        party.balance -= cost
        lender.balance += cost
        party.spent += cost

    @rule()
    def turn_the_month(self) -> None:
        if self.now.year < 9000:
            self.now = (self.now + timedelta(days=40)).replace(day=1)
        for party in self.parties.values():
            party.spent = 0

    def change_reserved(self, party: Party, micro: int) -> None:
        """Change the reservation as the meter does when a term ends."""
        _change_reserved(self.book, {party.tenant.pk: micro})

    @invariant()
    def books_and_model_agree(self) -> None:
        CreditMachine.steps += 1
        for party in self.parties.values():
            budget = Budget.objects.get(tenant=party.tenant)
            account = Account.objects.get(pk=self.accounts[party.tenant.pk])
            held = sum(party.holds)
            assert to_micro(account.balance) == to_micro(budget.spendable) == party.balance
            assert to_micro(budget.reserved) == held
            short = 0 if party.limit is None else max(0, held - party.balance - party.limit)
            assert to_micro(budget.overrun) == short
            known = None if account.credit_limit is None else to_micro(account.credit_limit)
            assert known == party.limit
        assert sum(to_micro(row.balance) for row in Account.objects.filter(book=self.book)) == 0

    def teardown(self) -> None:
        assert [name for name in CHECKED if CHECKS[name]().violations] == []
        month = DailySpend.objects.filter(day__gte=self.now.date())
        kept = sum(to_micro(amount) for amount in month.values_list("amount", flat=True))
        assert kept == sum(party.spent for party in self.parties.values())
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        transaction.set_rollback(True)
        self.savepoint.__exit__(None, None, None)


@pytest.mark.django_db
def test_credit_matches_integer_model() -> None:
    CreditMachine.steps = 0
    run_state_machine_as_test(
        CreditMachine,
        settings=settings(
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert CreditMachine.steps > STEPS * settings().max_examples // 2
