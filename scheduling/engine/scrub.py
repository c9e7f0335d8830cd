"""Checks a few stored rounds per call, so that damage is found before a round is needed.

It compares hashes and seals, and each round with the previous one. It does not repeat decisions, as
`manage.py replay_round --all` does.
"""

from collections.abc import Iterator
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Max, Min

from scheduling.engine.clock import wall_now
from scheduling.models import Pool, Round, RoundScrub
from scheduling.selectors.rounds.following import Follower
from scheduling.selectors.rounds.states import damages_of
from scheduling.selectors.rounds.stored import (
    STATE,
    DamagedRoundError,
    kept_rounds,
    with_seals,
)
from tenants.scopes import engine_scope, site_scope

log = structlog.get_logger(__name__)

# With a round every 10 s a pool keeps 60,000 rounds, which are all checked within a day and a half.
ROUNDS_AT_ONCE = 2000
# Kinds of findings: stored bytes changed, or a round does not follow from the previous round.
DAMAGE, BREAK = "damage", "break"


def scrub_rounds(*, limit: int = ROUNDS_AT_ONCE) -> int:
    """Check the next stored rounds of every pool; after the last, start again from the first.

    Return the number of kept rounds that are known to be damaged.
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
    problems: list[dict[str, Any]] = []
    last = after
    follower = Follower()
    for row in rows.iterator(chunk_size=100):
        last = row.number
        for kind, text in _looked_at(row, follower):
            problems.append({"number": row.number, "text": text, "kind": kind})
            log.error("round.damaged", pool=pool.name, round=row.number, kind=kind, why=text)
    with transaction.atomic():
        # Another process may have added a round meanwhile.
        scrub = RoundScrub.objects.select_for_update().get(pool=pool)
        known = [row for row in scrub.damaged if row["number"] >= oldest]
        known = [row for row in known if not after < row["number"] <= last]
        scrub.damaged = sorted([*known, *problems], key=lambda row: int(row["number"]))
        scrub.number, scrub.checked_at = last, wall_now()
        scrub.save()
    return len({row["number"] for row in scrub.damaged})


def _looked_at(row: Round, follower: Follower) -> Iterator[tuple[str, str]]:
    """Yield the problems of a round, by kind.

    If the round is undamaged, also compare it with the previous one.
    """
    damages = damages_of(row)
    if damages:
        yield DAMAGE, str(DamagedRoundError(row.number, damages))
    if row.state_note:
        yield DAMAGE, note_text(row)
    if any(damage.part != STATE for damage in damages):
        follower.forget()
        return
    following = follower.look(row)
    if following.follows is False:
        why = f"does not follow from round {following.before}: {following.text}"
        yield BREAK, f"round {row.number} {why}"


def note_text(row: Round) -> str:
    """Return the message, with the reason, for a round that did not start with its stored state."""
    return f"round {row.number} did not begin as it should: {row.state_note}"


def note_round(round_: Round) -> None:
    """Record at once that a round did not start with its stored state."""
    text = note_text(round_)
    with engine_scope(round_.pool_id):
        RoundScrub.objects.get_or_create(
            pool_id=round_.pool_id, defaults={"checked_at": wall_now()}
        )
        scrub = RoundScrub.objects.select_for_update().get(pool_id=round_.pool_id)
        scrub.damaged = [*scrub.damaged, {"number": round_.number, "text": text, "kind": DAMAGE}]
        scrub.save(update_fields=["damaged"])
    log.error("round.began_otherwise", round=round_.number, why=round_.state_note)
