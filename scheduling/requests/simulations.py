"""The request for a simulation: the next hours of a pool under a policy."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from scheduling.requests.pools import OptionValues
from tenants.input.errors import FieldErrors
from tenants.input.readers import SLUG
from tenants.input.requests import Input, Request

HOURS = (6, 24, 72)


def _read_hours(given: Mapping[str, object], errors: FieldErrors) -> int:
    value = given.get("hours")
    if isinstance(value, int) and value in HOURS:
        return value
    errors.add("hours", f"Choose {', '.join(map(str, HOURS[:-1]))} or {HOURS[-1]} hours.")
    return 0


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
        Input(label="Hours", read=_read_hours),
    ]
