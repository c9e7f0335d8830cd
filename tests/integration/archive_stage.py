"""Provide a pool whose rounds are old enough for their day to be archived."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection

from scheduling.engine.archive import archive_next, archive_rounds, drop_day, old_days
from scheduling.engine.retention import KEEP_DAYS_LEAST, drop_files
from scheduling.models import Pool, Round, RoundArchive, RoundBlob, RoundBundle
from tests.factories import Cluster, cluster

LONG_AGO = datetime(2020, 5, 4, 10, tzinfo=UTC)
DAY = date(2020, 5, 4)


def files_in(settings: Any, folder: Path) -> Path:
    """Store archive files of rounds in a folder."""
    where = folder / "rounds"
    settings.STORAGES = {
        **settings.STORAGES,
        "rounds": {
            "BACKEND": "scheduling.selectors.rounds.files.RoundFolder",
            "OPTIONS": {"location": str(where)},
        },
    }
    return where


def old_lab(rounds: int = 4, **fields: Any) -> Cluster:
    """Return a pool with sealed rounds of an old day; the newest is of the day after."""
    lab = cluster({"a": 4, "b": 4}, lease_s=20, begin=LONG_AGO, **fields)
    lab.submit("a", 2, 1000)
    lab.submit("b", 8, 1000)
    lab.rounds(rounds, every_s=10)
    lab.round(after_s=24 * 3600)
    lab.seal()
    return lab


def stored(pool: Pool) -> dict[int, tuple[bytes, bytes, bytes]]:
    """Return snapshot, decision and bundle of each round in the database."""
    bundles = {row.number: bytes(row.data) for row in RoundBundle.objects.filter(pool=pool)}
    return {
        row.number: (bytes(row.snapshot), bytes(row.decision), bundles.get(row.number, b""))
        for row in RoundBlob.objects.filter(pool=pool)
    }


def put_away() -> None:
    """Archive all old days, without a time limit."""
    while archive_rounds(seconds=60).days:
        pass


def step_by_step() -> None:
    """Archive all old days step by step; errors are raised."""
    for day in old_days():
        for pool in Pool.objects.order_by("pk"):
            while archive_next(pool, day):
                pass
        drop_day(day)


def keep_files(pool: Pool) -> None:
    """Archive all old days, and drop the first day's rounds as if no bill cited them."""
    step_by_step()
    file = RoundArchive.objects.filter(pool=pool).order_by("first").first()
    if file is not None:
        drop_files(pool.pk, cited_from=file.last + 1, keep_days=KEEP_DAYS_LEAST)


def only_file(pool: Pool, day: date = DAY) -> RoundArchive:
    return RoundArchive.objects.get(pool=pool, day=day)


def round_of(pool: Pool, number: int) -> Round:
    return Round.objects.select_related("pool").get(pool=pool, number=number)


def days_ago(days: int) -> date:
    return datetime.now(UTC).date() - timedelta(days=days)


def make_old(owner: psycopg.Connection[Any], pool: Pool, day: date = DAY) -> None:
    """Move all stored rounds of a pool to an old day."""
    with connection.cursor() as cursor:
        for kind in ("blob", "bundle", "state"):
            cursor.execute(f"SELECT evenshare_make_{kind}_day(%s)", [day])
    owner.execute("SET session_replication_role = replica")
    for kind in ("blob", "bundle", "state"):
        owner.execute(
            f"UPDATE scheduling_round{kind} SET day = %s"  # noqa: S608 - a constant
            " WHERE pool_id = %s AND number > 0",
            [day, pool.pk],
        )
