"""Looks at stored rounds again, a part at a time: what is damaged is known before it is asked for.

Hashes and seals alone are compared; `manage.py replay_round --all` decides rounds again.
"""

from __future__ import annotations

from typing import Any

import structlog
from django.db.models import Max, Min

from scheduling.engine.clock import wall_now
from scheduling.models import Pool, Round, RoundScrub
from scheduling.selectors.stored_rounds import damage_text, kept_rounds, with_seals
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

# A pool with a round every 10 s keeps 60,000: all are looked at within a day and a half.
ROUNDS_AT_ONCE = 2000


def scrub_rounds(*, limit: int = ROUNDS_AT_ONCE) -> int:
    """Look at the next stored rounds of every pool, from the first again after the last.

    Returns how many of all that are kept are known to be damaged.
    """
    with site_scope():
        return sum(_scrub(pool, limit) for pool in Pool.objects.order_by("id"))


def _scrub(pool: Pool, limit: int) -> int:
    scrub, _ = RoundScrub.objects.get_or_create(pool=pool, defaults={"checked_at": wall_now()})
    kept = kept_rounds(with_seals(Round.objects.filter(pool=pool))).order_by("number")
    ends = kept.aggregate(oldest=Min("number"), newest=Max("number"))
    oldest, newest = ends["oldest"] or 0, ends["newest"] or 0
    after = scrub.number if scrub.number < newest else 0
    rows = kept.defer("summary", "shares", "certificate").filter(number__gt=after)[:limit]
    damaged: list[dict[str, Any]] = []
    last = after
    for row in rows.iterator(chunk_size=100):
        last = row.number
        if text := damage_text(row):
            damaged.append({"number": row.number, "text": text})
            log.error("round.damaged", pool=pool.name, round=row.number, why=text)
    known = [row for row in scrub.damaged if row["number"] >= oldest]
    known = [row for row in known if not after < row["number"] <= last]
    scrub.damaged = sorted([*known, *damaged], key=lambda row: int(row["number"]))
    scrub.number, scrub.checked_at = last, wall_now()
    scrub.save()
    return len(scrub.damaged)
