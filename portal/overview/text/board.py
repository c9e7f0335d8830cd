"""The data of a tenant's dashboard."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.utils.translation import gettext as _

from billing.selectors.accounts import AccountSummary
from evenshare_core.domain.entitlements import Entitlement
from portal.charts.deficits import DayDeficit
from portal.charts.figures import thousands
from portal.charts.glyphs import StateBadge
from portal.charts.notes import Link
from portal.common.quota_promises import QuotaPromiseText
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.pools.throughput import ThroughputPoint
from scheduling.selectors.rounds.histories import ClaimHistoryPoint
from scheduling.selectors.tenants.dashboard import LastRound, RunningJob, WaitingJobs
from scheduling.selectors.tenants.pools import PoolUse
from scheduling.selectors.visibility import Visibility


@dataclass(frozen=True, slots=True)
class Board:
    """The data of a dashboard. `round_url` is the last round's.

    `days` and `deficit` are of the last day, `older` are the claims of the days before it.
    """

    name: str
    you: bool
    now: datetime
    visibility: Visibility
    last: LastRound | None
    quotas: Sequence[Entitlement]
    runs: Sequence[RunningJob]
    waits: Sequence[WaitingJobs]
    days: Sequence[ClaimHistoryPoint]
    money: AccountSummary
    round_url: str
    ledger_url: str
    sharing_link: Link
    moments: Sequence[ThroughputPoint] = ()
    older: Sequence[ClaimHistoryPoint] = ()
    promise: QuotaPromiseText | None = None
    may_be_preempted: bool = False
    deficit: DayDeficit | None = None

    @property
    def has(self) -> int:
        """Return the GPUs of effective quota, or of nominal quota before the first round."""
        claims = self.last.claims if self.last else ()
        return sum(row.quota for row in claims) if claims else sum(q.gpus for q in self.quotas)

    @property
    def nominal(self) -> int:
        """Return the GPUs of quota as set, before trades and before scaling to the pool."""
        return sum(quota.gpus for quota in self.quotas)

    @property
    def swapped(self) -> int:
        """Return the GPUs that trades added to the quota; negative if they took some."""
        return sum(row.swapped for row in self.last.claims) if self.last else 0

    @property
    def is_scaled(self) -> bool:
        """Whether the quota counts as fewer GPUs, because all quotas exceed the pool's GPUs."""
        return self.nominal > self.has - self.swapped

    @property
    def own(self) -> int:
        """Return the GPUs in use within quota."""
        return sum(run.lease.own for run in self.runs)

    @property
    def borrowed(self) -> int:
        """Return the GPUs in use above quota."""
        return sum(run.lease.borrowed for run in self.runs)

    @property
    def uses(self) -> int:
        return self.own + self.borrowed

    @property
    def kept(self) -> int:
        """Return the idle GPUs of its quota that are not lent."""
        claims = self.last.claims if self.last else ()
        quota = {row.gpu_type: row.quota for row in claims}
        own: Counter[str] = Counter()
        for run in self.runs:
            own[run.lease.gpu_type.name] += run.lease.own
        idle = {
            row.gpu_type: max(0, quota.get(row.gpu_type, row.gpus) - own[row.gpu_type])
            for row in self.quotas
        }
        return sum(idle[row.gpu_type] - row.lendable(idle[row.gpu_type]) for row in self.quotas)

    @property
    def hourly(self) -> Decimal:
        """Return the credits per hour at the prices of the running terms."""
        return sum((run.hourly for run in self.runs), Decimal(0))

    @property
    def links(self) -> tuple[Link, ...]:
        """Return a link to the last round, the source of its figures."""
        if self.last is None:
            return ()
        return (
            Link(_("Round {number}").format(number=thousands(self.last.number)), self.round_url),
        )


@dataclass(frozen=True, slots=True)
class PoolUseRow:
    """A tenant in one of its pools, as a row of the overview."""

    facts: PoolFacts
    use: PoolUse
    fair: StateBadge
    is_here: bool
