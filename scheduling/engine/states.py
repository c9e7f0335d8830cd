"""Stores the state that a round leaves for the next one, in the database partition of its day."""

import zlib
from datetime import date

from django.db import connection

from scheduling.models import RoundState
from scheduling.selectors.rounds.states import LeftState


def keep_state(pool_id: int, left: LeftState, day: date) -> None:
    """Insert the state that a round leaves, if any, in the running transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT evenshare_make_state_day(%s)", [day])
    RoundState.objects.bulk_create(
        [
            RoundState(
                day=day,
                pool_id=pool_id,
                number=left.number,
                at=left.at,
                policy=left.policy,
                policy_version=left.policy_version,
                service=zlib.compress(left.service, 1),
                memory=zlib.compress(left.memory, 1),
                prices=left.prices,
                entitled=left.entitled,
            )
        ]
    )
