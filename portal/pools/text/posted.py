"""A posted price, recomputed from its row."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from billing.selectors.prices import PriceRow
from evenshare_core.money.fixed_point import to_credits, to_micro
from evenshare_core.money.pricing import posted_price_micro, surcharge_target_micro
from evenshare_core.units import ONE_MILLI
from portal.charts.notes import PRICE_FORMULA, PRICE_WITH_SURCHARGE
from portal.common.clocks import Clocks


def posted_context(point: PriceRow, before: Sequence[PriceRow], times: Clocks) -> dict[str, Any]:
    """Return the data of a posted price's page; `before`: the price posted before, if any.

    `again` is recomputed from the row's numbers and must equal the price.
    """
    theta_milli = int(point.theta * ONE_MILLI)
    of_use = (to_micro(point.base), theta_milli, point.used, point.capacity)
    of_use_micro = posted_price_micro(*of_use)
    target = None
    if point.surcharge_cap is not None:
        cap_milli = int(point.surcharge_cap * ONE_MILLI)
        target = to_credits(
            surcharge_target_micro(*of_use, queued=point.queued or 0, cap_milli=cap_milli)
        )
    surcharge = point.surcharge or Decimal(0)
    formula = PRICE_FORMULA if point.surcharge is None else PRICE_WITH_SURCHARGE
    return {
        "price": point,
        "before": before[0] if before else None,
        "posted_at": times.instant(point.posted_at),
        "posted_by": point.valid_from_round - 1,
        "of_use": to_credits(of_use_micro),
        "target": target,
        "step": None if point.surcharge_step is None else point.base * point.surcharge_step,
        "again": to_credits(of_use_micro) + surcharge,
        "formula": _(formula),
    }
