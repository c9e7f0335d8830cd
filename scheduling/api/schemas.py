"""Serializers of requests and answers for the OpenAPI schema. Views return plain dictionaries.

A test compares every answer with its serializer here, so both change together.
"""

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers as s

from scheduling.api import render
from scheduling.requests.job_filters import SORTS
from scheduling.requests.jobs import JobRequest
from scheduling.requests.sweeps import SweepRequest
from scheduling.selectors.jobs.phases import PHASE_SYNONYMS, PHASES
from scheduling.selectors.jobs.requests import shown_fields
from tenants.api.answer_schemas import answer_serializer
from tenants.api.request_schemas import answer_fields, request_serializer
from tenants.api.resources import query

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="At most 255 characters. For seven days, the same key returns the same job.",
)
IDEMPOTENT_REPLAYED = OpenApiParameter(
    "Idempotent-Replayed",
    OpenApiTypes.BOOL,
    OpenApiParameter.HEADER,
    description="`true` if an earlier request with this key created the job; else absent.",
    response=[201],
)
ONCE = (IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED)
TENANT = query("tenant", "The slug of one of your tenants.")
POOL = query("pool", "The name of a pool.")
SINCE = query("since", "Start, RFC 3339, pool time.")
UNTIL = query("until", "End (exclusive), RFC 3339, pool time.")
# The filters of job lists, with the names that the page's URL has.
FILTERS = (
    query("q", "A part of the name, in any letter case."),
    query("submitter", "A login name, or `me`."),
    query("since", "First day or time of the submission, pool time, such as 2026-12-01."),
    query("until", "Last day (inclusive), or time (exclusive), of the submission."),
    query("exit_code", "The exit code.", OpenApiTypes.INT),
    query("tag", "Tags that a job must have, separated by commas."),
    query(
        "sort",
        "Order of the list. `gpu_hours`, `queue_time` and `ended` list only ended jobs, the largest"
        " value first, of the newest 10,000 that match.",
        enum=list(SORTS),
    ),
)
STATE = OpenApiParameter(
    "state",
    OpenApiTypes.STR,
    OpenApiParameter.QUERY,
    enum=[*PHASES, *PHASE_SYNONYMS],
    description="Case-insensitive. `running` includes starting jobs; `phase` distinguishes them.",
)
PHASE = OpenApiParameter(
    "phase",
    OpenApiTypes.STR,
    OpenApiParameter.QUERY,
    enum=[*PHASES, *PHASE_SYNONYMS],
    description="Like `state`, but distinguishes starting from running jobs.",
)
LOG_QUERY = [
    query("lease", "The number of a lease; by default the last.", OpenApiTypes.INT),
    query("offset", "Bytes from the start; negative: from the end.", OpenApiTypes.INT),
    query("limit", "Maximum number of bytes, 1 to 262144.", OpenApiTypes.INT),
]


_YAML = s.CharField(
    required=False,
    help_text=(
        "The specification as YAML, as the submit page copies it; then no other field is"
        " required. Fields next to it override its fields."
    ),
)
JobRequestBody = request_serializer(JobRequest)
JobSubmission = type(
    "JobSubmission", (JobRequestBody,), {"__doc__": JobRequest.__doc__, "yaml": _YAML}
)
SweepSubmission = type(
    "SweepSubmission",
    (request_serializer(SweepRequest),),
    {"__doc__": SweepRequest.__doc__, "yaml": _YAML},
)


class Bulk(s.Serializer[object]):
    """Jobs of one tenant."""

    jobs = JobRequestBody(many=True)


JobRow = type(
    "JobRow",
    (answer_serializer(render.JobRow),),
    {"__doc__": render.JobRow.__doc__, **answer_fields(shown_fields())},
)


class BulkMade(s.Serializer[object]):
    """Jobs in the order of the request."""

    results = JobRow(many=True)
