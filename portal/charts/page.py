"""The data that base.html needs on every page: the viewer, the menu, the round line."""

from dataclasses import dataclass
from hashlib import sha256

from portal.charts.notes import Instant

# States of the pool in the round line. Only browsers show "stale".
LIVE, LATE, PAUSED = "live", "late", "paused"


@dataclass(frozen=True, slots=True)
class NavItem:
    """An entry of the menu; a page marks the current entry by `nav_key`."""

    key: str
    text: str
    href: str


@dataclass(frozen=True, slots=True)
class LinkChoice:
    """A link among choices. `is_other_page`: it leads to the pool's page, not to this one."""

    name: str
    href: str
    is_here: bool = False
    is_other_page: bool = False


@dataclass(frozen=True, slots=True)
class Viewer:
    """The viewer: name, role, and tenant (empty for an operator).

    `tenants`: names and addresses of all tenants, if the person belongs to several.
    """

    name: str
    role: str
    tenant: str = ""
    tenants: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyPanel:
    """The command that verifies a page, and sentences on the head and on the last verification."""

    command: str
    head: str
    last: str


@dataclass(frozen=True, slots=True)
class RoundLine:
    """The line under the masthead. Seconds are wall time, like the reader's clock.

    `number` is None before the first round. `next_s` is negative if the round is due. `checked` is
    the last instant of the grid that was checked, with or without a round.
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
        """Return a hash of all parts of the line that the browser cannot update by itself.

        The browser counts ages and the countdown, and restarts them when `checked` changes. The
        ETag is weak because the response may be compressed.
        """
        said = (
            *(self.pool, self.state, self.number, self.checked, self.interval_s, self.scale),
            *(self.nodes, self.gpus, self.unit, self.policy, self.policy_url),
            *(self.url, self.round_url, self.pool_url),
        )
        return f'W/"{sha256(repr(said).encode()).hexdigest()[:20]}"'

    @property
    def ticks(self) -> int:
        """Return how many of the 12 ticks of the countdown have elapsed."""
        if self.interval_s <= 0:
            return 0
        gone = 1 - self.next_s / self.interval_s
        return max(0, min(12, int(gone * 12)))
