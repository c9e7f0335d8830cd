"""Requests for simulations of a pool: its next hours, or its last days."""

from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar

from django.utils.translation import gettext as _
from msgspec import Meta

from scheduling.requests.pools import OptionValues
from tenants.input.errors import FieldErrors
from tenants.input.readers import SLUG
from tenants.input.requests import Input, Request
from tenants.language import gettext_noop

HOURS = (6, 24, 72)
DAYS = (1, 3, 7)


def _one_of(
    name: str, choices: tuple[int, ...], complaint: str
) -> Callable[[Mapping[str, object], FieldErrors], int]:
    """Return a reader of the field `name`; `complaint` has places for the choices."""

    def read(given: Mapping[str, object], errors: FieldErrors) -> int:
        value = given.get(name)
        if isinstance(value, int) and value in choices:
            return value
        errors.add(
            name,
            _(complaint).format(names=", ".join(map(str, choices[:-1])), last=choices[-1]),
        )
        return 0

    return read


class SimulationRequest(Request, frozen=True, kw_only=True):
    """The next hours of a pool under a policy, compared with its present one."""

    NOUN: ClassVar[str] = "a simulation"

    policy: Annotated[
        str,
        Meta(pattern=f"^{SLUG.pattern}$", description="The policy that decides its rounds."),
        Input(label="Policy", complaint="Choose one of the policies."),
    ]
    options: OptionValues = {}
    hours: Annotated[
        int,
        Meta(description="Number of hours, in pool time."),
        Input(
            label="Hours",
            read=_one_of("hours", HOURS, gettext_noop("Choose {names} or {last} hours.")),
        ),
    ]


class LeaseComparisonRequest(Request, frozen=True, kw_only=True):
    """The last days of a pool, under its own policy with several lease lengths."""

    NOUN: ClassVar[str] = "a comparison of lease lengths"

    days: Annotated[
        int,
        Meta(description="Number of days, in pool time."),
        Input(
            label="Days", read=_one_of("days", DAYS, gettext_noop("Choose {names} or {last} days."))
        ),
    ]
    restart_s: Annotated[
        int,
        Meta(ge=0, le=86_400, description="Seconds that a job loses when it is resumed."),
        Input(label="Restart", unit="s"),
    ] = 0
