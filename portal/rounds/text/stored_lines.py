"""A certificate's lines on capacity, gangs and leases, checked again on the stored bytes."""

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from evenshare_core.fairness.certificate import Verdict
from portal.charts.figures import thousands
from portal.charts.notes import Note, Promise, count_note
from scheduling.selectors.rounds.certificates import CertificateItemView
from scheduling.selectors.rounds.promises import DecisionCounts


def capacity_sentence(row: CertificateItemView) -> str:
    """Return whether no node gives more GPUs than it has."""
    if row.count:
        return ngettext(
            "{count} node gives more GPUs than it has.",
            "{count} nodes give more GPUs than they have.",
            row.count,
        ).format(count=thousands(row.count))
    if row.verdict is Verdict.VIOLATED:
        text = _("Shares before rounding exceed a type by {gpus} GPUs.")
        return text.format(gpus=thousands(row.worst, 2))
    leased = int(row.total or 0)
    return ngettext(
        "{count} GPU is leased, and no node exceeds its GPUs.",
        "{count} GPUs are leased, and no node exceeds its GPUs.",
        leased,
    ).format(count=thousands(leased))


def gang_sentence(row: CertificateItemView) -> str:
    """Return whether each job holds all of its GPUs."""
    if not row.count:
        return whole_text(row.checked)
    return ngettext(
        "{count} job holds a wrong number of GPUs.",
        "{count} jobs hold a wrong number of GPUs.",
        row.count,
    ).format(count=thousands(row.count))


def whole_text(leases: int) -> str:
    """Return how many leases have all GPUs of their jobs."""
    text = ngettext("All {count} lease is whole.", "All {count} leases are whole.", leases)
    return text.format(count=thousands(leases))


def single_sentence(row: CertificateItemView) -> str:
    """Return whether no job holds two leases."""
    if row.count:
        text = ngettext(
            "{count} job holds more than one.", "{count} jobs hold more than one.", row.count
        )
        return text.format(count=thousands(row.count))
    text = ngettext("{count} job holds one.", "{count} jobs hold one each.", row.checked)
    return text.format(count=thousands(row.checked))


def capacity_text(c: DecisionCounts) -> str:
    """Return the sum of leased and free GPUs, and the fullest node."""
    given, there = c.fullest
    return _(
        "{leased} leased + {free} free = {total}; the fullest node gives {given} of {there}."
    ).format(
        leased=thousands(c.leased),
        free=thousands(c.capacity - c.leased),
        total=thousands(c.capacity),
        given=given,
        there=there,
    )


def capacity_note(c: DecisionCounts) -> Note:
    """Return the sum of leased and free GPUs as line items."""
    free = c.capacity - c.leased
    return count_note(_("GPUs"), [(_("leased"), c.leased), (_("free"), free)])


def leases_note(c: DecisionCounts) -> Note:
    """Return where the leases after the round come from."""
    return count_note(
        _("Leases after the round"),
        [(_("went on"), c.kept), (_("renewed"), c.renewed), (_("granted"), c.granted)],
    )


def stored_lines(c: DecisionCounts) -> list[Promise]:
    """Return the lines that no certificate has."""
    return [
        stored_line(
            _("Own GPUs stay within quota"),
            c.breaks("own_and_borrowed"),
            _("{own} own + {borrowed} borrowed = {leased}.").format(
                own=thousands(c.own), borrowed=thousands(c.borrowed), leased=thousands(c.leased)
            ),
            count_note(_("GPUs leased"), [(_("own"), c.own), (_("borrowed"), c.borrowed)]),
        ),
        _ends(c),
        stored_line(
            _("Borrowed GPUs cost the posted price, within limits"),
            c.breaks("limits", "prices"),
            _limits_text(c),
        ),
        stored_line(_("Every queued job has one reason"), c.breaks("reasons"), _reasons_text(c)),
    ]


def stored_line(name: str, broken: int, text: str, note: Note | None = None) -> Promise:
    """Return a line that holds unless rows break it."""
    if broken:
        return Promise(name, "violated", breaks_text(broken), note)
    return Promise(name, "holds", text, note)


def breaks_text(rows: int) -> str:
    """Return how many rows break a line."""
    text = ngettext("{count} row breaks it.", "{count} rows break it.", rows)
    return text.format(count=thousands(rows))


def _limits_text(c: DecisionCounts) -> str:
    parts = (
        (
            ngettext("{count} new term borrows.", "{count} new terms borrow.", c.borrowing),
            c.borrowing,
        ),
        (
            ngettext(
                "{count} job has a maximum price.", "{count} jobs have a maximum price.", c.capped
            ),
            c.capped,
        ),
        (
            ngettext(
                "{count} tenant has a credit limit.",
                "{count} tenants have a credit limit.",
                c.budgeted,
            ),
            c.budgeted,
        ),
    )
    return " ".join(text.format(count=thousands(count)) for text, count in parts)


def _reasons_text(c: DecisionCounts) -> str:
    queued = ngettext("{count} job is queued.", "{count} jobs are queued.", c.waiting)
    given = ngettext("{count} reason is given.", "{count} reasons are given.", c.explained)
    return (
        f"{queued.format(count=thousands(c.waiting))} {given.format(count=thousands(c.explained))}"
    )


def _ends(c: DecisionCounts) -> Promise:
    """Return which leases ended: expired ones, and those with notice before."""
    broken = c.breaks("known_leases", "running_leases", "instants")
    on_time = c.ended - c.preempted
    text = ngettext(
        "{count} lease was due: {renewed} renewed, {ended} ended.",
        "{count} leases were due: {renewed} renewed, {ended} ended.",
        c.expired,
    ).format(count=thousands(c.expired), renewed=thousands(c.renewed), ended=thousands(on_time))
    note = count_note(_("Leases due"), [(_("renewed"), c.renewed), (_("ended"), on_time)])
    if not c.preempted:
        return stored_line(_("Leases end when they are due, not before"), broken, text, note)
    early = ngettext(
        "{count} other lease got notice before, after its minimum runtime.",
        "{count} other leases got notice before, after their minimum runtime.",
        c.preempted,
    ).format(count=thousands(c.preempted))
    return stored_line(
        _("Leases end when they are due, or with notice after their minimum runtime"),
        broken,
        f"{text} {early}",
        note,
    )
