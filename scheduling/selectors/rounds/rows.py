"""The rows of a round's decision, as a viewer may see them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any

from evenshare_core.domain.reasons import EndReason, Reason
from scheduling.selectors.jobs.reasons import Numbers
from scheduling.selectors.jobs.refs import JobRef
from scheduling.selectors.visibility import VisibleTenant
from tenants.answers import Answer, Hidden


@dataclass(frozen=True, slots=True)
class RowSlice:
    """The rows that a page shows of a round's tables, among those that its viewer may see.

    `table`: grants, renewals, ends or answers, with `count` rows from `start` on. If it is empty,
    each table has its first `count` rows, and after them as many rows of the viewer's tenants.
    `is_own`: only rows of the viewer's tenants.
    """

    count: int
    table: str = ""
    start: int = 0
    is_own: bool = False

    def of(self, table: str, rows: Sequence[Any], own: Collection[int]) -> list[Any]:
        """Return the shown rows of a table."""
        if not self.table:
            later = (row for row in rows[self.count :] if row.tenant in own)
            return [*rows[: self.count], *islice(later, self.count)]
        if self.table != table:
            return []
        kept = [row for row in rows if row.tenant in own] if self.is_own else rows
        return list(kept[self.start : self.start + self.count])


@dataclass(frozen=True, slots=True)
class SeenRows:
    """The number of a table's rows that the viewer may see, and of those of its own tenants."""

    all: int
    own: int


@dataclass(frozen=True, slots=True)
class PickRow:
    """A grant or renewal with the numbers that decide its order; `lost`: why it was not applied.

    `places`: its nodes by name, each with the number of its GPUs there.
    `lasts_s`: the length of the term in pool seconds, if it is not the pool's lease length.
    """

    order: int
    granted: bool
    tenant: VisibleTenant
    gpu_type: str
    gpus: int
    places: tuple[tuple[str, int], ...]
    tenant_rho: float | None
    job_rho: float | None
    note: str
    own: int
    borrowed: int
    price: Decimal
    job: JobRef | None = None
    lost: str = ""
    lasts_s: float | None = None


class EarlyEnd(Answer, frozen=True):
    """A lease that the round ended before its expiry; later shown as `PreemptionRow`.

    `for_tenant` and `for_job` get its GPUs, null if you may not see them. `numbers`: the values
    that the rule compared, if you may see both tenants.
    """

    rule: str
    words: str
    moved: bool
    gpus: int
    gpu_type: str
    tenant: VisibleTenant
    job: JobRef | None
    for_tenant: VisibleTenant | None
    for_job: JobRef | None
    numbers: Numbers
    superseded: str


@dataclass(frozen=True, slots=True)
class EndRow:
    """A lease that the round ended; `moved`: the same round granted its job another lease.

    `early`: the rule and the beneficiary, if it ended before its expiry.
    """

    tenant: VisibleTenant
    gpu_type: str
    gpus: int
    places: tuple[tuple[str, int], ...]
    reason: EndReason
    job: JobRef | None = None
    lost: str = ""
    moved: bool = False
    early: EarlyEnd | None = None


class SkipRow(Answer, frozen=True):
    """Jobs of a tenant that wait for the same reason; `named` are some that you may see."""

    tenant: VisibleTenant
    jobs: int
    gpus: int
    numbers: Numbers
    named: tuple[JobRef, ...] = ()


class SkipGroup(Answer, frozen=True, rename={"reason": "reason_code", "rows": "tenants"}):
    """All jobs that wait for the same reason; `rows` has the tenants that you may see."""

    reason: Reason
    jobs: int
    gpus: int
    rows: tuple[SkipRow, ...]


class RoundPrice(Answer, frozen=True):
    """The price of a GPU type in this round, and the price posted after it."""

    gpu_type: str
    valid: Decimal
    posted: Decimal
    used: int
    capacity: int
    base: Hidden[Decimal]
    theta: Hidden[Decimal]
    surcharge: Hidden[Decimal | None]  # the queue's surcharge; None if the policy has none
    queued: Hidden[int | None]
