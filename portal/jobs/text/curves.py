"""Data of templates/jobs/_curves.html: a job's metrics as curves, and its links."""

from hashlib import blake2s
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from portal.charts.explore.curves import AXES, STEP, TIME, curve_chart
from portal.charts.figures import plural
from scheduling.models import Job
from scheduling.selectors.stored_texts import STORED
from scheduling.services.job_metrics import JobMetrics, job_metrics, reports_metrics

POINTS, CHARTS = 200, 24
POLL_S = 10
FILE = "-metric-"  # inside the names of files


def axis_named(text: str) -> str:
    """Return the horizontal axis of this name; unknown names give steps."""
    return text if text in AXES else STEP


def curves_context(job: Job, axis: str) -> dict[str, Any]:
    """Return the data of the region; `curves` is None if jobs of the pool are no programs."""
    if not reports_metrics(job):
        return {"curves": None}
    metrics = job_metrics(job, points=POINTS)
    digest = blake2s(repr((job.is_active, metrics)).encode(), digest_size=8).hexdigest()
    query = urlencode({"x": axis, "seen": digest})
    return {
        "curves": metrics,
        "curves_title": plural(len(metrics.metrics), "metric") if metrics.metrics else _("Metrics"),
        "curves_axis": axis,
        "curves_axes": {STEP: pgettext("axis", "Over steps"), TIME: pgettext("axis", "Over time")},
        "curves_charts": [
            chart
            for place, curve in enumerate(metrics.metrics[:CHARTS])
            if (
                chart := curve_chart(
                    curve, axis=axis, key="curve-" + str(place), file=f"{job.uid}{FILE}{place}"
                )
            )
        ],
        "curves_notes": _notes(metrics),
        "curves_digest": digest,
        "curves_url": f"{reverse('job-metrics', args=[job.uid])}?{query}",
        "curves_poll_s": POLL_S,
    }


def _notes(metrics: JobMetrics) -> list[str]:
    notes = []
    if metrics.refused:
        notes.append(_("Not shown: {reason}.").format(reason=STORED.shown(metrics.refused)))
    if metrics.is_thinned:
        notes.append(_("Points are left out; the first and the last of each curve are kept."))
    more = len(metrics.metrics) - CHARTS
    if more > 0:
        notes.append(_("{metrics} in the CSV.").format(metrics=plural(more, "more metric")))
    if metrics.left_out:
        notes.append(
            _(
                "{metrics} left out: too many, or their names have other characters than letters,"
                " digits and _ . / @ -."
            ).format(metrics=plural(metrics.left_out, "metric"))
        )
    return notes
