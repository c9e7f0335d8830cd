"""The cost of one more GPU for a tenant now."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.utils.translation import gettext as _

from portal.charts.figures import HOUR_S, plural
from scheduling.selectors.tenants.prospects import StartProspect


@dataclass(frozen=True, slots=True)
class OneMore:
    """The cost of one more GPU of a type for a tenant, in credits.

    `hour` and `lease`: for an hour and for a lease, at the posted price. `after`: the next posted
    price if the GPU were in use and nothing else changed. `why`: the reason for missing figures.
    """

    gpu_type: str
    hour: Decimal | None
    lease: Decimal | None
    after: Decimal | None
    why: str


def one_more_gpu(prospects: Sequence[StartProspect], lease_s: int) -> list[OneMore]:
    """Return the cost of one more GPU of each type; it is free within the tenant's own quota."""
    return [_one_more(row, lease_s) for row in prospects]


def _one_more(row: StartProspect, lease_s: int) -> OneMore:
    after = row.price_with(1)
    if row.own_left:
        why = _("Own quota: {gpus} left.").format(gpus=plural(row.own_left, "GPU"))
        return OneMore(row.gpu_type, Decimal(0), Decimal(0), after, why)
    if row.may_borrow is not None and row.borrowed_held >= row.may_borrow:
        limit = plural(row.may_borrow, "GPU")
        why = _("At its borrowing limit of {gpus}.").format(gpus=limit)
        return OneMore(row.gpu_type, None, None, None, why)
    why = "" if row.free else _("No GPU is free now.")
    return OneMore(row.gpu_type, row.price, row.price * lease_s / HOUR_S, after, why)
