"""A tenant's requests for quota, and the estimate of the next round with one, as text."""

from collections.abc import Mapping, Sequence

from django.utils.translation import gettext as _

from portal.charts.figures import plural, thousands
from portal.common.impact import ImpactLine
from scheduling.requests.quota_requests import QuotaAskRequest
from scheduling.services.quota_requests import OwnImpact


def impact_sentence(impact: OwnImpact, lines: Sequence[ImpactLine], wanted: QuotaAskRequest) -> str:
    """Return what the next round would give the tenant with the requested quota."""
    if not impact.is_estimated:
        return _("There is no estimate now, but you can send the request.")
    line = _line_of(lines, wanted)
    if line is None or not line.moves:
        held = line.row.after.got if line else 0
        text = _("The next round would give the tenant {gpus}, as without the request.")
        return text.format(gpus=plural(held, "GPU"))
    text = _("The next round would give the tenant {gpus} instead of {before}.")
    after, before = line.row.after.got, line.row.before.got
    return text.format(gpus=plural(after, "GPU"), before=thousands(before))


def change_text(wanted: QuotaAskRequest, quotas: Mapping[str, int]) -> str:
    """Return how the requested total differs from the present one; empty if it does not."""
    more = wanted.gpus - quotas.get(wanted.gpu_type, 0)
    if not more:
        return ""
    text = _("This is {gpus} more than now.") if more > 0 else _("This is {gpus} fewer than now.")
    return text.format(gpus=plural(abs(more), "GPU"))


def scaled_text(lines: Sequence[ImpactLine], wanted: QuotaAskRequest) -> str:
    """Return why the requested quota counts as fewer GPUs; empty if it counts in full."""
    line = _line_of(lines, wanted)
    if line is None or line.row.after.quota >= wanted.gpus:
        return ""
    text = _("All quotas exceed the GPUs of the pool, so {gpus} count as {scaled}.")
    return text.format(gpus=plural(wanted.gpus, "GPU"), scaled=thousands(line.row.after.quota))


def _line_of(lines: Sequence[ImpactLine], wanted: QuotaAskRequest) -> ImpactLine | None:
    return next((one for one in lines if one.row.gpu_type == wanted.gpu_type), None)
