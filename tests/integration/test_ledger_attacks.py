"""Test raw SQL against the ledger that the database refuses."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections, transaction

from billing.ledger import post_transfer
from billing.metering import settle_pool
from billing.models import Account, Transfer, UsageLine
from tenants.models import Tenant
from tests.integration.metering_story import Story
from tests.integration.test_ledger import Shop
from tests.integration.test_metering import eventful


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Shop:
    request.getfixturevalue("db")
    return Shop()


def execute(statement: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)


PROTECTED = {
    "billing_transfer": "data = '{}'",
    "billing_entry": "amount = amount + 1",
    "billing_postedprice": "price = 0",
    "billing_usageline": "amount = 0",
    "billing_usageshare": "amount = 0",
}
ATTACKS = [
    statement
    for table, change in PROTECTED.items()
    for statement in (
        f"UPDATE {table} SET {change}",  # noqa: S608 - constants
        f"DELETE FROM {table}",  # noqa: S608 - constants
        f"TRUNCATE {table} CASCADE",
    )
]


class TestRawSql:
    """Statements of the application's role, and of the owner, which only triggers stop."""

    @pytest.mark.django_db
    @pytest.mark.parametrize("statement", ATTACKS)
    def test_app_role_cannot_change_history(self, statement: str) -> None:
        full_books()
        with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
            execute(statement)

    @pytest.mark.parametrize("statement", ATTACKS)
    def test_owner_cannot_change_history(self, committed_db: str, statement: str) -> None:
        full_books()
        with (
            pytest.raises(DatabaseError, match="append-only"),
            connections["owner"].cursor() as cursor,
        ):
            cursor.execute(statement)

    def test_unbalanced_transfer_fails_at_commit(self, committed_db: str) -> None:
        shop = Shop()

        @transaction.atomic
        def write() -> None:
            new = insert_transfer(shop)
            insert_entry(new, shop.a, "-5")
            insert_entry(new, shop.b, "4.999999")

        with pytest.raises(DatabaseError, match="sum to"):
            write()
        assert not Transfer.objects.exists()

    def test_transfer_without_entries_fails_at_commit(self, committed_db: str) -> None:
        shop = Shop()
        with pytest.raises(DatabaseError, match="0 entries"), transaction.atomic():
            insert_transfer(shop)

    @pytest.mark.parametrize("entries", [0, 1, 3])
    def test_wrong_entry_count_fails_at_commit(self, committed_db: str, entries: int) -> None:
        shop = Shop()

        @transaction.atomic
        def write() -> None:
            new = insert_transfer(shop, entries=entries)
            insert_entry(new, shop.a, "-5")
            insert_entry(new, shop.b, "5")

        with pytest.raises(DatabaseError, match=r"it states|but states|of_two_entries"):
            write()
        assert not Transfer.objects.exists()

    def test_rejects_entries_after_early_constraint_check(self, committed_db: str) -> None:
        shop = Shop()

        @transaction.atomic
        def write() -> None:
            new = insert_transfer(shop)
            execute(
                "INSERT INTO billing_entry (transfer_id, account_id, amount)"
                " VALUES (%s, %s, -5), (%s, %s, 5)",
                *(new, shop.a, new, shop.b),
            )
            execute("SET CONSTRAINTS ALL IMMEDIATE")
            execute("SET CONSTRAINTS ALL DEFERRED")
            insert_entry(new, shop.a, "1")

        with pytest.raises(DatabaseError, match="only as many"):
            write()

    def test_cannot_add_entry_to_old_transfer(self, committed_db: str) -> None:
        shop = Shop()
        old = post_transfer(shop.posting("one", (shop.a, -5), (shop.b, 5)))
        with pytest.raises(DatabaseError, match="transaction that created"):
            execute(
                "INSERT INTO billing_entry (transfer_id, account_id, amount)"
                " VALUES (%s, %s, -1), (%s, %s, 1)",
                *(old.pk, shop.a, old.pk, shop.b),
            )
        assert shop.balance(shop.a) == -5

    def test_cannot_add_entry_before_its_transfer(self, shop: Shop) -> None:
        with pytest.raises(DatabaseError, match="transaction that created"), transaction.atomic():
            insert_entry(uuid.uuid4(), shop.a, "5")

    def test_app_role_cannot_execute_trigger_function(self, shop: Shop) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT has_function_privilege('billing_move_balances()', 'EXECUTE')")
            assert cursor.fetchone() == (False,)

    @pytest.mark.parametrize("amount", ["NaN", "0", "1e14", "-1e14"])
    def test_rejects_invalid_amount(self, shop: Shop, amount: str) -> None:
        with pytest.raises(DatabaseError), transaction.atomic():
            insert_entry(insert_transfer(shop), shop.a, amount)

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE billing_account SET balance = 1000000",
            "DELETE FROM billing_account",
            "TRUNCATE billing_account CASCADE",
            "ALTER TABLE billing_entry DISABLE TRIGGER ALL",
            "DROP TRIGGER billing_entry_admit ON billing_entry",
            "SET session_replication_role = replica",
            "DROP FUNCTION billing_admit_entries() CASCADE",
        ],
    )
    def test_app_role_cannot_change_balances(self, shop: Shop, statement: str) -> None:
        with pytest.raises(DatabaseError), transaction.atomic():
            execute(statement)

    def test_cannot_open_account_with_balance(self, shop: Shop) -> None:
        tenant = Tenant.objects.create(slug="c", name="c", initials="C")
        with pytest.raises(DatabaseError, match="balance of 0"), transaction.atomic():
            Account.objects.create(book=shop.book, kind="tenant", tenant=tenant, balance=5)

    @pytest.mark.django_db
    def test_cannot_post_usage_into_settled_hour(self) -> None:
        story = full_books()
        line = UsageLine.objects.filter(hour__lt=settle_pool(story.pool.pk).until).first()
        assert line is not None
        line.pk, line.term = None, 99
        with pytest.raises(DatabaseError, match="is settled"), transaction.atomic():
            line.save()


def full_books() -> Story:
    """A story with rows in every protected table."""
    story = eventful()
    story.meter()
    story.looked(120)
    story.settle()
    return story


def insert_transfer(shop: Shop, entries: int = 2) -> uuid.UUID:
    new = uuid.uuid4()
    execute(
        "INSERT INTO billing_transfer"
        " (id, book_id, code, effective_at, data, body_sha256, entry_count)"
        " VALUES (%s, %s, 'allowance', now(), '{}', '', %s)",
        *(new, shop.book.pk, entries),
    )
    return new


def insert_entry(transfer: uuid.UUID, account: int, amount: str) -> None:
    execute(
        "INSERT INTO billing_entry (transfer_id, account_id, amount) VALUES (%s, %s, %s::numeric)",
        *(transfer, account, amount),
    )
