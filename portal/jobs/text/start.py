"""Texts about a queued job's position and expected start."""

from collections.abc import Mapping
from typing import Any

from portal.charts.figures import plural, thousands
from portal.common.clocks import Clocks
from portal.common.starts import start_text
from scheduling.selectors.jobs.queue_order import FIRST_JOBS, QueueOrder, QueuePosition
from scheduling.selectors.jobs.start_estimates import StartView

IN_ORDER = "In queue order, with positions in the pool's queue."
IN_ORDERS = "By pool, each in queue order, with positions in its queue."


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
        return f"More than {thousands(FIRST_JOBS)} jobs queued in this pool"
    if place is None:
        return f"{plural(len(order.keys), 'job')} queued in this pool"
    most = f"more than {thousands(FIRST_JOBS)}" if order.is_long else thousands(len(order.keys))
    return f"Position {thousands(place.pool)} of {most} in the pool's queue"


def queues_text(queues: Mapping[str, QueueOrder]) -> str:
    """Return a sentence on the order of a list of queued jobs; `queues` are by name of the pool."""
    without = [name for name, order in sorted(queues.items()) if not order.is_ordered]
    if len(queues) < 2:
        why = "".join(queues[name].text for name in without)
        return f"By arrival, without positions. {why}" if without else IN_ORDER
    if not without:
        return IN_ORDERS
    if len(without) == len(queues):
        return "By pool and arrival, without positions: these pools have no queue order now."
    return f"{IN_ORDERS} Without positions, by arrival: {', '.join(without)}."
