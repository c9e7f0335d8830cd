"""Shapes of requests and answers, for the schema. Views write plain dictionaries.

A test compares every answer with its shape here, so neither can change alone.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers as s

from scheduling.models import Job
from scheduling.requests.jobs import JobRequest
from scheduling.selectors.deadlines.answers import DeadlineRow
from scheduling.selectors.deadlines.plans import PlanRow
from scheduling.selectors.jobs.estimates import EstimateView
from scheduling.selectors.jobs.lists import LeaseNow
from scheduling.selectors.jobs.phases import PHASE_SYNONYMS, PHASES
from scheduling.selectors.jobs.preemptions import PreemptionRow
from scheduling.selectors.jobs.requests import shown_fields
from scheduling.selectors.jobs.start_estimates import StartView
from scheduling.selectors.jobs.stop_forecasts import StopView
from scheduling.selectors.speeds.measurements import SpeedCompared
from scheduling.services.deadline_preview import DeadlinePreview
from tenants.answers import Answer, about, one_of
from tenants.api.answer_schemas import answer_serializer
from tenants.api.request_schemas import answer_fields, request_serializer
from tenants.api.resources import query

CREDITS = r"^-?[0-9]+\.[0-9]{6}$"


IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="At most 255 characters. The same key finds the same job, for seven days.",
)
IDEMPOTENT_REPLAYED = OpenApiParameter(
    "Idempotent-Replayed",
    OpenApiTypes.BOOL,
    OpenApiParameter.HEADER,
    description="Only where an earlier request with this key did the work: `true`.",
    response=[201],
)
ONCE = (IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED)
TENANT = query("tenant", "The slug of one of your tenants.")
POOL = query("pool", "The name of a pool.")
SINCE = query("since", "The first instant, RFC 3339, of the pool's clock.")
UNTIL = query("until", "The instant after the last one.")
STATE = OpenApiParameter(
    "state",
    OpenApiTypes.STR,
    OpenApiParameter.QUERY,
    enum=[*PHASES, *PHASE_SYNONYMS],
    description="In any letter case. `running` has those that start too; `phase` tells them apart.",
)
PHASE = OpenApiParameter(
    "phase",
    OpenApiTypes.STR,
    OpenApiParameter.QUERY,
    enum=[*PHASES, *PHASE_SYNONYMS],
    description="As `state`, with those that start apart from those that run.",
)
LOG_QUERY = [
    query("lease", "The number of a lease; the last one unless told.", OpenApiTypes.INT),
    query("offset", "Bytes from the start, or below 0 from the end.", OpenApiTypes.INT),
    query("limit", "Bytes at most, 1 to 262144.", OpenApiTypes.INT),
]


class Credits(s.RegexField):
    """An amount of credits as text with six places."""

    def __init__(self, **options: object) -> None:
        super().__init__(CREDITS, **options)  # type: ignore[arg-type]  # passed through unchanged


JobRequestBody = request_serializer(JobRequest)


class Bulk(s.Serializer[object]):
    """Many jobs of one tenant."""

    jobs = JobRequestBody(many=True)


class QueuePlace(s.Serializer[object]):
    """Where a queued job stands in the order of a round, as in the pool's queue."""

    round = s.IntegerField(allow_null=True)
    position = s.IntegerField(allow_null=True, help_text="From 1; null: in no order yet, or none.")
    tenant_position = s.IntegerField(allow_null=True, help_text="Among your tenant's jobs.")
    order = s.CharField(help_text="Who goes first, or why nobody has a position.")
    start = answer_serializer(StartView)(
        allow_null=True, help_text="Null: no estimate was made yet."
    )


