"""Requests for simulations of a pool: its next hours, or its last days."""

from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar

from django.utils.translation import gettext as _
from msgspec import Meta

from evenshare_core.policies.registry import missing_text
from scheduling.requests.core_errors import core_error
from scheduling.requests.pools import OptionValues
from tenants.input.errors import FieldErrors
from tenants.input.readers import SLUG
from tenants.input.requests import Input, Request
from tenants.language import gettext_noop

HOURS = (6, 24, 72)
DAYS = (1, 3, 7)
OTHERS_MOST = 3  # policies of a replay, next to the pool's own
SEED_MOST = 2**53 - 1  # the largest whole number that JSON keeps exactly everywhere


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


Days = Annotated[
    int,
    Meta(description="Number of days, in pool time."),
    Input(label="Days", read=_one_of("days", DAYS, gettext_noop("Choose {names} or {last} days."))),
]


class LeaseComparisonRequest(Request, frozen=True, kw_only=True):
    """The last days of a pool, under its own policy with several lease lengths."""

    NOUN: ClassVar[str] = "a comparison of lease lengths"

    days: Days
    restart_s: Annotated[
        int,
        Meta(ge=0, le=86_400, description="Seconds that a job loses when it is resumed."),
        Input(label="Restart", unit="s"),
    ] = 0


def _read_others(given: Mapping[str, object], errors: FieldErrors) -> tuple[str, ...]:
    """Return the names of other policies; `errors` states which choice is impossible."""
    values = given.get("policies")
    names = tuple(values) if isinstance(values, list) else ()
    if not 1 <= len(set(names)) <= OTHERS_MOST or len(set(names)) < len(names):
        text = _("Choose one to {most} other policies.").format(most=OTHERS_MOST)
        errors.add("policies", text)
    elif missing := [text for name in names if (text := missing_text(str(name)))]:
        errors.add(
            "policies",
            _("Choose among the policies: {why}.").format(why=core_error(missing[0])),
        )
    return names


class HistoryRequest(Request, frozen=True, kw_only=True):
    """The last days of a pool, under its own policy and others, from the same inputs and seed."""

    NOUN: ClassVar[str] = "a replay"

    days: Days
    policies: Annotated[
        tuple[str, ...],
        Meta(description="The other policies, with their default options."),
        Input(label="Other policies", read=_read_others),
    ]
    seed: Annotated[
        int,
        Meta(ge=0, le=SEED_MOST, description="The seed of policies that draw numbers."),
        Input(label="Seed"),
    ] = 0
    again: Annotated[
        int | None,
        Meta(description="The number of an earlier replay with the same end."),
    ] = None
