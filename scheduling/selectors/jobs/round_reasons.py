"""Why one job waits, by the stored bytes of a round: the one place that pages and the API ask."""

from __future__ import annotations

from evenshare_core.policies.job_reasons import OwnReason, reason_of
from scheduling.models import Round
from scheduling.selectors.rounds.stored import ReplayError, round_values


def read_reason(round_: Round, job_id: int) -> OwnReason | None:
    """Return why the round left a job waiting, with the numbers of this job.

    None if the round does not say so, or if its bytes are gone or damaged.
    """
    try:
        snapshot, decision = round_values(round_)
    except ReplayError:
        return None
    return reason_of(snapshot, decision, job_id)
