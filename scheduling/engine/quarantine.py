"""Finds a job that makes the policy fail, and quarantines it so that the round can go on."""

from collections.abc import Callable, Sequence

import msgspec
import structlog
from django.db import connection

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.invariants import InvariantViolation
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot

log = structlog.get_logger(__name__)

Decide = Callable[[Snapshot], Decision]


def find_faulty_job(snapshot: Snapshot, decide: Decide) -> Job | None:
    """Return a waiting job without which the policy would succeed, by bisection.

    Return None if the policy also fails without any waiting job. The search takes about 2
    log2(jobs) decisions. If several jobs are faulty, each call finds one.
    """
    held = {lease.job for lease in snapshot.leases}
    waiting = sorted((job for job in snapshot.jobs if job.id not in held), key=arrival_order)
    if not waiting or _fails(snapshot, [], decide):
        return None
    suspects: Sequence[Job] = waiting
    while len(suspects) > 1:
        half = len(suspects) // 2
        older, newer = suspects[:half], suspects[half:]
        if _fails(snapshot, older, decide):
            suspects = older
        elif _fails(snapshot, newer, decide):
            suspects = newer
        else:
            # The policy fails only with several of these jobs together: quarantine the newest.
            return suspects[-1]
    return suspects[0]


def quarantine_job(job: int, why: str) -> None:
    """Exclude a job from all rounds until an operator releases it, and store the reason.

    If it holds a lease, the caller revokes it (`scheduling.engine.revoke`).
    """
    why = why.replace("\x00", "")[:400]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE scheduling_job SET quarantine = %s, reason_code = %s, version = version + 1"
            " WHERE id = %s AND state IN ('pending', 'running', 'stopping')",
            [why, Reason.QUARANTINED.value, job],
        )
    log.error("job.quarantined", job=job, why=why)


def _fails(snapshot: Snapshot, waiting: Sequence[Job], decide: Decide) -> bool:
    held = {lease.job for lease in snapshot.leases}
    kept = {job.id for job in waiting} | held
    jobs = tuple(job for job in snapshot.jobs if job.id in kept)
    try:
        decide(msgspec.structs.replace(snapshot, jobs=jobs))
    except InvariantViolation:
        return False  # No job is to blame for a policy that breaks an invariant.
    except Exception:  # noqa: BLE001 - whatever it raises is what is looked for
        return True
    return False
