"""A preview of the next round's answer to a job with a deadline; nothing is stored."""

from typing import Annotated

from django.utils.translation import gettext as _

from evenshare_core.domain.instants import from_us
from evenshare_core.policies import registry
from scheduling.engine.clock import PoolNow
from scheduling.requests.jobs import JobRequest
from scheduling.selectors.deadlines.answers import AnswerView, view_of
from scheduling.selectors.deadlines.texts import unanswered_text
from scheduling.selectors.pools.offers import PoolOffer
from scheduling.services.asked_round import AskedRound, ask_round
from tenants.answers import Answer, formatted_as
from tenants.models import User


def _or_null(number: int) -> int | None:
    return number or None


class DeadlinePreview(Answer, frozen=True, rename={"number": "round"}):
    """The answer of round `round` to the job, if nothing else changes.

    `text` explains why there is no answer.
    """

    COMPONENT = "PreviewRow"

    number: Annotated[int, formatted_as(_or_null, nullable=True)] = 0
    answer: AnswerView | None = None
    text: str = ""


def preview_deadline(
    *,
    tenant_id: int,
    request: JobRequest,
    offer: PoolOffer,
    now: PoolNow,
    user: User | None = None,
    asked: AskedRound | None = None,
) -> DeadlinePreview:
    """Return the next round's answer to a job that is submitted now.

    Only the job's own answer is returned; it reveals other jobs only in the limits that it names.
    Nothing is written. `asked`: the round, if it is decided already.

    Raises:
        RuntimeError: it is called inside a transaction.
    """
    if offer.policy not in registry.POLICIES or not registry.traits(offer.policy).answers_deadlines:
        return DeadlinePreview(text=unanswered_text(offer.policy))
    if asked is None:
        asked = ask_round(tenant_id=tenant_id, user=user, request=request, offer=offer, now=now)
    if asked.decision is None or asked.job is None:
        return DeadlinePreview(asked.number, text=asked.text)
    answers = {answer.job: answer for answer in asked.decision.answers}
    if asked.job.id not in answers:
        return DeadlinePreview(
            asked.number, text=_("The next round would not answer this deadline yet.")
        )
    at = from_us(asked.snapshot.at_us)
    return DeadlinePreview(asked.number, view_of(answers[asked.job.id], number=asked.number, at=at))
