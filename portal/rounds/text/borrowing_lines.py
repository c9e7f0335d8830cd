"""A certificate's sentences on borrowing: no loss, and the order of borrowers and owners."""

from portal.charts.figures import duration, plural, thousands
from portal.rounds.text.tenant_names import name_of, names_of
from scheduling.selectors.rounds.certificates import CertificateItemView


def owners_sentence(row: CertificateItemView) -> str:
    """Return the sentence on quotas, for policies whose leases end only with their terms."""
    if row.count:
        who = names_of(row) or plural(row.count, "tenant")
        return f"A borrowing lease was ahead of {who}, or own quota was charged."
    if not row.checked:
        return "No tenant waits for GPUs of its quota, and no own quota was charged."
    jobs = plural(row.checked, "queued job is owed", "queued jobs are owed")
    text = f"{jobs} GPUs of a quota: no borrowing lease started or went on in their way"
    if row.worst is None:
        return f"{text}."
    return f"{text}. A node is free for {name_of(row.tenant)} within {duration(row.worst)}."


def value_sentence(row: CertificateItemView) -> str:
    """Return the least margin between a borrower's value and price; the tenant stays private."""
    if row.count:
        who = names_of(row) or plural(row.count, "tenant")
        return f"{who} borrowed above the value of a GPU-hour to the job."
    terms = plural(row.checked, "new term borrows", "new terms borrow")
    if row.worst is None:
        return f"{terms}, none above the value of a GPU-hour to its job."
    more = f"{thousands(row.worst, 2)} credits more than the price"
    return f"{terms}: to each job, a GPU-hour is worth at least {more}."
