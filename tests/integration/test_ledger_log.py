"""Test the transfers in their book's log: complete, without amounts, and unchanged."""

# ruff: noqa: S608 - statements are made of the constants of this file

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from pytest_django import Settings

from billing.checks import run_checks
from billing.ledger import open_book, post_allowance
from billing.metering import log_transfers
from billing.models import Book, Entry, LoggedTransfer, Transfer
from billing.selectors.ledger_log import transfer_bodies
from billing.tasks import log_new_transfers
from evenshare_core.chain.records import LedgerRecord, read_ledger_record, transfer_digest
from portal.site.health import State, readiness
from tenants import transparency
from tenants.models import LogScrub
from tests.integration.metering_story import NOON
from tests.integration.test_backup_restore import story
from tests.plugin import Services
from tests.stages import Stages

Session = psycopg.Connection[Any]


def give(book: Book, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        post_allowance(
            book=book,
            tenant_id=Transfer.objects.exclude(tenant=None)[0].tenant_id or 0,
            amount_micro=1_000_001 + number,
            effective_at=NOON,
            name=f"gift {number}",
        )


def logged_book() -> Book:
    """A book with settled hours and some transfers, all in its log."""
    book = open_book(story().pool.book)
    give(book, 4)
    log_new_transfers()
    return book


@pytest.fixture
def book(stages: Stages, tmp_path: Path, settings: Settings) -> Iterator[Book]:
    settings.LOG_KEYS_DIR = str(tmp_path / "log-keys")
    with stages.copy(logged_book) as made:
        yield made


@pytest.fixture
def session(
    book: Book,  # noqa: ARG001 - made before
    services: Services,
) -> Iterator[Session]:
    """Yield a session of the tables' owner, with triggers disabled."""
    with services.postgres.connect(connection.settings_dict["NAME"]) as session:
        session.execute("SET session_replication_role = replica")
        yield session


def records(book: Book) -> list[LedgerRecord]:
    entries = transparency.entries(transparency.ledger_log(book.slug), 0, 1000)
    return [read_ledger_record(entry.record) for entry in entries]


def violations() -> list[str]:
    (check,) = [check for check in run_checks() if check.name == "transfers_as_logged"]
    return check.violations


class TestBookLog:
    def test_has_every_transfer_once_in_order(self, book: Book) -> None:
        there = Transfer.objects.filter(book=book)
        assert there.count() > 5
        logged = LoggedTransfer.objects.filter(book=book).order_by("number")
        assert [row.number for row in logged] == list(range(there.count()))
        assert [row.transfer_id for row in logged] == list(
            there.order_by("posted_at", "pk").values_list("pk", flat=True)
        )
        bodies = transfer_bodies([row.transfer_id for row in logged])
        (record,) = records(book)
        assert record.transfers == tuple(
            transfer_digest(bytes(row.salt), bodies[row.transfer_id]) for row in logged
        )

    def test_continues_with_new_transfers(self, book: Book) -> None:
        assert log_new_transfers() == 0
        give(book, 2, 10)
        assert log_new_transfers() == 2
        give(book, 3, 20)
        assert log_transfers(book, limit=2) == 2
        assert log_transfers(book, limit=2) == 1
        firsts = [record.first for record in records(book)]
        counts = [len(record.transfers) for record in records(book)]
        assert counts[1:] == [2, 2, 1]
        assert firsts == [sum(counts[:place]) for place in range(4)]
        assert violations() == []

    def test_discloses_no_amount_id_or_body_hash(self, book: Book) -> None:
        (entry,) = transparency.entries(transparency.ledger_log(book.slug), 0, 10)
        text = entry.record.decode()
        for transfer in Transfer.objects.filter(book=book):
            assert str(transfer.pk) not in text
            assert transfer.body_sha256 not in text
        assert set(json.loads(text)) == {
            *("schema", "log", "first", "posted_us", "previous", "transfers")
        }
        salts = LoggedTransfer.objects.values_list("salt", flat=True)
        assert len({bytes(salt) for salt in salts}) == len(salts)

    def test_concurrent_writers_log_each_transfer_once(self, book: Book) -> None:
        give(book, 30, 100)
        logged: list[int] = []

        def work() -> None:
            logged.append(sum(log_transfers(book, limit=4) for _ in range(10)))
            connection.close()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(logged) == 30
        assert violations() == []

    def test_hourly_scan_logs_old_unlogged_transfer(self, book: Book, session: Session) -> None:
        for number, ago in ((50, "30 minutes"), (51, "2 hours")):
            give(book, 1, number)
            session.execute(
                "UPDATE billing_transfer SET posted_at = posted_at - %s::interval"
                " WHERE data->>'name' = %s",
                [ago, f"gift {number}"],
            )
        assert log_new_transfers() == 1
        assert log_new_transfers() == 0
        assert log_new_transfers(look_at_all=True) == 1


# A change of a transfer, and the error that the check reports.
OF_IT = "WHERE transfer_id = %(id)s"
NEWEST = f"WHERE id = (SELECT max(id) FROM billing_entry {OF_IT})"
DONE = {
    f"UPDATE billing_entry SET amount = amount + 1 {OF_IT}": "altered",
    f"UPDATE billing_entry SET account_id = account_id + 1 {NEWEST}": "altered",
    f"DELETE FROM billing_entry {NEWEST}": "altered",
    "INSERT INTO billing_entry (transfer_id, account_id, amount, seal)"
    f" SELECT transfer_id, account_id, 1, seal FROM billing_entry {NEWEST}": "altered",
    "UPDATE billing_transfer SET tenant_id = tenant_id + 1 WHERE id = %(id)s": "altered",
    "UPDATE billing_transfer SET data = '{}' WHERE id = %(id)s": "altered",
    "UPDATE billing_transfer SET effective_at = effective_at + interval '1 us'"
    " WHERE id = %(id)s": "altered",
    "UPDATE billing_transfer SET code = 'transfer' WHERE id = %(id)s": "altered",
    "UPDATE billing_transfer SET body_sha256 = repeat('a', 64) WHERE id = %(id)s": "altered",
    f"UPDATE billing_loggedtransfer SET salt = sha256('x') {OF_IT}": "altered",
    "DELETE FROM billing_transfer WHERE id = %(id)s": "was removed",
}


class TestAlteredTransfer:
    @pytest.mark.parametrize("statement", DONE)
    def test_is_reported_with_kind_of_change(
        self, book: Book, session: Session, statement: str
    ) -> None:
        assert violations() == []
        victim = Transfer.objects.filter(book=book, data__name="gift 2").get()
        session.execute(statement, {"id": victim.pk})
        (said,) = violations()
        assert f"transfer {victim.pk}" in said
        assert DONE[statement] in said
        assert transparency.ledger_log(book.slug) in said

    def test_is_reported_by_number_if_all_rows_are_removed(
        self, book: Book, session: Session
    ) -> None:
        victim = LoggedTransfer.objects.get(transfer__data__name="gift 2")
        for table, column in (
            ("entry", "transfer_id"),
            ("loggedtransfer", "transfer_id"),
            ("transfer", "id"),
        ):
            session.execute(
                f"DELETE FROM billing_{table} WHERE {column} = %s",
                [victim.transfer_id],
            )
        (said,) = violations()
        assert f"transfer number {victim.number} of the log was removed" in said
        assert Transfer.objects.filter(book=book).exists()

    def test_backdated_transfer_is_reported(self, book: Book, session: Session) -> None:
        session.execute(
            "INSERT INTO billing_transfer (id, book_id, code, tenant_id, effective_at, posted_at,"
            " data, body_sha256, entry_count, seal) SELECT gen_random_uuid(), book_id, code,"
            " tenant_id, effective_at, posted_at - interval '5 hours',"
            " jsonb_build_object('name', 'planted'), body_sha256, entry_count, seal"
            " FROM billing_transfer WHERE data->>'name' = 'gift 2'"
        )
        planted = Transfer.objects.get(book=book, data__name="planted")
        (said,) = violations()
        assert f"transfer {planted.pk} was added, but is in no entry" in said
        # Nor does the check add the transfer to the log.
        assert log_new_transfers(look_at_all=True) == 1
        (said,) = violations()
        assert f"transfer {planted.pk} was added later than its date" in said
        assert not Entry.objects.filter(transfer=planted).exists()

    def test_is_found_by_hourly_scan_and_fails_readyz(self, book: Book, session: Session) -> None:
        log_new_transfers(look_at_all=True)
        assert LogScrub.objects.get(kind="transfers").faults == []
        session.execute(
            "UPDATE billing_entry SET amount = -amount WHERE transfer_id = %s",
            [Transfer.objects.get(data__name="gift 2").pk],
        )
        log_new_transfers(look_at_all=True)
        (check,) = [check for check in readiness() if check.name == "logs"]
        assert check.state is State.FAILING
        assert transparency.ledger_log(book.slug) in check.detail
        assert "altered" in check.detail
