"""What a round decided, row by row, as a viewer may see it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from evenshare_core.domain.reasons import EndReason, Reason
from scheduling.selectors.jobs.reasons import Numbers
from scheduling.selectors.jobs.refs import JobRef
from scheduling.selectors.visibility import VisibleTenant
from tenants.answers import Answer, Hidden


@dataclass(frozen=True, slots=True)
class PlacedGpus:
    """GPUs on one node, by the node's name."""

    node: str
    gpus: int


@dataclass(frozen=True, slots=True)
class PickRow:
    """One grant or renewal with the numbers that decided; `lost` says why it was not applied.

    `lasts_s`: how long the term is, in pool seconds, where that is not the pool's lease length.
    """

    order: int
    granted: bool
    tenant: VisibleTenant
    gpu_type: str
    gpus: int
    places: tuple[PlacedGpus, ...]
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
    """A lease that the round ended before its expiry, as `PreemptionRow` has it later.

    `for_tenant` and `for_job` get its GPUs, None: out of sight; `numbers`: what the rule compared,
    where both tenants are in sight.
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
    """One lease that the round ended; `moved`: it granted the same job another one at once.

    `early`: by which rule and for whom it ended before its expiry.
    """

    tenant: VisibleTenant
    gpu_type: str
    gpus: int
    places: tuple[PlacedGpus, ...]
    reason: EndReason
    job: JobRef | None = None
    lost: str = ""
    moved: bool = False
    early: EarlyEnd | None = None


class SkipRow(Answer, frozen=True):
    """Jobs of one tenant that wait for one reason; `named` are some that the viewer may know."""

    tenant: VisibleTenant
    jobs: int
    gpus: int
    numbers: Numbers
    named: tuple[JobRef, ...] = ()


class SkipGroup(Answer, frozen=True, rename={"reason": "reason_code", "rows": "tenants"}):
    """All jobs that wait for one reason; `rows` as far as the viewer may see."""

    reason: Reason
    jobs: int
    gpus: int
    rows: tuple[SkipRow, ...]


class RoundPrice(Answer, frozen=True):
    """The price of a type in this round, and the one posted after it, with its formula."""

    gpu_type: str
    valid: Decimal
    posted: Decimal
    used: int
    capacity: int
    base: Hidden[Decimal]
    theta: Hidden[Decimal]
    surcharge: Hidden[Decimal | None]  # what the queue adds; None: nothing ever
    queued: Hidden[int | None]
