"""A certificate's sentences on the order of service, promised starts and tried misreports."""

from decimal import Decimal

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from evenshare_core.fairness.certificate import Property, Verdict
from portal.charts.figures import percent, plural, thousands
from portal.rounds.text.tenant_names import name_of, names_of, violators
from scheduling.selectors.rounds.certificates import CertificateItemView

SAME = 0.005  # a gain that the page shows as 0
TIMES = "\N{MULTIPLICATION SIGN}"


def order_sentence(row: CertificateItemView) -> str:
    """Return whether the round served jobs in order, or skipped some that it could have served."""
    if row.verdict is Verdict.NOT_PROMISED:
        return _("This policy serves in another order.")
    if row.count:
        return _passed_over(row)
    if row.total is None:  # an older certificate (below version 6), or hidden from the viewer
        text = ngettext(
            "{count} pick replayed in order: each was its turn.",
            "{count} picks replayed in order: each was its turn.",
            row.checked,
        )
        return text.format(count=thousands(row.checked))
    return _(
        "{picks} compared with the {jobs} queued: no tenant further below its share could have"
        " been served before, and none could use the idle GPUs."
    ).format(
        picks=plural(row.checked, "pick"),
        jobs=plural(int(row.total), "job that was left", "jobs that were left"),
    )


def _passed_over(row: CertificateItemView) -> str:
    if row.tenant is not None and row.other is None and row.worst is not None:
        return _("{tenant} waits although there is room for a job of up to {gpus}.").format(
            tenant=row.tenant.name, gpus=plural(int(row.worst), "GPU")
        )
    if row.tenant is not None and row.other is not None:
        return _(
            "{other} was served before {tenant}, which was further below its share and could have"
            " been served."
        ).format(other=row.other.name, tenant=row.tenant.name)
    return ngettext(
        "{tenants} was served before a tenant further below its share, or left waiting although a"
        " job fitted the idle GPUs.",
        "{tenants} were served before a tenant further below its share, or left waiting although a"
        " job fitted the idle GPUs.",
        row.count,
    ).format(tenants=violators(row))


def starts_sentence(row: CertificateItemView) -> str:
    """Return whether all promises of starts are kept, and how many GPUs are free for them."""
    if row.count:
        return _broken_starts(row)
    text = ngettext(
        "{count} job has a promised start, and none is late.",
        "{count} jobs have a promised start, and none is late.",
        row.checked,
    ).format(count=thousands(row.checked))
    if row.total is None:  # hidden from the viewer
        return text
    gpus = int(row.total)
    kept = ngettext(
        "{count} free GPU is kept for them.", "{count} free GPUs are kept for them.", gpus
    )
    return f"{text} {kept.format(count=thousands(gpus))}"


def _broken_starts(row: CertificateItemView) -> str:
    text = ngettext(
        "{count} promise of a start is broken: of {tenants}.",
        "{count} promises of starts are broken: of {tenants}.",
        row.count,
    )
    who = names_of(row)
    if not who:
        text = ngettext(
            "{count} promise of a start is broken.",
            "{count} promises of starts are broken.",
            row.count,
        )
    return text.format(count=thousands(row.count), tenants=who)


def misreport_sentence(row: CertificateItemView) -> str:
    """Return the best gain of the misreports of a row, and how many were tried."""
    if row.worst is None:
        return ""
    how = _("the best of them")
    if row.factor is not None:
        how = scaling_text(row.factor, row.gpu_type)
    whole = thousands(row.total, 2)
    if row.count:
        part = f" ({percent(row.worst / row.total, 1)})" if row.total else ""
        text = _("{report} would gain {gain} over {whole}.").format(
            report=how, gain=thousands(row.worst, 2), whole=whole + part
        )
        return f"{_tried(row)} {text}"  # a trial that gained contradicts the claim
    if row.worst > -SAME:
        text = _("none of them gains over {whole}.").format(whole=whole)
    else:
        text = _("{report} loses {loss} of {whole}.").format(
            report=how, loss=thousands(-row.worst, 2), whole=whole
        )
    return " ".join(filter(None, (_tried(row), text, _proof(row))))


def _tried(row: CertificateItemView) -> str:
    """Return how many misreports were tried; a certificate below version 6 has not searched."""
    who = name_of(row.tenant)
    if not row.of:
        return ngettext(
            "{count} misreport of {tenant} tried:",
            "{count} misreports of {tenant} tried:",
            row.checked,
        ).format(count=thousands(row.checked), tenant=who)
    return ngettext(
        "Best of {tried} out of {count} misreport of {tenant} tried here:",
        "Best of {tried} out of {count} misreports of {tenant} tried here:",
        row.of,
    ).format(tried=thousands(row.checked), count=thousands(row.of), tenant=who)


def _proof(row: CertificateItemView) -> str:
    """Return the claim that a theorem proves, if there is one."""
    if not row.bound:
        return ""
    if row.name is Property.OVERSTATING:
        return _("No overstating gains at all: exact, by {theorem}.").format(theorem=row.bound)
    return _("No understating gains at all: exact, by {theorem}.").format(theorem=row.bound)


def scaling_text(factor: float, gpu_type: str) -> str:
    """Return "x2 on v100" for 2.0, "v100"; an empty type means all but the slowest."""
    by = TIMES + thousands(Decimal(f"{factor:.3g}"))
    if not gpu_type:
        return _("{factor} on all but the slowest type").format(factor=by)
    return _("{factor} on {gpu_type}").format(factor=by, gpu_type=gpu_type)
