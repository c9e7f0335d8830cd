"""Drops what is kept for a limited time: intents that were carried out.

Bytes of rounds are moved to files by `scheduling.engine.archive`.
"""

from __future__ import annotations

import structlog
from django.db import connection

from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

KEEP_INTENTS = "1 day"


def drop_old_rows() -> int:
    """Drop old intents; return how many.

    Records, hashes, summaries, shares and prices of rounds stay for ever; money is never dropped.
    """
    with site_scope(), connection.cursor() as cursor:
        cursor.execute(
            """
            DELETE FROM scheduling_intent WHERE state = 'done' AND lease_id IN (
                SELECT lease_id FROM scheduling_leaseevent
                WHERE kind = 'ended' AND posted_at < clock_timestamp() - %s::interval)
            """,
            [KEEP_INTENTS],
        )
        intents: int = cursor.rowcount
    log.info("housekeeping.done", intents=intents)
    return intents
