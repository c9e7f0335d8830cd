"""Requests of tenants for another quota, and their decisions."""

from datetime import datetime
from typing import Annotated, ClassVar

from msgspec import Meta

from evenshare_core.units import COUNT_MAX
from scheduling.requests.nodes import NO_REASON
from tenants.input.readers import REASON_MAX
from tenants.input.requests import Input, Request
from tenants.requests import SlugName


class QuotaAskRequest(Request, frozen=True, kw_only=True):
    """A quota that a tenant wants instead of its present one, from the approval on."""

    NOUN: ClassVar[str] = "a request for quota"

    tenant: Annotated[
        SlugName,
        Meta(description="The tenant; by default the only tenant of which you are a member."),
    ] = ""
    pool: Annotated[SlugName, Meta(description="A pool in which the tenant has or had quota.")]
    gpu_type: Annotated[
        str,
        Meta(min_length=1, max_length=31, description="A GPU type of the pool."),
        Input(label="GPU type", hint="A GPU type of the pool.", complaint="is not a GPU type"),
    ]
    gpus: Annotated[
        int,
        Meta(ge=1, le=COUNT_MAX, description="GPUs of the whole quota, not the difference."),
        Input(label="GPUs", hint="The whole quota that you want, not the difference."),
    ]
    until: Annotated[
        datetime | None,
        Meta(description="End of the quota, in pool time; by default without end."),
        Input(
            label="Until",
            hint="A day, or a time in UTC of the pool's clock. Then the former quota applies"
            " again. Empty: no end.",
        ),
    ] = None
    reason: Annotated[
        str,
        Meta(min_length=1, max_length=REASON_MAX, description="Why, for the person who decides."),
        Input(label="Reason", hint="Shown to the person who decides.", complaint=NO_REASON),
    ]


class QuotaApprovalRequest(Request, frozen=True, kw_only=True):
    """An approval of a request for quota."""

    NOUN: ClassVar[str] = "an approval"

    gpus: Annotated[
        Annotated[int, Meta(ge=1, le=COUNT_MAX)] | None,
        Meta(description="GPUs of the quota; by default as requested."),
        Input(label="GPUs", hint="You may approve another number than requested."),
    ] = None
    answer: Annotated[
        str,
        Meta(max_length=REASON_MAX, description="Answer to the tenant."),
        Input(label="Answer", hint="Shown to the tenant; a declined request needs one."),
    ] = ""


class QuotaDeclineRequest(Request, frozen=True, kw_only=True):
    """A refusal of a request for quota."""

    NOUN: ClassVar[str] = "an answer"

    answer: Annotated[
        str,
        Meta(min_length=1, max_length=REASON_MAX, description="Reason, shown to the tenant."),
        Input(label="Answer", complaint="Give the tenant a short reason."),
    ]
