"""Stores the places that jobs exchanged with other jobs of their tenant, once one of them ran."""

from evenshare_core.domain.instants import from_us
from evenshare_core.policies.shared.places import places_after
from scheduling.engine.write import RoundWrite


def write_places(write: RoundWrite) -> None:
    """Store the places after the round; at most one statement.

    A job that was held or released since the snapshot has another arrival, and keeps it.
    """
    snapshot = write.plan.snapshot
    places = places_after(snapshot, write.plan.decision, write.superseded)
    if not places:
        return
    before = {job.id: job.submitted_us for job in snapshot.jobs}
    write.cursor.execute(
        """
        UPDATE scheduling_job j SET place_at = x.place
        FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[]) x(id, place, before)
        WHERE j.id = x.id AND coalesce(j.place_at, j.eligible_at, j.submitted_at) = x.before
        """,
        [
            list(places),
            [from_us(place_us) for place_us in places.values()],
            [from_us(before[job]) for job in places],
        ],
    )
