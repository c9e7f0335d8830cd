"""Limits on what a tenant may use: effective quotas, sharing modes and spendable credit."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec.structs import replace

from evenshare_core.domain.ids import TenantId
from evenshare_core.domain.values import Value
from evenshare_core.money.fixed_point import largest_remainder

ClaimKey = tuple[int, str]  # (tenant, GPU type)


class Mode(StrEnum):
    """Whether a tenant's idle quota is lent and whether it may borrow."""

    RESERVE = "RESERVE"
    LEND = "LEND"
    LEND_AND_BORROW = "LEND_AND_BORROW"


class Entitlement(Value, frozen=True, array_like=True):
    """The effective quota of one tenant for one GPU type in a round, in whole GPUs.

    `borrow_limit` is the maximum above quota, and `lend_limit` the maximum of idle GPUs that others
    may use; `None` is unlimited. RESERVE neither lends nor borrows, LEND does not borrow.
    """

    tenant: TenantId
    gpu_type: str
    gpus: int
    mode: Mode = Mode.LEND_AND_BORROW
    borrow_limit: int | None = None
    lend_limit: int | None = None

    @property
    def may_borrow(self) -> int | None:
        """The maximum number of GPUs above quota; None if there is no limit."""
        return self.borrow_limit if self.mode is Mode.LEND_AND_BORROW else 0

    @property
    def most(self) -> int | None:
        """The maximum number of GPUs that the tenant may hold; None if there is no limit."""
        return None if self.may_borrow is None else self.gpus + self.may_borrow

    @property
    def lends_most(self) -> int | None:
        """The maximum number of this quota's GPUs that others may use; None if all may be lent."""
        limit = self.lendable(self.gpus)
        return limit if limit < self.gpus else None

    def lendable(self, idle: int) -> int:
        """Return how many of this quota's `idle` GPUs others may use."""
        if self.mode is Mode.RESERVE:
            return 0
        return idle if self.lend_limit is None else min(idle, self.lend_limit)


class Tenant(Value, frozen=True, array_like=True):
    """A group that owns quota.

    `spendable_micro` is the credit that rounds may still promise; `None` if there is no limit.
    """

    id: TenantId
    spendable_micro: int | None = None


def effective_quotas(quotas: Sequence[int], capacity: int) -> list[int]:
    """Return the quotas, scaled down to the live capacity if their sum exceeds it.

    Source: architecture, "Entitlement".
    """
    if sum(quotas) <= capacity:
        return list(quotas)
    return largest_remainder(capacity, quotas)


def entitlements(quotas: Iterable[Entitlement], gpu_type: str, capacity: int) -> list[Entitlement]:
    """Return the quotas of one GPU type, scaled down if their sum exceeds its capacity."""
    rows = [row for row in quotas if row.gpu_type == gpu_type]
    gpus = effective_quotas([row.gpus for row in rows], capacity)
    return [replace(row, gpus=count) for row, count in zip(rows, gpus, strict=True)]
