"""Shapes of requests and answers, for the schema. Views write plain dictionaries.

A test compares every answer with its shape here, so neither can change alone.
"""

from __future__ import annotations

from typing import Any

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
from scheduling.selectors.jobs.refs import JobRef
from scheduling.selectors.jobs.requests import shown_fields
from scheduling.selectors.jobs.start_estimates import StartView
from scheduling.selectors.jobs.stop_forecasts import StopView
from scheduling.selectors.speeds.measurements import SpeedCompared
from scheduling.selectors.visibility import VisibleTenant
from scheduling.services.deadline_preview import DeadlinePreview
from tenants.api.answer_schemas import answer_serializer
from tenants.api.request_schemas import answer_fields, request_serializer
from tenants.api.resources import PAGE, query

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
POOL_QUERY = [POOL, *PAGE]
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


class PreemptedForIt(s.Serializer[object]):
    """Leases that would end early for the job; `own_leases` are of its own tenant."""

    leases = s.IntegerField()
    own_leases = s.IntegerField()
    other_tenants = s.IntegerField()
    moved = s.IntegerField(help_text="Leases that would go on on other nodes.")
    notice_s = s.IntegerField(help_text="How long they have to stop, at most.")


class EtaBand(s.Serializer[object]):
    """When it is expected to start, in pool time. Without a p50 `reason` says why."""

    p50 = s.DateTimeField(allow_null=True)
    p90 = s.DateTimeField(allow_null=True)
    reason = s.CharField(allow_blank=True)


class NextRoundRow(s.Serializer[object]):
    """What the next round would do with the job, if nothing else changes."""

    round = s.IntegerField()
    at = s.DateTimeField()
    starts = s.BooleanField()
    reason_code = s.CharField(allow_blank=True, help_text="Why it would not start.")
    preempted = PreemptedForIt()
    eta = EtaBand()
    words = s.CharField()


class DryRunAnswer(s.Serializer[object]):
    """Whether a job could run, and what a borrowed GPU-hour costs.

    `price`: credits as posted now. `price_after`: from its first renewal on, with its own GPUs in
    use, if nothing else changes.
    """

    feasible = s.BooleanField()
    reason_code = s.CharField(allow_blank=True)
    detail = s.CharField(allow_blank=True)
    price = Credits()
    price_after = Credits()
    own = s.IntegerField()
    borrowed = s.IntegerField()
    currency = s.CharField()
    note = s.CharField()
    deadline_answer = answer_serializer(DeadlinePreview)(
        allow_null=True, help_text="What the next round would answer; null: without a deadline."
    )
    next_round = NextRoundRow(
        allow_null=True, help_text="Null: it was not decided, as of a job that is not feasible."
    )


TenantRef = answer_serializer(VisibleTenant)


JobRefRow = answer_serializer(JobRef)
PREEMPTION = answer_serializer(PreemptionRow)


class JobReason(s.Serializer[object]):
    """Why a job is where it is, as of a round."""

    state = s.ChoiceField(list(Job.State.values))
    phase = s.ChoiceField(list(PHASES))
    reason_code = s.CharField(allow_blank=True)
    words = s.CharField()
    next_step = s.CharField(allow_blank=True)
    numbers = s.DictField(child=s.JSONField())
    round = s.IntegerField(allow_null=True)
    as_of = s.DateTimeField(allow_null=True)
    preempted = PREEMPTION(
        allow_null=True, help_text="The last time it lost GPUs before its lease expired."
    )
    deadline_answer = answer_serializer(DeadlineRow)(
        allow_null=True, help_text="Null: it has no deadline."
    )
    plan = answer_serializer(PlanRow)(
        allow_null=True, help_text="Null: no plan decides about it now."
    )
    overclaims = answer_serializer(SpeedCompared)(
        many=True, help_text="Where its job type was declared faster than it was measured."
    )
    made_way = PREEMPTION(
        many=True, help_text="Leases that ended before they expired for this job, oldest first."
    )


class QueueRow(s.Serializer[object]):
    """A waiting job; id, name and reason of others' jobs are null."""

    position = s.IntegerField(allow_null=True, help_text="From 1; null: in no order yet, or none.")
    tenant_position = s.IntegerField(allow_null=True, help_text="Among your tenant's jobs.")
    tenant = TenantRef(allow_null=True)
    id = s.UUIDField(allow_null=True)
    name = s.CharField(allow_null=True)
    reason_code = s.CharField(allow_null=True, allow_blank=True)
    gpus = s.IntegerField()
    submitted_at = s.DateTimeField()


class QueuePage(s.Serializer[object]):
    """A page of a queue: the order of round `round`, by the policy's rule `order`."""

    round = s.IntegerField(allow_null=True)
    order = s.CharField()
    results = QueueRow(many=True)
    next = s.CharField(allow_null=True)
