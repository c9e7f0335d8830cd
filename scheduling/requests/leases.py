"""The request to end a lease whose process the engine does not end."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta

from scheduling.requests.nodes import NO_REASON
from tenants.input.readers import REASON_MAX
from tenants.input.requests import Input, Request

CHOOSE = "Choose gone if you checked that its processes are gone, else unknown."


class Processes(StrEnum):
    """The state of the processes of a lease that is to end."""

    GONE = "gone"
    UNKNOWN = "unknown"


class EndLeaseRequest(Request, frozen=True, kw_only=True):
    """The request to end a lease whose process should have ended; a reason is required."""

    NOUN: ClassVar[str] = "the end of a lease"

    processes: Annotated[
        str,
        Meta(
            description="gone: checked, so the next round gives its GPUs to other jobs; unknown:"
            " its nodes are drained and take no lease until they are resumed."
        ),
        Input(
            label="Its processes",
            choices=tuple(one.value for one in Processes),
            complaint=CHOOSE,
        ),
    ]
    reason: Annotated[
        str,
        Meta(min_length=1, max_length=REASON_MAX, description="The reason, for the audit log."),
        Input(label="Reason", hint="Kept in the audit log.", complaint=NO_REASON),
    ]
