"""A certificate's sentence on speeds: the overclaims, and that they gain nothing.

The page's rows list visible tenants, and names of job types only if they are the viewer's own.
"""

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from evenshare_core.fairness.certificate import Verdict
from evenshare_core.units import ONE_MILLI
from portal.charts.figures import percent, plural, thousands
from portal.charts.speeds import value_text
from portal.common.tenant_badges import badge_of
from portal.rounds.text.tenant_names import name_of, names_of
from scheduling.selectors.rounds.certificates import CertificateItemView, CertificateView


def declared_sentence(row: CertificateItemView) -> str:
    """Return how many job types were declared faster than measured, and the largest excess."""
    if row.verdict is Verdict.VIOLATED:
        text = _("For {who} the round used speeds other than the measured ones.")
        return text.format(who=names_of(row) or plural(row.count, "job type"))
    if not row.count:
        return ngettext(
            "{count} job type was measured on several GPU types, none declared faster.",
            "{count} job types were measured on several GPU types, none declared faster.",
            row.checked,
        ).format(count=thousands(row.checked))
    counts = {"count": thousands(row.count), "job_types": plural(row.checked, "job type")}
    if row.worst is None:
        return ngettext(
            "{count} of {job_types} was declared faster than measured.",
            "{count} of {job_types} were declared faster than measured.",
            row.count,
        ).format(**counts)
    return ngettext(
        "{count} of {job_types} was declared faster than measured, by at most {excess}:"
        " {tenant}'s.",
        "{count} of {job_types} were declared faster than measured, by at most {excess}:"
        " {tenant}'s.",
        row.count,
    ).format(**counts, excess=percent(row.worst, 1), tenant=name_of(row.tenant))


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
        "overclaim_title": ngettext(
            "{count} speed was declared faster than measured",
            "{count} speeds were declared faster than measured",
            count,
        ).format(count=thousands(count)),
        "overclaims_hidden": seen.overclaims_hidden,
    }
