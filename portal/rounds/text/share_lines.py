"""A certificate's sentences on shares: envy, splits by weight, equality and efficiency."""

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from evenshare_core.fairness.certificate import Verdict
from portal.charts.figures import percent, thousands
from portal.rounds.text.tenant_names import name_of, other_name
from scheduling.selectors.rounds.certificates import CertificateItemView

SAME = 0.005  # a difference that the page shows as 0


def envy_sentence(row: CertificateItemView) -> str:
    """Return how much the tenant closest to envy would do with another's share."""
    if row.worst is None:
        return ""
    names = {"tenant": name_of(row.tenant), "other": other_name(row.other)}
    if row.verdict is Verdict.NOTED:
        return _(
            "It holds for all tenants whose jobs do not limit them. Of the other tenants,"
            " {tenant} would do {gain} more with the share of {other}."
        ).format(**names, gain=thousands(row.worst, 2))
    if row.count:
        text = _("By weight, {tenant} would do {gain} more with the share of {other}.")
        return text.format(**names, gain=thousands(row.worst, 2)) + _pairs(row)
    closest = ngettext("Closest of {count} pair:", "Closest of {count} pairs:", row.checked)
    is_same, is_own = row.worst > -SAME, names["tenant"] == names["other"]
    text = {
        (True, False): _("{tenant} would do the same with the share of {other}."),
        (True, True): _("{tenant} would do the same with the share of another of its job types."),
        (False, False): _("{tenant} would do {less} less with the share of {other}."),
        (False, True): _(
            "{tenant} would do {less} less with the share of another of its job types."
        ),
    }[is_same, is_own]
    less = thousands(-row.worst, 2)
    return f"{closest.format(count=thousands(row.checked))} {text.format(**names, less=less)}"


def _pairs(row: CertificateItemView) -> str:
    """Return in how many pairs a tenant envies another; empty for a single pair."""
    if row.count == 1:
        return ""
    text = _("This applies to {count} of {checked} pairs.")
    return f" {text.format(count=thousands(row.count), checked=thousands(row.checked))}"


def own_part_sentence(row: CertificateItemView) -> str:
    """Return the least throughput, relative to a split of the pool by weight."""
    if row.worst is None:
        return ""
    who, times = name_of(row.tenant), thousands(row.worst, 2)
    if not row.count:
        text = _(
            "The least is {tenant}: {times} times what its share of a split by weight would do."
        )
        return text.format(tenant=who, times=times)
    text = _("{tenant} does {times} times what its share of a split by weight would do.")
    said = text.format(tenant=who, times=times)
    if row.count == 1:
        return said
    others = _("{count} rows are below 1.")
    return f"{said} {others.format(count=thousands(row.count))}"


def equal_sentence(row: CertificateItemView) -> str:
    """Return whether all do the same per unit of weight."""
    if row.worst is None:
        return ""
    if row.count:
        text = _("Per unit of weight, the least is {difference} below the most.")
        return text.format(difference=percent(row.worst, 1))
    return ngettext(
        "{count} row does the same per unit of weight.",
        "{count} rows do the same per unit of weight.",
        row.checked,
    ).format(count=thousands(row.checked))


def pareto_sentence(row: CertificateItemView) -> str:
    """Return how much more throughput is possible without a loss to any tenant."""
    if row.worst is None or row.total is None:
        return ""
    total = thousands(row.total, 2)
    if not row.count:
        text = _("No other division raises the throughput {total} without a loss to a tenant.")
        return text.format(total=total)
    return _(
        "{gain} more than the throughput {total} is possible without a loss to any tenant."
    ).format(gain=thousands(row.worst, 2), total=total)
