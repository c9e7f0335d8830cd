"""What rounds answered to a job with a deadline, as the API tells it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from evenshare_core.domain.deadlines import DeadlineLimit, DeadlineState
from evenshare_core.units import ONE_MILLI, REWARD_MICRO
from scheduling.api.base import SchedulingView
from scheduling.engine.clock import read_clock
from scheduling.models import Job
from scheduling.selectors.answers import (
    AnswerView,
    DeadlineStanding,
    DeadlineStory,
    read_deadline_story,
    read_standings,
)
from scheduling.services.deadline_preview import DeadlinePreview
from tenants.api.times import time_text
from tenants.scopes import tenant_scope

POINTS = r"^[0-9]+\.[0-9]{6}$"


class PlannedLeaseRow(s.Serializer[object]):
    """A stretch of leases without gaps."""

    starts_at = s.DateTimeField()
    ends_at = s.DateTimeField()


class GivenAnswer(s.Serializer[object]):
    """What a round said; times are pool time. A plan binds nobody: each round makes it anew.

    Of one that is refused, `limit` is what is in the way, `blocked` the leases that had no room,
    and `earliest` the earliest deadline that would do; null: none is known.
    """

    state = s.ChoiceField(list(DeadlineState))
    round = s.IntegerField()
    at = s.DateTimeField()
    by = s.DateTimeField(allow_null=True, help_text="The step that the plan meets.")
    points = s.RegexField(POINTS)
    gpu_type = s.CharField(allow_blank=True)
    gpus = s.IntegerField()
    one_node = s.BooleanField()
    leases = PlannedLeaseRow(many=True)
    chance = s.FloatField(
        allow_null=True, help_text="Of an end by then, 0 to 1; null: nobody knows."
    )
    limit = s.ChoiceField(["", *DeadlineLimit])
    blocked = PlannedLeaseRow(many=True)
    earliest = s.DateTimeField(allow_null=True)
    cause = s.CharField(allow_blank=True, help_text="What moved the plan given before.")
    moved_s = s.FloatField(
        allow_null=True, help_text="By how much later it ends than the plan before; null: unknown."
    )


class DeadlineRow(s.Serializer[object]):
    """How a job stands to its deadline.

    `by` and `points`: the step that it met, has to meet, or missed last; `spare_s`: of one that
    met, by how much. `answer`: what was said last; null: nothing.
    """

    standing = s.ChoiceField(list(DeadlineStanding))
    by = s.DateTimeField()
    points = s.RegexField(POINTS)
    spare_s = s.FloatField(allow_null=True)
    answer = GivenAnswer(allow_null=True)


class DeadlineHistory(s.Serializer[object]):
    """The same with what rounds said before, newest first; `cut`: there is more than is listed."""

    standing = s.ChoiceField(list(DeadlineStanding))
    by = s.DateTimeField()
    points = s.RegexField(POINTS)
    spare_s = s.FloatField(allow_null=True)
    answer = GivenAnswer(allow_null=True)
    answers = GivenAnswer(many=True)
    cut = s.BooleanField()


class PreviewRow(s.Serializer[object]):
    """What round `round` would answer, if nothing else changes. `text`: why nothing is known."""

    round = s.IntegerField(allow_null=True)
    answer = GivenAnswer(allow_null=True)
    text = s.CharField(allow_blank=True)


class DeadlineHistoryAnswer(s.Serializer[object]):
    """Null: the job has no deadline."""

    deadline_answer = DeadlineHistory(allow_null=True)


def deadline_answers_json(
    jobs: Iterable[Job], at: dict[int, datetime]
) -> dict[int, dict[str, Any]]:
    """Return how jobs stand to their deadlines, by job id; none for those that have none."""
    stories = read_standings(jobs, at)
    return {pk: deadline_json(story) for pk, story in stories.items()}


def deadline_json(story: DeadlineStory) -> dict[str, Any]:
    """Return how one job stands."""
    return {
        "standing": story.standing.value,
        "by": time_text(story.by),
        "points": _points(story.reward_micro),
        "spare_s": None if story.spare is None else story.spare.total_seconds(),
        "answer": None if story.last is None else answer_json(story.last),
    }


def preview_json(preview: DeadlinePreview | None) -> dict[str, Any] | None:
    """Return what a dry run says of a deadline."""
    if preview is None:
        return None
    view = preview.answer
    return {
        "round": preview.number or None,
        "answer": None if view is None else answer_json(view),
        "text": preview.text,
    }


def answer_json(view: AnswerView) -> dict[str, Any]:
    return {
        "state": view.state.value,
        "round": view.round,
        "at": time_text(view.at),
        "by": time_text(view.by),
        "points": _points(view.reward_micro),
        "gpu_type": view.gpu_type,
        "gpus": view.gpus,
        "one_node": view.one_node,
        "leases": _leases(view.leases),
        "chance": None if view.chance_milli is None else view.chance_milli / ONE_MILLI,
        "limit": view.limit,
        "blocked": _leases(view.blocked),
        "earliest": time_text(view.earliest),
        "cause": view.cause,
        "moved_s": None if view.moved is None else view.moved.total_seconds(),
    }


def _points(reward_micro: int) -> str:
    return f"{reward_micro // REWARD_MICRO}.{reward_micro % REWARD_MICRO:06d}"


def _leases(leases: Iterable[tuple[datetime, datetime]]) -> list[dict[str, Any]]:
    return [{"starts_at": time_text(start), "ends_at": time_text(end)} for start, end in leases]


class JobDeadline(SchedulingView):
    """What rounds answered to a job's deadline."""

    scopes: ClassVar[dict[str, str]] = {"GET": "jobs:read"}

    @extend_schema(operation_id="job_deadline", responses={200: DeadlineHistoryAnswer})
    def get(self, request: Request, uid: UUID) -> Response:  # noqa: ARG002 - DRF's signature
        """Say how a job stands to its deadline, and all that rounds answered, newest first."""
        job = self.job(uid)
        with tenant_scope(job.tenant_id):
            story = read_deadline_story(job, at=read_clock(job.pool_id).pool_at)
        if story is None:
            return Response({"deadline_answer": None})
        answers = [answer_json(view) for view in story.answers]
        history = {**deadline_json(story), "answers": answers, "cut": story.cut}
        return Response({"deadline_answer": history})
