"""The form that compares lease lengths over a pool's last days, and the newest comparison."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from django.utils.translation import gettext as _

from portal.charts.figures import duration, plural
from portal.common.forms import Field, request_inputs
from scheduling.models import Pool, Simulation
from scheduling.requests.simulations import DAYS, LeaseComparisonRequest
from scheduling.selectors.jobs.preemption_costs import read_pool_restart_s
from scheduling.selectors.pools.simulations import newest_lease_comparison

DEFAULT_DAYS = 3


@dataclass(frozen=True, slots=True)
class LeaseLengthsForm:
    """The data of templates/operate/_lease_lengths.html.

    `newest`: the newest comparison that is open or done, or None. `recommended_s`: its lease
    length, None while it is open. `text`: its finding or state.
    """

    fields: list[Field]
    error: str
    restart_hint: str
    newest: Simulation | None
    recommended_s: int | None
    text: str


def lease_lengths_form(
    pool: Pool, typed: Mapping[str, str], errors: Mapping[str, str]
) -> LeaseLengthsForm:
    """Return the form as typed; the default of a restart is its median in the pool."""
    restarts = read_pool_restart_s(pool.pk)
    typical_s = round(median(restarts)) if restarts else 0
    fields = request_inputs(
        LeaseComparisonRequest,
        ("days", "restart_s"),
        typed,
        errors,
        defaults={"days": str(DEFAULT_DAYS), "restart_s": str(typical_s)},
        choices={"days": tuple((str(one), str(one)) for one in DAYS)},
    )
    types = plural(len(restarts), "job type")
    hint = _("Measured median of {types}.").format(types=types) if restarts else ""
    newest = newest_lease_comparison(pool.pk)
    result = None if newest is None else newest.result
    best_s = None if result is None else result["recommended"]["lease_s"]
    return LeaseLengthsForm(
        fields, errors.get("", ""), hint, newest, best_s, _text(pool, newest, best_s)
    )


def _text(pool: Pool, newest: Simulation | None, best_s: int | None) -> str:
    if newest is None:
        return ""
    days = plural(newest.hours // 24, "day")
    if best_s is None:
        text = (
            _("A comparison of {days} is queued: {percent} %.")
            if newest.state == Simulation.State.QUEUED
            else _("A comparison of {days} is running: {percent} %.")
        )
        return text.format(days=days, percent=newest.progress_percent)
    if best_s == pool.lease_s:
        text = _("The last {days} recommend the present length, {length}.")
        return text.format(days=days, length=duration(best_s))
    text = _("The last {days} recommend {best} instead of {length}.")
    return text.format(days=days, best=duration(best_s), length=duration(pool.lease_s))
