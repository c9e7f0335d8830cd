"""Each tenant's throughput with its share, if the policy has shares before rounding."""

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.charts.figures import plural, thousands
from portal.common.tenant_badges import badge_of
from scheduling.selectors.rounds.certificates import CertificateView

SAME = 1e-4  # largest difference of figures that are shown as equal


def throughput_rows(seen: CertificateView | None) -> list[dict[str, Any]]:
    """Return the rows; empty if the certificate has none."""
    rows = seen.rows if seen else ()
    return [{"row": row, "badge": badge_of(row.tenant)} for row in rows if row.ideal is not None]


def throughput_title(seen: CertificateView) -> str:
    """Return whether each tenant does at least as well as with a split by weight."""
    rows = [row for row in seen.rows if row.ideal is not None]
    less = sum((row.ideal or 0) < row.alone * (1 - SAME) for row in rows)
    if less:
        return ngettext(
            "{count} of {job_types} does less than with a split by weight",
            "{count} of {job_types} do less than with a split by weight",
            less,
        ).format(count=thousands(less), job_types=plural(len(rows), "job type"))
    if seen.rows_hidden:
        return _("You do at least as well as with a split by weight")
    return _("Every tenant does at least as well as with a split by weight")
