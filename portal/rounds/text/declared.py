"""A certificate's sentence on speeds: the overclaims, and that they gain nothing.

The page's rows list visible tenants, and names of job types only if they are the viewer's own.
"""

from typing import Any

from evenshare_core.fairness.certificate import Verdict
from evenshare_core.units import ONE_MILLI
from portal.charts.figures import percent, plural
from portal.charts.speeds import value_text
from portal.common.tenant_badges import badge_of
from portal.rounds.text.tenant_names import name_of, names_of
from scheduling.selectors.rounds.certificates import CertificateItemView, CertificateView


def declared_sentence(row: CertificateItemView) -> str:
    """Return how many job types were declared faster than measured, and the largest excess."""
    types = plural(row.checked, "job type")
    if row.verdict is Verdict.VIOLATED:
        who = names_of(row) or plural(row.count, "job type")
        return f"For {who} the round used speeds other than the measured ones."
    if not row.count:
        was = "was" if row.checked == 1 else "were"
        return f"{types} {was} measured on several GPU types, none declared faster."
    was = "was" if row.count == 1 else "were"
    text = f"{row.count} of {types} {was} declared faster than measured"
    if row.worst is None:
        return f"{text}."
    return f"{text}, by at most {percent(row.worst, 1)}: {name_of(row.tenant)}'s."


def overclaim_context(seen: CertificateView | None) -> dict[str, Any]:
    """Return the overclaims of a round as its page shows them."""
    if seen is None or not (seen.overclaims or seen.overclaims_hidden):
        return {"overclaims": []}
    count = len(seen.overclaims) + seen.overclaims_hidden
    rows = [
        {
            "row": row,
            "badge": badge_of(row.tenant),
            "declared": value_text(row.declared_milli, 3),
            "measured": value_text(row.measured_milli, 3),
            "excess": percent(row.excess_milli / ONE_MILLI, 1),
        }
        for row in seen.overclaims
    ]
    return {
        "overclaims": rows,
        "overclaim_title": f"{plural(count, 'speed was', 'speeds were')} declared faster than"
        " measured",
        "overclaims_hidden": seen.overclaims_hidden,
    }
