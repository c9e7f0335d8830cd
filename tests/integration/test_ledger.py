"""Test the ledger's functions against a plain model and on concurrent connections."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from billing.ledger import (
    ConflictError,
    CreditLimitError,
    Posting,
    UnbalancedError,
    open_accounts,
    open_book,
    post_allowance,
    post_transfer,
    post_transfers,
    transfer_id,
)
from billing.metering import meter_pool, settle_pool
from billing.metering.cursor import lock_cursor
from billing.models import Account, Entry, MeterCursor, Transfer
from billing.services.corrections import correct_transfer
from evenshare_core.money.fixed_point import to_credits, to_micro
from scheduling.models import LeaseEvent
from tenants.models import Budget, Tenant
from tenants.scopes import engine_scope
from tests.integration.metering_story import lines_and_shares, swept_at_once
from tests.integration.test_metering import eventful, full_hours
from tests.patience import some

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


class Shop:
    """A book with accounts of the operator and two tenants."""

    def __init__(self) -> None:
        self.book = open_book("demo")
        self.tenants = [
            Tenant.objects.create(slug=name, name=name, initials="T") for name in ("a", "b")
        ]
        for tenant in self.tenants:
            Budget.objects.create(tenant=tenant, book="demo")
        accounts = open_accounts(self.book, [tenant.pk for tenant in self.tenants])
        self.operator, self.a, self.b = (accounts[key] for key in sorted(accounts))

    def posting(self, name: str, *entries: tuple[int, int], **more: Any) -> Posting:
        fields: dict[str, Any] = {"code": "allowance", "effective_at": NOON} | more
        return Posting(
            id=transfer_id("shop", name), book_id=self.book.pk, entries=entries, **fields
        )

    def balance(self, account: int) -> int:
        return to_micro(Account.objects.get(pk=account).balance)


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Shop:
    request.getfixturevalue("db")
    return Shop()


class TestPosting:
    def test_moves_credits_and_updates_budgets(self, shop: Shop) -> None:
        post_transfer(shop.posting("one", (shop.a, -5), (shop.b, 5)))
        assert (shop.balance(shop.a), shop.balance(shop.b)) == (-5, 5)
        spendable = Budget.objects.order_by("tenant_id").values_list("spendable", flat=True)
        assert [str(amount) for amount in spendable] == ["-0.000005", "0.000005"]

    def test_is_idempotent_in_any_order_of_entries(self, shop: Shop) -> None:
        first = post_transfer(shop.posting("one", (shop.a, -5), (shop.b, 5)))
        again = post_transfer(shop.posting("one", (shop.b, 2), (shop.a, -5), (shop.b, 3)))
        assert (again.pk, shop.balance(shop.b)) == (first.pk, 5)

    @pytest.mark.parametrize(
        "change",
        [
            {"entries": ((1, -6), (2, 6))},
            {"data": {"why": "another"}},
            {"effective_at": datetime(2026, 5, 5, tzinfo=UTC)},
            {"tenant_id": 1},
        ],
    )
    def test_rejects_different_body_with_same_id(self, shop: Shop, change: dict[str, Any]) -> None:
        posting = shop.posting("one", (shop.a, -5), (shop.b, 5))
        post_transfer(posting)
        with pytest.raises(ConflictError):
            post_transfer(replace(posting, **change))

    @pytest.mark.parametrize("amounts", [(-5, 4), (0, 0), (5, 0), ()])
    def test_rejects_unbalanced_entries(self, shop: Shop, amounts: tuple[int, ...]) -> None:
        entries = zip((shop.a, shop.b), amounts, strict=False)
        with pytest.raises(UnbalancedError):
            post_transfer(shop.posting("one", *entries))
        assert not Transfer.objects.exists()

    def test_rejects_floats(self, shop: Shop) -> None:
        entries: Any = ((shop.a, -0.5), (shop.b, 0.5))
        with pytest.raises(UnbalancedError):
            post_transfer(shop.posting("one", *entries))

    def test_posts_several_transfers_or_none(self, shop: Shop) -> None:
        good = shop.posting("good", (shop.a, -5), (shop.b, 5))
        post_transfer(shop.posting("bad", (shop.a, -1), (shop.b, 1)))
        bad = shop.posting("bad", (shop.a, -2), (shop.b, 2))
        with pytest.raises(ConflictError):
            post_transfers([good, bad])
        assert shop.balance(shop.b) == 1

    def test_rejects_amount_below_credit_limit(self, shop: Shop) -> None:
        Budget.objects.filter(tenant=shop.tenants[0]).update(credit_limit=to_credits(10))
        post_transfer(shop.posting("one", (shop.a, -10), (shop.b, 10)))
        with pytest.raises(CreditLimitError):
            post_transfer(shop.posting("two", (shop.a, -1), (shop.b, 1)))

    def test_rejects_transfer_across_books(self, shop: Shop) -> None:
        other = open_accounts(open_book("main"), [])[0]
        with pytest.raises(DatabaseError, match="one book"), transaction.atomic():
            post_transfer(shop.posting("one", (shop.a, -5), (other, 5)))

    def test_correction_names_its_source(self, shop: Shop) -> None:
        source = post_transfer(shop.posting("one", (shop.a, -5), (shop.b, 5)))
        correction = correct_transfer(
            source, entries=[(shop.a, 2), (shop.b, -2)], effective_at=NOON, why="price typo"
        )
        assert (correction.corrects_id, shop.balance(shop.a)) == (source.pk, -3)

    def test_allowance_is_posted_once_per_name(self, shop: Shop) -> None:
        for _ in range(2):
            post_allowance(
                book=shop.book,
                tenant_id=shop.tenants[0].pk,
                amount_micro=100,
                effective_at=NOON,
                name="welcome",
            )
        assert (shop.balance(shop.a), shop.balance(shop.operator)) == (100, -100)


class LedgerMachine(RuleBasedStateMachine):
    """A machine that posts, repeats and contradicts transfers, compared with a dict of balances."""

    def __init__(self) -> None:
        super().__init__()
        self.savepoint = transaction.atomic()
        self.savepoint.__enter__()
        self.shop = Shop()
        self.accounts = [self.shop.operator, self.shop.a, self.shop.b]
        self.model = dict.fromkeys(self.accounts, 0)
        self.posted: dict[str, Posting] = {}

    names = st.sampled_from("abcdefgh")
    parts = st.lists(
        st.tuples(st.integers(0, 2), st.integers(-(10**12), 10**12)), min_size=1, max_size=5
    )

    @rule(name=names, parts=parts)
    def post(self, name: str, parts: list[tuple[int, int]]) -> None:
        entries = [(self.accounts[index], micro) for index, micro in parts]
        entries.append((self.accounts[0], -sum(micro for _, micro in parts)))
        posting = self.shop.posting(name, *entries)
        known = self.posted.get(name)
        if len(posting.merged()) < 2:
            self.refused(posting, UnbalancedError)
        elif known is None:
            post_transfer(posting)
            self.posted[name] = posting
            for account, micro in entries:
                self.model[account] += micro
        elif known.body_sha256() == posting.body_sha256():
            post_transfer(posting)
        else:
            self.refused(posting, ConflictError)

    @rule(name=names)
    def repeat(self, name: str) -> None:
        if name in self.posted:
            post_transfer(self.posted[name])

    @rule(name=names, micro=st.integers(1, 10**9))
    def unbalance(self, name: str, micro: int) -> None:
        self.refused(
            self.shop.posting(name, (self.accounts[1], micro), (self.accounts[2], 1 - micro)),
            UnbalancedError,
        )

    def refused(self, posting: Posting, error: type[Exception]) -> None:
        with pytest.raises(error), transaction.atomic():
            post_transfer(posting)

    @invariant()
    def balances_are_the_models(self) -> None:
        rows = Account.objects.filter(book=self.shop.book).values_list("pk", "balance")
        assert {key: to_micro(balance) for key, balance in rows} == self.model
        assert sum(self.model.values()) == 0

    def teardown(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        transaction.set_rollback(True)
        self.savepoint.__exit__(None, None, None)


@pytest.mark.django_db
def test_ledger_matches_dictionary_of_balances() -> None:
    run_state_machine_as_test(
        LedgerMachine,
        settings=settings(
            max_examples=some(),
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def in_threads(work: Callable[[], Any], count: int) -> list[Any]:
    """Run `work` on `count` connections at once; return results and exceptions."""
    results: list[Any] = []
    barrier = threading.Barrier(count)

    def run() -> None:
        try:
            barrier.wait()
            results.append(work())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class TestConcurrency:
    def test_same_transfer_is_posted_once(self, committed_db: str) -> None:
        shop = Shop()
        posting = shop.posting("one", (shop.a, -5), (shop.b, 5))
        results = in_threads(lambda: post_transfer(posting).pk, 6)
        assert results == [posting.id] * 6
        assert (Entry.objects.count(), shop.balance(shop.b)) == (2, 5)

    def test_spending_never_exceeds_limit(self, committed_db: str) -> None:
        shop = Shop()
        Budget.objects.filter(tenant=shop.tenants[0]).update(credit_limit=to_credits(10))

        def spend() -> int:
            return post_transfers([shop.posting(str(uuid.uuid4()), (shop.a, -3), (shop.b, 3))])

        results = in_threads(spend, 8)
        refused = [result for result in results if isinstance(result, CreditLimitError)]
        assert (results.count(1), len(refused), shop.balance(shop.a)) == (3, 5, -9)

    def test_transfers_in_crossed_order_do_not_deadlock(self, committed_db: str) -> None:
        shop = Shop()
        batch = [
            shop.posting(str(n), (shop.a, -1), (shop.b, 1))
            if n % 2
            else shop.posting(str(n), (shop.b, -1), (shop.a, 1))
            for n in range(400)
        ]
        turned = batch[::-1]
        flip = iter([batch, turned] * 4)
        results = in_threads(lambda: post_transfers(next(flip)), 6)
        assert sorted(results) == [0, 0, 0, 0, 0, 400]

    def test_locked_pool_is_skipped_by_meter_and_settlement(self, committed_db: str) -> None:
        story = full_hours()
        story.meter()
        pool = story.pool.pk
        with engine_scope(pool):
            assert lock_cursor(pool) is not None
            seen = in_threads(lambda: (meter_pool(pool).busy, settle_pool(pool).busy), 1)
        assert seen == [(True, True)]
        assert story.settle().transfers == 2

    def test_meters_write_each_line_once(self, committed_db: str) -> None:
        story = eventful()

        def work() -> None:
            for _ in range(30):
                meter_pool(story.pool.pk, limit=2)
                settle_pool(story.pool.pk)

        assert in_threads(work, 4) == [None] * 4
        assert lines_and_shares() == swept_at_once(story.pool.pk)

    def test_rereading_events_writes_nothing_twice(self, committed_db: str) -> None:
        """If the cursor is lost, repeated lines break a unique constraint; all is rolled back."""
        story = eventful()
        story.meter()
        before = lines_and_shares()
        MeterCursor.objects.update(event_number=0, state={})
        with pytest.raises(IntegrityError, match=r"price_once_per_round|usage_once_per_term"):
            meter_pool(story.pool.pk)
        assert lines_and_shares() == before
        assert LeaseEvent.objects.exists()
