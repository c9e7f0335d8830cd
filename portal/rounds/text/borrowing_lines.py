"""A certificate's sentences on borrowing: no loss, and the order of borrowers and owners."""

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.charts.figures import duration, thousands
from portal.rounds.text.tenant_names import name_of, violators
from scheduling.selectors.rounds.certificates import CertificateItemView


def owners_sentence(row: CertificateItemView) -> str:
    """Return the sentence on quotas, for policies whose leases end only with their terms."""
    if row.count:
        text = _("A borrowing lease was ahead of {tenants}, or own quota was charged.")
        return text.format(tenants=violators(row))
    if not row.checked:
        return _("No tenant waits for GPUs of its quota, and no own quota was charged.")
    text = ngettext(
        "{count} queued job is owed GPUs of a quota: no borrowing lease started or went on in"
        " their way.",
        "{count} queued jobs are owed GPUs of a quota: no borrowing lease started or went on in"
        " their way.",
        row.checked,
    ).format(count=thousands(row.checked))
    if row.worst is None:
        return text
    free = _("A node is free for {tenant} within {time}.")
    return f"{text} {free.format(tenant=name_of(row.tenant), time=duration(row.worst))}"


def value_sentence(row: CertificateItemView) -> str:
    """Return the least margin between a borrower's value and price; the tenant stays private."""
    if row.count:
        text = _("{tenants} borrowed above the value of a GPU-hour to the job.")
        return text.format(tenants=violators(row))
    count = thousands(row.checked)
    if row.worst is None:
        return ngettext(
            "{count} new term borrows, none above the value of a GPU-hour to its job.",
            "{count} new terms borrow, none above the value of a GPU-hour to its job.",
            row.checked,
        ).format(count=count)
    return ngettext(
        "{count} new term borrows: to each job, a GPU-hour is worth at least {credits} credits"
        " more than the price.",
        "{count} new terms borrow: to each job, a GPU-hour is worth at least {credits} credits"
        " more than the price.",
        row.checked,
    ).format(count=count, credits=thousands(row.worst, 2))
