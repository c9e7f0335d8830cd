"""What base.html asks of every page: who looks, the menu, the round line."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from portal.charts.notes import Instant

# What the round line says of the pool; "stale" is never said by the server, only about it.
LIVE, LATE, PAUSED = "live", "late", "paused"


@dataclass(frozen=True, slots=True)
class NavItem:
    """One entry of the menu; the page says which is current by `nav_key`."""

    key: str
    text: str
    href: str


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """A pool of the switch. `is_other_page`: it leads to the pool's own page, not to this one."""

    name: str
    href: str
    is_here: bool = False
    is_other_page: bool = False


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks: a name, the tenant (empty for an operator), the role; where else they belong.

    `tenants`: names and addresses of all tenants of a person in several.
    """

    name: str
    role: str
    tenant: str = ""
    tenants: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyPanel:
    """How a reader verifies what a page says, and two sentences: the head, and the last time."""

    command: str
    head: str
    last: str


@dataclass(frozen=True, slots=True)
class RoundLine:
    """The line under the masthead. Seconds are of the wall, as the reader's clock ticks.

    `number` is None before the first round. `next_s` may be negative: the round is due.
    `checked` names the last instant that was looked at, with a round or not.
    """

    pool: str
    state: str
    number: int | None
    url: str
    round_url: str = ""
    age_s: float = 0
    next_s: float = 0
    interval_s: float = 60
    at: Instant | None = None
    nodes: int = 0
    gpus: int = 0
    policy: str = ""
    policy_url: str = ""
    pool_url: str = ""
    scale: int = 1
    late_s: float = 0
    unit: str = "GPU"
    checked: str = ""

    @property
    def etag(self) -> str:
        """Changes when, and only when, the line says something else than it comes to by itself.

        Ages and the countdown run on in the browser: they begin anew with an instant that was
        looked at. Weak, for what is sent may be compressed or not.
        """
        said = (
            *(self.pool, self.state, self.number, self.checked, self.interval_s, self.scale),
            *(self.nodes, self.gpus, self.unit, self.policy, self.policy_url),
            *(self.url, self.round_url, self.pool_url),
        )
        return f'W/"{sha256(repr(said).encode()).hexdigest()[:20]}"'

    @property
    def ticks(self) -> int:
        """How many of the 12 ticks of the countdown are gone."""
        if self.interval_s <= 0:
            return 0
        gone = 1 - self.next_s / self.interval_s
        return max(0, min(12, int(gone * 12)))