class JobRow(s.Serializer[object]):
    """One job. Times are pool time."""

    id = s.UUIDField()
    name = s.CharField()
    tenant = s.CharField()
    pool = s.CharField()
    state = s.ChoiceField(list(Job.State.values))
    phase = s.ChoiceField(
        list(PHASES),
        help_text="The state, but `starting` of one that is `running`, for it holds GPUs, and"
        " whose program has not begun.",
    )
    gpus = s.IntegerField()
    gpu_types = s.ListField(child=s.CharField())
    profile = s.CharField(allow_null=True)
    submitted_at = s.DateTimeField()
    started_at = s.DateTimeField(allow_null=True)
    ended_at = s.DateTimeField(allow_null=True)
    exit_code = s.IntegerField(allow_null=True)
    reason_code = s.CharField(allow_blank=True)
    queue = QueuePlace(allow_null=True, help_text="Null: not queued, or in no round yet.")
    estimate = answer_serializer(EstimateView)(
        allow_null=True, help_text="Null: nobody knows, or it is over, or was made just now."
    )
    stop_estimate = answer_serializer(StopView)(
        allow_null=True,
        help_text="Null: it stops by no metric, or is over, or nothing was reported of it yet.",
    )
    losses = s.IntegerField(help_text="Losses of its process in a row, each soon after its start.")
    profiling_s = s.IntegerField(
        help_text="Of a profiling run: after so many seconds on GPUs it ends; 0: it is none."
    )
    backoff_until = s.DateTimeField(allow_null=True)
    lease = answer_serializer(LeaseNow)(allow_null=True)
    progress = s.DictField(child=s.JSONField(), allow_null=True)
    charge = Credits()
    url = s.CharField()
    deadline_answer = answer_serializer(DeadlineRow)(
        allow_null=True, help_text="Null: it has no deadline, or was just submitted."
    )
    deadline_left_s = s.IntegerField(
        allow_null=True, help_text="Pool time; below 0: it is over. Null: none, or it has ended."
    )

    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        """Return these and what a request says that is shown again."""
        return {**super().get_fields(), **answer_fields(shown_fields())}


class BulkMade(s.Serializer[object]):
    """Jobs in the order in which they were asked for."""

    results = JobRow(many=True)


_PREEMPTED = {
    "preempted": "leases",
    "preempted_own": "own_leases",
    "preempted_tenants": "other_tenants",
}


class PreemptedForIt(Answer, frozen=True, rename=_PREEMPTED):
    """Leases that would end early for the job; `own_leases` are of its own tenant."""

    preempted: int
    preempted_own: int
    preempted_tenants: int
    moved: Annotated[int, about("Leases that would go on on other nodes.")]
    notice_s: Annotated[int, about("How long they have to stop, at most.")]


class EtaBand(Answer, frozen=True, rename={"eta_reason": "reason"}):
    """When it is expected to start, in pool time. Without a p50 `reason` says why."""

    p50: datetime | None
    p90: datetime | None
    eta_reason: str


class NextRoundRow(Answer, frozen=True, rename={"number": "round", "text": "words"}):
    """What the next round would do with the job, if nothing else changes."""

    number: int
    at: datetime
    starts: bool
    reason_code: Annotated[str, about("Why it would not start.")]
    preempted: PreemptedForIt
    eta: EtaBand
    text: str


class DryRunAnswer(Answer, frozen=True):
    """Whether a job could run, and what a borrowed GPU-hour costs.

    `price`: credits as posted now. `price_after`: from its first renewal on, with its own GPUs in
    use, if nothing else changes.
    """

    feasible: bool
    reason_code: str
    detail: str
    price: Decimal
    price_after: Decimal
    own: int
    borrowed: int
    currency: str
    note: str
    deadline_answer: Annotated[
        DeadlinePreview | None,
        about("What the next round would answer; null: without a deadline."),
    ]
    next_round: Annotated[
        NextRoundRow | None,
        about("Null: it was not decided, as of a job that is not feasible."),
    ]


class JobReason(Answer, frozen=True, kw_only=True, rename={"text": "words"}):
    """Why a job is where it is, as of a round."""

    state: Annotated[str, one_of(*Job.State.values)]
    phase: Annotated[str, one_of(*PHASES)]
    reason_code: str = ""
    text: str
    next_step: str
    numbers: dict[str, Any]
    round: int | None = None
    as_of: datetime | None
    overclaims: Annotated[
        tuple[SpeedCompared, ...],
        about("Where its job type was declared faster than it was measured."),
    ]
    deadline_answer: Annotated[DeadlineRow | None, about("Null: it has no deadline.")]
    plan: Annotated[PlanRow | None, about("Null: no plan decides about it now.")]
    preempted: Annotated[
        PreemptionRow | None, about("The last time it lost GPUs before its lease expired.")
    ]
    made_way: Annotated[
        tuple[PreemptionRow, ...],
        about("Leases that ended before they expired for this job, oldest first."),
    ]
