"""Options of the policy; the numbers of rules are those of `policy`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from evenshare_core.policies.options import Options
from evenshare_core.units import SECOND_US

TIGHT_RUNTIME_S = 60


class EvenshareOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of evenshare."""

    preset: Annotated[
        Literal["standard", "tight"],
        Meta(
            description="Whom a round serves first: the tenant that received least for what it"
            " deserved over the window (standard), or whoever holds less than its quota at this"
            " moment, whatever it received before (tight)."
        ),
    ] = "standard"
    window_s: Annotated[
        int,
        Meta(
            ge=60,
            le=366 * 86_400,
            description="How fast GPU-time received and deserved is forgotten when tenants are"
            " compared: after so long, two thirds of it are. Shorter: quotas are kept from hour"
            " to hour, and jobs wait longer.",
        ),
    ] = 86_400
    estimates: Annotated[
        Literal["none", "given", "deadlines"],
        Meta(
            description="Which jobs go first in a tenant: those that received least so far (none);"
            " those whose fair share covers soonest what they are said to need (given); or those"
            " with the least GPU-time left, last those that can meet no deadline any more"
            " (deadlines)."
        ),
    ] = "none"
    min_runtime_s: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="How long a job runs before it may be preempted or moved; with the tight"
            f" preset {TIGHT_RUNTIME_S} s at most.",
        ),
    ] = 300
    guarantee: Annotated[
        bool,
        Meta(
            description="End leases before their expiry for a tenant that is owed GPUs within its"
            " quota."
        ),
    ] = True
    pays: Annotated[
        bool,
        Meta(
            description="End leases of long jobs before their expiry for jobs that never ran; not"
            " with the tight preset."
        ),
    ] = True
    gangs_overtake: Annotated[
        bool,
        Meta(
            description="End leases of long jobs before their expiry for a gang that is larger than"
            " a node and comes before them; not with the tight preset."
        ),
    ] = True
    gangs_per_round: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="For how many large jobs a round may move small ones out of the way; 0:"
            " none is moved.",
        ),
    ] = 2
    moves_per_round: Annotated[
        int,
        Meta(ge=0, le=1000, description="How many jobs a round may move in all."),
    ] = 16

    @property
    def is_tight(self) -> bool:
        """Whether quotas are kept at every moment."""
        return self.preset == "tight"

    @property
    def min_runtime_us(self) -> int:
        """The time for which a new lease is protected."""
        least_s = min(self.min_runtime_s, TIGHT_RUNTIME_S) if self.is_tight else self.min_runtime_s
        return least_s * SECOND_US

    @property
    def window_us(self) -> int:
        """tau: the time in which GPU-time decays to 1/e."""
        return self.window_s * SECOND_US
