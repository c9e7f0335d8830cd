"""Checks logs again, a part at a time, and stores the faults and the progress."""

from collections.abc import Callable, Sequence

import structlog

from tenants.models import LogScrub
from tenants.scopes import site_scope
from tenants.transparency.log import DamagedLogError, log_id_of, origins, root, size, wall_now
from tenants.transparency.soundness import LogFault, entry_faults

log = structlog.get_logger(__name__)

# Enough for the logs of rounds: a pool with a round every 10 s adds 360 entries an hour.
ENTRIES_AT_ONCE = 2000
FAULTS_MAX = 100
ENTRIES = "entries"

Look = Callable[[str, int, int], Sequence[LogFault]]


def scrub_logs(*, limit: int = ENTRIES_AT_ONCE) -> int:
    """Check the next entries of every log; return the number of known faults of all logs."""
    return sum(scrub_log(origin, ENTRIES, entry_faults, limit=limit) for origin in origins())


def scrub_log(origin: str, kind: str, look: Look, *, limit: int = ENTRIES_AT_ONCE) -> int:
    """Check the next entries of one log; return the number of its known faults.

    After the last entry, the next check starts again at the first.
    """
    with site_scope():
        scrub, _ = LogScrub.objects.select_for_update().get_or_create(
            log_id=log_id_of(origin), kind=kind
        )
        there = size(origin)
        first = scrub.place if scrub.place < there else 0
        faults = list(look(origin, first, limit))
        end = min(first + limit, there)
        for fault in faults:
            log.error("log.fault", log=origin, entry=fault.place, why=fault.text)
        known = [fault for fault in scrub.faults if not first <= fault["place"] < end]
        if broken := _broken_growth(origin, scrub, there):
            faults.append(broken)
        else:
            scrub.size, scrub.root = there, root_or_nothing(origin, there)
            known = [fault for fault in known if fault["place"] < there]
        rows = {(fault["place"], fault["text"]) for fault in known} | set(faults)
        scrub.faults = [LogFault(*row)._asdict() for row in sorted(rows)[:FAULTS_MAX]]
        scrub.place = end
        scrub.checked_at = wall_now()
        scrub.save()
        return len(scrub.faults)


def faulty_logs() -> list[LogScrub]:
    """Return the checks of logs with known faults, with one query."""
    rows = LogScrub.objects.exclude(faults=[]).select_related("log")
    return list(rows.order_by("log", "kind"))


def root_or_nothing(origin: str, at: int) -> str:
    """Return the root of a log's first entries, hex; empty if hashes are missing."""
    try:
        return root(origin, at).hex()
    except DamagedLogError:
        return ""


def _broken_growth(origin: str, scrub: LogScrub, there: int) -> LogFault | None:
    """Return a fault if the log does not extend its last seen state, which then is not updated."""
    if there < scrub.size:
        return LogFault(there, f"the log ends here; it had {scrub.size} entries")
    if scrub.root and root_or_nothing(origin, scrub.size) != scrub.root:
        place = max(scrub.size - 1, 0)
        return LogFault(place, f"the first {scrub.size} entries have a different root than before")
    return None
