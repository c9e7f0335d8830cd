"""Write logs with records of a pool's rounds, for tests of programs that read them."""

from __future__ import annotations

import hashlib

from evenshare_core.chain.records import SCHEMA, RoundRecord, record_bytes
from evenshare_core.domain.instants import to_us
from scheduling.models import Pool, Round
from tenants import transparency


def log_rounds(pool: Pool) -> str:
    """Append a record for each round that has none yet; return the log's origin."""
    origin = transparency.round_log(pool.name)
    rounds = Round.objects.filter(pool=pool).order_by("number")
    with transparency.locked_log(origin) as locked:
        previous, place = locked.last, locked.size
        for row in rounds[place:]:
            digest = hashlib.sha256(row.snapshot_sha256.encode()).hexdigest()
            record = RoundRecord(
                SCHEMA, origin, row.number, to_us(row.at), previous, digest, (digest,)
            )
            data = record_bytes(record)
            place = transparency.append(origin, [data], place)
            previous = hashlib.sha256(b"\0" + data).hexdigest()
    return origin
