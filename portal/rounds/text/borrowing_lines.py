"""A certificate's sentences on borrowing: no loss, and the order of borrowers and owners."""

from __future__ import annotations

from portal.charts.figures import duration, plural, thousands
from portal.rounds.text.tenant_names import name_of, names_of
from scheduling.selectors.rounds.certificates import CertificateItemView


def owners_sentence(row: CertificateItemView) -> str:
    """Return the sentence on quotas, for policies whose leases end only with their terms."""
    if row.count:
        who = names_of(row) or plural(row.count, "tenant")
        return f"A lease that borrows went before {who}, or own quota was charged."
    if not row.checked:
        return "Nobody waits for GPUs of its quota, and none of it was charged."
    jobs = plural(row.checked, "queued job is owed", "queued jobs are owed")
    text = f"{jobs} GPUs of a quota: no lease that borrows began or went on in the way"
    if row.worst is None:
        return f"{text}."
    return f"{text}. A node is clear for {name_of(row.tenant)} in {duration(row.worst)} at most."


def value_sentence(row: CertificateItemView) -> str:
    """Return the smallest margin of a borrower over its price; the tenant stays private."""
    if row.count:
        who = names_of(row) or plural(row.count, "tenant")
        return f"{who} borrowed at more than a GPU-hour was worth to the job."
    terms = plural(row.checked, "new term borrows", "new terms borrow")
    if row.worst is None:
        return f"{terms}, none above what a GPU-hour is worth to its job."
    more = f"{thousands(row.worst, 2)} credits more than the price"
    return f"{terms}: to its job, each GPU-hour is worth {more} at least."
