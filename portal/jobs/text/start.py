"""Texts about a queued job's position and expected start."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.charts.figures import plural, thousands
from portal.common.clocks import Clocks
from portal.common.starts import start_text
from scheduling.selectors.jobs.queue_order import FIRST_JOBS, QueueOrder, QueuePosition
from scheduling.selectors.jobs.start_estimates import StartView

IN_ORDER = gettext_noop("In queue order, with positions in the pool's queue.")
IN_ORDERS = gettext_noop("By pool, each in queue order, with positions in its queue.")


def start_context(
    job_id: int, order: QueueOrder, start: StartView | None, clocks: Clocks, calibration_url: str
) -> dict[str, Any]:
    """Return the data of templates/jobs/_start.html."""
    place = order.positions.get(job_id)
    return {
        "order": order,
        "place": place,
        "place_title": place_title(place, order),
        "start": None if start is None else start_text(start, clocks, calibration_url),
        "calibration_url": calibration_url,
    }


def place_title(place: QueuePosition | None, order: QueueOrder) -> str:
    if place is None and order.is_long:
        return _("More than {count} jobs queued in this pool").format(count=thousands(FIRST_JOBS))
    if place is None:
        return _("{jobs} queued in this pool").format(jobs=plural(len(order.keys), "job"))
    if order.is_long:
        return _("Position {place} of more than {count} in the pool's queue").format(
            place=thousands(place.pool), count=thousands(FIRST_JOBS)
        )
    return _("Position {place} of {count} in the pool's queue").format(
        place=thousands(place.pool), count=thousands(len(order.keys))
    )


def queues_text(queues: Mapping[str, QueueOrder]) -> str:
    """Return a sentence on the order of a list of queued jobs; `queues` are by name of the pool."""
    without = [name for name, order in sorted(queues.items()) if not order.is_ordered]
    if len(queues) < 2:
        if not without:
            return _(IN_ORDER)
        why = queues[without[0]].text
        return _("By arrival, without positions. {reason}").format(reason=why)
    if not without:
        return _(IN_ORDERS)
    if len(without) == len(queues):
        return _("By pool and arrival, without positions: these pools have no queue order now.")
    others = _("Without positions, by arrival: {pools}.").format(pools=", ".join(without))
    return f"{_(IN_ORDERS)} {others}"
