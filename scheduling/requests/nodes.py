"""Requests of operators for nodes: adding, changing, draining and maintenance."""

from datetime import datetime
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from evenshare_core.units import COUNT_MAX, MEMORY_MB_MAX
from tenants.input.readers import INSTANT_HINT, REASON_MAX
from tenants.input.requests import Input, Request
from tenants.language import gettext_noop
from tenants.requests import SMALL_NAME, SMALL_NAME_COMPLAINT, Reason, SlugName

GPUS_MAX, NODES_MAX = 1024, 1024
GPU_TYPE_NAME = r"^[a-z0-9]([a-z0-9-]{0,29}[a-z0-9])?$"
GPU_TYPE_COMPLAINT = "Use 1 to 31 lower-case letters, digits and hyphens."
NO_INSTANT = gettext_noop("Enter date and time of the pool's clock, as year-month-day hour:minute.")
NO_REASON = gettext_noop("Give a short reason.")
NO_SUCH_NODES = gettext_noop("Choose nodes of this pool.")
NO_RESOURCES = gettext_noop("Give CPUs, memory, or both.")
COUNTED = "Only the policy dominant resource fairness counts them."


class NodeRequest(Request, frozen=True, kw_only=True):
    """A node to add. A GPU type that is new to the pool gets the default price."""

    NOUN: ClassVar[str] = "a node"

    pool: SlugName
    name: Annotated[
        str,
        Meta(pattern=SMALL_NAME, description="Its name, unique in the pool."),
        Input(label="Name", complaint=SMALL_NAME_COMPLAINT),
    ]
    gpu_type: Annotated[
        str,
        Meta(pattern=GPU_TYPE_NAME, description="The type of its GPUs."),
        Input(
            label="GPU type",
            hint="A new type gets the default price settings.",
            complaint=GPU_TYPE_COMPLAINT,
        ),
    ]
    gpus: Annotated[
        int,
        Meta(ge=1, le=GPUS_MAX, description="Number of GPUs."),
        Input(label="GPUs", complaint=f"Enter 1 to {GPUS_MAX:,}."),
    ]
    cpus: Annotated[
        int,
        Meta(ge=0, le=COUNT_MAX, description="Number of CPUs for jobs; 0: unknown."),
        Input(label="CPUs", hint=f"Optional; CPUs for jobs. {COUNTED}"),
    ] = 0
    memory_mb: Annotated[
        int,
        Meta(ge=0, le=MEMORY_MB_MAX, description="Memory for jobs, in MB; 0: unknown."),
        Input(label="Memory", hint="Optional; memory for jobs.", unit="MB"),
    ] = 0


class NodeChangeRequest(Request, frozen=True, kw_only=True):
    """A node's resources other than GPUs; fields that are left out stay unchanged."""

    NOUN: ClassVar[str] = "a change of a node"
    NULL_IS_ABSENT: ClassVar[bool] = False

    cpus: Annotated[
        Annotated[int, Meta(ge=0, le=COUNT_MAX)] | UnsetType,
        Meta(description="Number of CPUs for jobs; 0: unknown."),
        Input(label="CPUs", hint=f"Empty: unchanged; 0: unknown. {COUNTED}"),
    ] = UNSET
    memory_mb: Annotated[
        Annotated[int, Meta(ge=0, le=MEMORY_MB_MAX)] | UnsetType,
        Meta(description="Memory for jobs, in MB; 0: unknown."),
        Input(label="Memory", hint="Empty: unchanged; 0: unknown.", unit="MB"),
    ] = UNSET


class DrainRequest(Request, frozen=True, kw_only=True):
    """A drain: the node gets no new leases. A reason is required, which users can read."""

    NOUN: ClassVar[str] = "a drain"

    reason: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=REASON_MAX,
            description="The reason, for the audit log and the page.",
        ),
        Input(label="Reason", complaint=NO_REASON),
    ]


class WindowRequest(Request, frozen=True, kw_only=True):
    """Maintenance of nodes of a pool: no lease starts there that could overlap the window."""

    NOUN: ClassVar[str] = "maintenance"

    pool: SlugName
    nodes: Annotated[
        tuple[str, ...],
        Meta(min_length=1, max_length=NODES_MAX, description="Names of nodes of the pool."),
        Input(label="Nodes", complaint=NO_SUCH_NODES),
    ]
    starts_at: Annotated[
        datetime,
        Meta(description="When it begins, in pool time."),
        Input(
            label="From, pool time",
            complaint=NO_INSTANT,
            advice=INSTANT_HINT,
        ),
    ]
    ends_at: Annotated[
        datetime,
        Meta(description="When it ends, in pool time."),
        Input(
            label="Until",
            complaint=NO_INSTANT,
            advice=INSTANT_HINT,
        ),
    ]
    reason: Reason = ""
