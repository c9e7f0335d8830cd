"""The reason why one job waits, from the stored bytes of a round; pages and the API use it."""

from evenshare_core.policies.job_reasons import OwnReason, reason_of
from scheduling.models import Round
from scheduling.selectors.rounds.stored import ReplayError, round_values


def read_reason(round_: Round, job_id: int) -> OwnReason | None:
    """Return why the round left a job waiting, with this job's numbers.

    Return None if the round has no reason for it, or if the round's bytes are gone or damaged.
    """
    try:
        snapshot, decision = round_values(round_)
    except ReplayError:
        return None
    return reason_of(snapshot, decision, job_id)
