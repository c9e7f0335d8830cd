"""Deletes finished intents, which are kept for a limited time.

`scheduling.engine.archive` moves the bytes of rounds to files.
"""

import structlog
from django.db import connection

from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

KEEP_INTENTS = "1 day"


def drop_old_rows() -> int:
    """Delete old intents; return how many.

    Records, hashes, summaries, shares and prices of rounds are never deleted.
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
