"""A certificate's sentences on the order of service, promised starts and tried misreports."""

from evenshare_core.fairness.certificate import Property, Verdict
from portal.charts.figures import percent, plural, thousands
from portal.rounds.text.tenant_names import name_of, names_of
from scheduling.selectors.rounds.certificates import CertificateItemView

SAME = 0.005  # a gain that the page shows as 0
TIMES = "\N{MULTIPLICATION SIGN}"


def order_sentence(row: CertificateItemView) -> str:
    """Return whether the round served jobs in order, or skipped some that it could have served."""
    if row.verdict is Verdict.NOT_PROMISED:
        return "This policy serves in another order."
    if row.count:
        return _passed_over(row)
    picks = plural(row.checked, "pick")
    if row.total is None:  # an older certificate (below version 6), or hidden from the viewer
        return f"{picks} replayed in order: each was its turn."
    jobs = plural(int(row.total), "job that was left", "jobs that were left")
    return (
        f"{picks} compared with the {jobs} queued: no tenant further below its share could have"
        " been served before, and none could use the idle GPUs."
    )


def _passed_over(row: CertificateItemView) -> str:
    if row.tenant is not None and row.other is None and row.worst is not None:
        gang = plural(int(row.worst), "GPU")
        return f"{row.tenant.name} waits although there is room for a job of up to {gang}."
    if row.tenant is not None and row.other is not None:
        return (
            f"{row.other.name} was served before {row.tenant.name}, which was further below its"
            " share and could have been served."
        )
    who = names_of(row) or plural(row.count, "tenant")
    was = "was" if row.count == 1 else "were"
    return (
        f"{who} {was} served before a tenant further below its share, or left waiting although a"
        " job fitted the idle GPUs."
    )


def starts_sentence(row: CertificateItemView) -> str:
    """Return whether all promises of starts are kept, and how many GPUs are free for them."""
    if row.count:
        broken = plural(row.count, "promise of a start is", "promises of starts are")
        who = names_of(row)
        return f"{broken} broken: of {who}." if who else f"{broken} broken."
    text = f"{plural(row.checked, 'job has', 'jobs have')} a promised start, and none is late"
    if row.total is None:  # hidden from the viewer
        return f"{text}."
    kept = plural(int(row.total), "free GPU is", "free GPUs are")
    return f"{text}. {kept} kept for them."


def misreport_sentence(row: CertificateItemView) -> str:
    """Return the best gain of the misreports of a row, and how many were tried."""
    if row.worst is None:
        return ""
    who = name_of(row.tenant)
    known = f" No {_kind(row)} gains at all: exact, by {row.bound}." if row.bound else ""
    if row.count:
        known = ""  # a trial that gained contradicts the claim
    if not row.of:  # a certificate below version 6
        tried = f"{plural(row.checked, 'misreport')} of {who} tried"
    else:
        tried = f"Best of {row.checked} out of {plural(row.of, 'misreport')} of {who} tried here"
    how = scaling_text(row.factor, row.gpu_type) if row.factor is not None else "the best of them"
    whole = thousands(row.total, 2)
    if row.count:
        part = f" ({percent(row.worst / row.total, 1)})" if row.total else ""
        return f"{tried}: {how} would gain {thousands(row.worst, 2)} over {whole}{part}."
    if row.worst > -SAME:
        return f"{tried}: none of them gains over {whole}.{known}"
    return f"{tried}: {how} loses {thousands(-row.worst, 2)} of {whole}.{known}"


def _kind(row: CertificateItemView) -> str:
    return "overstating" if row.name is Property.OVERSTATING else "understating"


def scaling_text(factor: float, gpu_type: str) -> str:
    """Return "x2 on v100" for 2.0, "v100"; an empty type means all but the slowest."""
    return f"{TIMES}{factor:.3g} on {gpu_type or 'all but the slowest type'}"
