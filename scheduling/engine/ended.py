"""Records the GPU-time that ended jobs received and deserved (`evenshare_core.fairness.ended`)."""

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.fairness.ended import ended_jobs
from scheduling.engine.write import RoundWrite


def write_ended(write: RoundWrite) -> None:
    """Store the GPU-time of jobs that ended since the last round; at most one statement.

    The sums of later rounds do not contain these jobs, and the round's bytes are kept for a limited
    time.
    """
    snapshot = write.plan.snapshot
    ended = ended_jobs(snapshot.service, snapshot.changes, capacity_by_type(snapshot.nodes))
    if not ended:
        return
    write.cursor.execute(
        """
        UPDATE scheduling_job j
        -- A job that was held counts the time before the hold, too.
        SET received_gpu_us = coalesce(j.received_gpu_us, 0) + x.received,
            deserved_gpu_us = coalesce(j.deserved_gpu_us, 0) + x.deserved
        FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) x(id, received, deserved)
        WHERE j.id = x.id
        """,
        [
            list(ended),
            [row.received_gpu_us for row in ended.values()],
            [row.deserved_gpu_us for row in ended.values()],
        ],
    )
