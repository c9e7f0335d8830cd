"""Drops what is kept for a limited time: bytes and bundles of old rounds, intents carried out."""

from __future__ import annotations

import structlog
from django.db import connection

from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

KEEP_BLOB_DAYS = 7
KEEP_INTENTS = "1 day"


def drop_old_rows() -> tuple[int, int]:
    """Drop old day partitions of round bytes and bundles, and old intents: (days, intents).

    Records, hashes, summaries, shares and prices of rounds stay for ever; money is never dropped.
    """
    with site_scope(), connection.cursor() as cursor:
        cursor.execute("SELECT evenshare_drop_blob_days(%s)", [KEEP_BLOB_DAYS])
        days = int(cursor.fetchone()[0])
        cursor.execute("SELECT evenshare_drop_state_days(%s)", [KEEP_BLOB_DAYS])
        cursor.execute(
            """
            DELETE FROM scheduling_intent WHERE state = 'done' AND lease_id IN (
                SELECT lease_id FROM scheduling_leaseevent
                WHERE kind = 'ended' AND posted_at < clock_timestamp() - %s::interval)
            """,
            [KEEP_INTENTS],
        )
        intents = cursor.rowcount
    log.info("housekeeping.done", days=days, intents=intents)
    return days, intents
