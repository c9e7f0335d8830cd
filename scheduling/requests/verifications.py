"""The report of a client about a run of `evenshare round verify` or `statement verify`."""

from datetime import datetime
from typing import Annotated, ClassVar, TypeAlias

from django.utils.translation import gettext as _
from msgspec import Meta

from evenshare_core.units import COUNT_MAX
from tenants.input.errors import FieldErrors
from tenants.input.requests import Input, Request, read_request
from tenants.language import number
from tenants.requests import SlugName

KINDS = ("rounds", "statement")
NUMBER_MAX = 2**62
LogNumber: TypeAlias = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
# The fields that give the verified span, for each kind.
SPANS = {"rounds": ("first", "last"), "statement": ("since", "until")}


class VerificationRequest(Request, frozen=True, kw_only=True):
    """The verified span, the head of the log that was used, and the result."""

    NOUN: ClassVar[str] = "a verification"

    tenant: Annotated[
        SlugName | None,
        Meta(description="One of your tenants; optional if you have only one."),
    ] = None
    kind: Annotated[str, Meta(description="What was recomputed."), Input(choices=KINDS)]
    size: Annotated[LogNumber, Meta(description="The size of the head that the log returned.")]
    root: Annotated[
        str,
        Meta(pattern=r"^[0-9a-f]{64}$", description="The head's root: 64 lower-case hex digits."),
    ]
    first: Annotated[LogNumber | None, Meta(description="For rounds: the first round.")] = None
    last: Annotated[LogNumber | None, Meta(description="For rounds: the last round.")] = None
    since: Annotated[
        datetime | None, Meta(description="For a statement: its start, in pool time.")
    ] = None
    until: Annotated[
        datetime | None, Meta(description="For a statement: its end (exclusive), in pool time.")
    ] = None
    checked: Annotated[
        int,
        Meta(
            ge=0,
            le=COUNT_MAX,
            description="Number of recomputed rounds, or amounts of a statement.",
        ),
    ]
    findings: Annotated[
        int, Meta(ge=0, le=COUNT_MAX, description="Number of errors found; 0: none.")
    ]
    client: Annotated[
        str,
        Meta(
            pattern=r"^[0-9A-Za-z][0-9A-Za-z.+ _-]{0,39}$",
            description="Name and version of the program: up to 40 letters, digits, . + - and _.",
        ),
    ]
    unproven: Annotated[
        Annotated[int, Meta(ge=0, le=COUNT_MAX)] | None,
        Meta(description="Number of requested parts that were not proven; null if unknown."),
    ] = None


def read_verification(raw: object) -> VerificationRequest:
    """Return the verification in a body.

    Raises:
        InvalidInputError: the body has errors; the exception lists all of them.
    """
    request = read_request(VerificationRequest, raw)
    errors = FieldErrors()
    for kind, names in SPANS.items():
        for name in names:
            is_there = getattr(request, name) is not None
            if kind == request.kind and not is_there:
                errors.add(
                    name, _("is required if kind is {kind}").format(kind=kind), code="required"
                )
            elif kind != request.kind and is_there:
                errors.add(
                    name,
                    _("is only for kind {kind}, but kind is {given}").format(
                        kind=kind, given=request.kind
                    ),
                    _("Leave it out."),
                )
    errors.raise_any()
    if request.first is not None and request.last is not None:
        count = request.last - request.first + 1
        if count < 1:
            errors.add("last", _("is before first"))
        elif request.checked > count:
            errors.add(
                "checked",
                _("is more than the {count} rounds from first to last").format(count=number(count)),
            )
    if request.since is not None and request.until is not None and request.since >= request.until:
        errors.add("until", _("is not after since"))
    errors.raise_any()
    return request
