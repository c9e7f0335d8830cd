"""The request that declares a job type, whose name is in the URL."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, ClassVar

from django.utils.translation import gettext as _
from msgspec import Meta

from tenants.input import readers
from tenants.input.errors import FieldErrors
from tenants.input.readers import NAME_HINT
from tenants.input.requests import (
    Input,
    Request,
    given_fields,
    make_request,
    read_fields,
    refuse_unknown,
    request_fields,
)
from tenants.language import gettext_noop, number

PRIORITY_MAX, TYPES_MAX = 1000, 64
# No GPU is faster than another by this factor. A larger ratio shows that a unit is wrong.
RATIO_MAX = 1000
SPEEDS_HINT = gettext_noop(
    'Set a speed for each GPU type on which the jobs can run: {"k80": "1", "v100": "4.81"}.'
)


def _read_speeds(given: Mapping[str, object], errors: FieldErrors) -> dict[str, Decimal]:
    value = given.get("speeds")
    if not isinstance(value, Mapping) or not value:
        errors.add("speeds", _("must be an object with at least one speed"), _(SPEEDS_HINT))
        return {}
    if len(value) > TYPES_MAX:
        errors.add(
            "speeds",
            _("has more than {most} GPU types").format(most=TYPES_MAX),
            code="too_long",
        )
        return {}
    places = {f"speeds.{ascii(str(kind))[1:-1][:60]}": speed for kind, speed in value.items()}
    read: dict[str, Decimal] = {}
    for (place, text), kind in zip(places.items(), value, strict=False):
        if not isinstance(kind, str) or not readers.SLUG.fullmatch(kind):
            errors.add(place, _("is not the name of a GPU type"), _(SPEEDS_HINT))
        elif (speed := _speed(text)) is None:
            errors.add(place, _("must be a speed above 0"), _('Enter a number, such as "4.81".'))
        else:
            read[kind] = speed
    if read and max(read.values()) > RATIO_MAX * min(read.values()):
        hint = _("Use the same unit for all.")
        errors.add(
            "speeds",
            _("differ by a factor of more than {most}").format(most=number(RATIO_MAX)),
            hint,
        )
    return read


def _speed(value: object) -> Decimal | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**12:
        return Decimal(value)
    if isinstance(value, str) and readers.CREDITS.fullmatch(value) and Decimal(value) > 0:
        return Decimal(value)
    return None


class ProfileRequest(Request, frozen=True, kw_only=True):
    """Speeds in any common unit; the job type cannot run on GPU types that are left out."""

    NOUN: ClassVar[str] = "a job type"

    speeds: Annotated[
        dict[str, Decimal],
        Meta(min_length=1, max_length=TYPES_MAX, description="Speed by GPU type, each above 0."),
        Input(label="Speed on", read=_read_speeds),
    ]
    priority: Annotated[
        int,
        Meta(ge=1, le=PRIORITY_MAX, description="Its weight among the tenant's job types."),
        Input(label="Priority"),
    ] = 1


def read_profile_request(name: str, raw: object) -> ProfileRequest:
    """Return the request in `raw` (a mapping, as parsed from JSON) for the job type `name`.

    Raises:
        InvalidInputError: the request has errors; the exception lists all of them.
    """
    errors = FieldErrors()
    given = given_fields(ProfileRequest, raw)
    if not readers.NAME.fullmatch(name):
        errors.add("name", _("is not a usable name"), _(NAME_HINT))
    values = read_fields(ProfileRequest, given, errors)
    refuse_unknown(ProfileRequest, given, errors)
    errors.raise_any(("name", *request_fields(ProfileRequest)))
    return make_request(ProfileRequest, values)
