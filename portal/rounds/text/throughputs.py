"""Each tenant's throughput with its share, if the policy has shares before rounding."""

from typing import Any

from portal.charts.figures import plural
from portal.common.tenant_badges import badge_of
from scheduling.selectors.rounds.certificates import CertificateView

SAME = 1e-4  # largest difference of figures that are shown as equal


def throughput_rows(seen: CertificateView | None) -> list[dict[str, Any]]:
    """Return the rows; empty if the certificate has none."""
    rows = seen.rows if seen else ()
    return [{"row": row, "badge": badge_of(row.tenant)} for row in rows if row.ideal is not None]


def throughput_title(seen: CertificateView) -> str:
    """Return whether each tenant does at least as well as on its own part."""
    rows = [row for row in seen.rows if row.ideal is not None]
    less = sum((row.ideal or 0) < row.alone * (1 - SAME) for row in rows)
    if less:
        verb = "does less than on its own part" if less == 1 else "do less than on their own part"
        return f"{less} of {plural(len(rows), 'job type')} {verb}"
    if seen.rows_hidden:
        return "You do at least as well as on your own part"
    return "Every tenant does at least as well as on its own part"
