"""The request for a sweep: a job, and the values for which it runs."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from scheduling.requests.jobs import JobRequest
from scheduling.requests.sweep_points import (
    PARAMETERS_MAX,
    POINTS_MAX,
    ROWS_MAX,
    VALUE_LETTERS,
    read_array_field,
    read_matrix_field,
    read_rows_field,
)
from tenants.input.requests import Input, request_fields


class SweepRequest(JobRequest, frozen=True, kw_only=True):
    """A job, submitted once for each index of an array and each combination of a matrix."""

    NOUN: ClassVar[str] = "a sweep"

    array: Annotated[
        str,
        Meta(
            max_length=800,
            description="Indices such as 0-9, 0-99:10 or 1,4,7, one job each; %3 at the end: at"
            " most 3 at once.",
        ),
        Input(
            label="Array",
            hint="Indices such as 0-9, 0-99:10 or 1,4,7. %3 at the end: at most 3 at once.",
            example="0-9%3",
            read=read_array_field,
        ),
    ] = ""
    matrix: Annotated[
        dict[str, tuple[Annotated[str, Meta(max_length=VALUE_LETTERS)], ...]],
        Meta(
            max_length=PARAMETERS_MAX,
            description="Values by parameter, as lr=0.1,0.01; its command may contain {{ lr }}.",
        ),
        Input(
            label="Matrix",
            hint="One parameter per line. The command may contain {{ lr }}; the program also"
            " gets each as a variable.",
            example="lr=0.1,0.01",
            read=read_matrix_field,
        ),
    ] = {}
    include: Annotated[
        tuple[dict[str, Annotated[str, Meta(max_length=VALUE_LETTERS)]], ...],
        Meta(
            max_length=ROWS_MAX,
            description="Values that extend the combinations they fit, or make a new one, as"
            " lr=0.1,seed=7.",
        ),
        Input(
            label="Include",
            hint="One row per line. It extends the combinations that it fits, or adds one.",
            example="lr=0.1,seed=7",
            read=read_rows_field("include"),
        ),
    ] = ()
    exclude: Annotated[
        tuple[dict[str, Annotated[str, Meta(max_length=VALUE_LETTERS)]], ...],
        Meta(max_length=ROWS_MAX, description="Values of combinations to leave out, as lr=0.1."),
        Input(
            label="Exclude",
            hint="One row per line. Combinations with all its values are left out.",
            example="lr=0.01,seed=7",
            read=read_rows_field("exclude"),
        ),
    ] = ()
    at_once: Annotated[
        Annotated[int, Meta(ge=1, le=POINTS_MAX)] | None,
        Meta(description="How many of its jobs may run at once; all by default."),
        Input(label="Jobs at once", hint="Empty: all."),
    ] = None


# The fields that make a sweep of a job.
SWEEP_FIELDS = tuple(
    name for name in request_fields(SweepRequest) if name not in request_fields(JobRequest)
)


def is_sweep(spec: object) -> bool:
    """Return whether a specification has a field of a sweep."""
    return isinstance(spec, Mapping) and any(
        spec.get(name) not in (None, "", {}, []) for name in SWEEP_FIELDS
    )
