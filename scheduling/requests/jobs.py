"""The request for a job, from which REST, the form, YAML and the command line are derived."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar

from msgspec import Meta

from evenshare_core.deadlines.declared import STEPS_MAX
from evenshare_core.units import COUNT_MAX, MEMORY_MB_MAX
from scheduling.requests.job_deadline import (
    CLASSES,
    TEXT_MAX,
    read_deadline,
    read_job_class,
    read_steps_field,
    read_stop_field,
)
from scheduling.requests.job_utility import read_utility_field
from scheduling.requests.process import (
    ARGUMENT_BYTES,
    ARGUMENTS,
    VARIABLES,
    read_command,
    read_environment,
)
from tenants.input.readers import NAME_HINT
from tenants.input.requests import Input, Request

DURATION_S, DURATION_MAX_S = 600, 30 * 24 * 3600
WEIGHT_MAX = 1000
ITERATIONS_MAX = 1000 * COUNT_MAX


class JobRequest(Request, frozen=True, kw_only=True):
    """A job to submit. A field that is left out or null has its default."""

    NOUN: ClassVar[str] = "a job"

    pool: Annotated[
        str,
        Meta(max_length=63, description="The pool in which it runs."),
        Input(label="Pool", hint="Where it runs.", is_contextual=True),
    ]
    gpus: Annotated[
        int,
        Meta(ge=1, le=COUNT_MAX, description="GPUs, all at once or none."),
        Input(label="GPUs, all at once", hint="It starts with all of them, or not yet."),
    ]
    command: Annotated[
        tuple[Annotated[str, Meta(max_length=ARGUMENT_BYTES)], ...],
        Meta(
            max_length=ARGUMENTS,
            description="The program and its arguments; no shell reads them.",
        ),
        Input(
            label="Command",
            hint="The program and its arguments, with quotes as in a shell."
            " No shell runs: no pipes, no $variables.",
            example="python examples/train.py",
            option="--",
            read=read_command,
        ),
    ] = ()
    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
            description="Small letters, digits and hyphens; one is made up if left out.",
        ),
        Input(
            label="Name",
            hint="Small letters, digits and hyphens. Left out: one is made up.",
            complaint="is not a usable name",
            advice=NAME_HINT,
        ),
    ] = ""
    tenant: Annotated[
        str,
        Meta(max_length=63, description="For whom it runs; needed by a member of several."),
        Input(is_contextual=True),
    ] = ""
    profile: Annotated[
        str,
        Meta(max_length=63, description="Its job type, where your tenant has some in the pool."),
        Input(label="Job type", is_contextual=True),
    ] = ""
    gpu_types: Annotated[
        tuple[Annotated[str, Meta(max_length=31)], ...],
        Meta(max_length=16, description="An acceptable GPU type; any if none is named."),
        Input(
            label="GPU type",
            hint="None marked: any. The price is for borrowed GPUs alone.",
            option="--gpu-type",
        ),
    ] = ()
    max_price: Annotated[
        Decimal | None,
        Meta(
            description="Highest price in credits per GPU-hour of a borrowed GPU;"
            " above it the job waits."
        ),
        Input(
            label="Highest price you accept",
            hint="Only for borrowed GPUs; above it the job waits. Left out: any.",
            unit="credits / GPU-h",
        ),
    ] = None
    utility: Annotated[
        dict[str, str],
        Meta(
            max_length=3,
            description="What its end is worth: kind=bid, linear or convex, and its numbers.",
        ),
        Input(
            label="What it is worth",
            hint="Left out: a bid of the highest price you accept. Else lines: kind=bid and"
            " per_gpu_hour=0.8; or kind=linear, g=100 and k=-2: 100 credits at once, 2 less per"
            " hour; or kind=convex, e=100 and kappa=1.5: (e / hours)^kappa. Only pools that sell"
            " what is idle by its price look at it.",
            example="kind=bid",
            option="--utility",
            read=read_utility_field,
            is_shown=True,
        ),
    ] = {}
    cpus: Annotated[
        int,
        Meta(
            ge=0,
            le=COUNT_MAX,
            description="CPUs that it needs in all; only dominant resource fairness counts them.",
        ),
        Input(
            label="CPUs, in all",
            hint="Of all its GPUs together; left out: not said. Only pools whose policy is dominant"
            " resource fairness count them.",
            is_shown=True,
        ),
    ] = 0
    memory_mb: Annotated[
        int,
        Meta(
            ge=0,
            le=MEMORY_MB_MAX,
            description="Memory that it needs in all, in MB; counted where CPUs are.",
        ),
        Input(
            label="Memory, in all",
            hint="Of all its GPUs together; left out: not said. Counted as CPUs are.",
            unit="MB",
            option="--memory",
            is_shown=True,
        ),
    ] = 0
    environment: Annotated[
        dict[str, str],
        Meta(
            max_length=VARIABLES,
            description="Variables of its process; others of your tenant can read them.",
        ),
        Input(
            label="Environment",
            hint="One NAME=value a line. Others of your tenant can read it: no passwords.",
            example="SEED=1",
            option="--env",
            read=read_environment,
        ),
    ] = {}
    weight: Annotated[
        int, Meta(ge=1, le=WEIGHT_MAX, description="Its share among your tenant's jobs.")
    ] = 1
    duration_s: Annotated[
        Annotated[int, Meta(ge=1, le=DURATION_MAX_S)] | None,
        Meta(description="How long it runs, in seconds of the time of a pool of virtual jobs."),
        Input(label="Runs for", unit="seconds", option=""),
    ] = None
    job_class: Annotated[
        str,
        Meta(
            max_length=16,
            description="best_effort, strict_slo or soft_slo; strict_slo with a deadline alone.",
        ),
        Input(
            label="Class",
            hint="What a late end still brings. In the YAML: best_effort, strict_slo or soft_slo.",
            choices=CLASSES,
            option="--class",
            read=read_job_class,
            is_shown=True,
        ),
    ] = CLASSES[0]
    deadline: Annotated[
        str,
        Meta(
            max_length=TEXT_MAX,
            description="By when it is to end: a duration such as 2h30m, or an instant of pool"
            " time.",
        ),
        Input(
            label="Deadline",
            hint="In the pool's time: a duration from now such as 2h30m, or an instant such as"
            " 2026-12-01T00:00:00Z. Four weeks ahead at most.",
            read=read_deadline,
            is_shown=True,
        ),
    ] = ""
    deadline_steps: Annotated[
        tuple[Annotated[str, Meta(max_length=TEXT_MAX)], ...],
        Meta(
            max_length=STEPS_MAX,
            description="Of soft_slo: percent of the time to its deadline, and points by then,"
            " as 110:80.",
        ),
        Input(
            label="Points by time",
            hint="Of a soft deadline alone: percent of the time to it, and points for an end by"
            " then. Left out: 100:100 110:80 120:50 150:20.",
            example="100:100 110:80 120:50 150:20",
            read=read_steps_field,
            is_shown=True,
        ),
    ] = ()
    estimate_s: Annotated[
        Annotated[int, Meta(ge=1, le=DURATION_MAX_S)] | None,
        Meta(
            description="How long you expect it to run, in seconds on its slowest GPU type.",
        ),
        Input(
            label="Expected run time",
            hint="On its slowest GPU type, in the pool's time. An estimate: nobody is held to it.",
            unit="seconds",
            option="--estimate",
            is_shown=True,
        ),
    ] = None
    iterations: Annotated[
        Annotated[int, Meta(ge=1, le=ITERATIONS_MAX)] | None,
        Meta(description="How many iterations it makes in all; the most, with stop_when."),
        Input(label="Iterations, in all", is_shown=True),
    ] = None
    stop_when: Annotated[
        str,
        Meta(
            max_length=TEXT_MAX + 63,
            description="The metric by which it ends before that, such as accuracy>=0.93.",
        ),
        Input(
            label="Stops when",
            hint="A metric by which it ends before its iterations are over, which are needed too.",
            example="accuracy>=0.93",
            read=read_stop_field,
            is_shown=True,
        ),
    ] = ""
    comment: Annotated[
        str,
        Meta(max_length=200, description="A note for people, one line; nothing reads it."),
        Input(label="Comment", is_shown=True),
    ] = ""
