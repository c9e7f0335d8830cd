"""A round's certificate as text: a plain sentence per line, made from its numbers.

Lines of fairness were measured when the round was decided, and stored with it. The others are the
engine's invariants, checked again on the stored bytes whenever the page is opened.
"""

from collections.abc import Callable

from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from evenshare_core.fairness.certificate import Basis, Property, Verdict
from portal.charts.figures import percent, plural, thousands
from portal.charts.notes import CertificatePanel, LineItem, Note, Promise
from portal.rounds.text.borrowing_lines import owners_sentence, value_sentence
from portal.rounds.text.declared import declared_sentence
from portal.rounds.text.fairness_lines import (
    misreport_sentence,
    order_sentence,
    starts_sentence,
)
from portal.rounds.text.share_lines import (
    envy_sentence,
    equal_sentence,
    own_part_sentence,
    pareto_sentence,
)
from portal.rounds.text.stored_lines import (
    breaks_text,
    capacity_note,
    capacity_sentence,
    capacity_text,
    gang_sentence,
    leases_note,
    single_sentence,
    stored_line,
    stored_lines,
    whole_text,
)
from portal.rounds.text.tenant_names import name_of, violators
from scheduling.selectors.rounds.certificates import CertificateItemView, CertificateView
from scheduling.selectors.rounds.following import WHY, Following
from scheduling.selectors.rounds.one_round import RoundView
from scheduling.selectors.rounds.promises import DecisionCounts
from scheduling.selectors.stored_texts import STORED

P = Property
NAMES = {
    P.CAPACITY: gettext_noop("No GPU is granted twice"),
    P.GANG: gettext_noop("Each job holds all of its GPUs"),
    P.SINGLE_HOLD: gettext_noop("No job holds two leases"),
    P.LONG_TERM_ORDER: gettext_noop("Furthest below fair share goes first"),
    P.QUOTA_GUARANTEE: gettext_noop("Quotas are guaranteed"),
    P.PROMISED_STARTS: gettext_noop("Promised starts are kept"),
    P.TRADES: gettext_noop("No trade makes a tenant worse off"),
    P.INDIVIDUAL_RATIONALITY: gettext_noop("Individual rationality"),
    P.ENVY_FREE: gettext_noop("Envy-freeness"),
    P.SHARING_INCENTIVE: gettext_noop("Sharing incentive"),
    P.EQUAL_THROUGHPUT: gettext_noop("All progress equally, by weight"),
    P.PARETO: gettext_noop("Pareto efficiency"),
    P.OVERSTATING: gettext_noop("Strategy-proofness (overstating)"),
    P.UNDERSTATING: gettext_noop("Strategy-proofness (understating)"),
    P.MEASURED_SPEEDS: gettext_noop("Measured speeds are used"),
}
# Explanations of standard names that are not clear by themselves.
MEANINGS = {
    P.QUOTA_GUARANTEE: gettext_noop(
        "No tenant waits for GPUs of its quota that others could return"
    ),
    P.PROMISED_STARTS: gettext_noop("A promised job starts in time, and its GPUs are kept for it"),
    P.TRADES: gettext_noop(
        "Each rate is between the worth of a fast GPU to the seller and to the buyer"
    ),
    P.INDIVIDUAL_RATIONALITY: gettext_noop(
        "No borrowed GPU-hour costs more than its value to the job"
    ),
    P.ENVY_FREE: gettext_noop("No tenant prefers another's share"),
    P.SHARING_INCENTIVE: gettext_noop(
        "No tenant does worse than with a split of the pool by weight"
    ),
    P.PARETO: gettext_noop("No tenant could do better without a loss to another"),
    P.OVERSTATING: gettext_noop("Overstating speeds does not pay"),
    P.UNDERSTATING: gettext_noop("Understating speeds does not pay"),
    P.MEASURED_SPEEDS: gettext_noop("Declared speeds gain nothing if measured speeds exist"),
}
SAID = {
    Verdict.HOLDS: "holds",
    Verdict.NOTED: "note",
    Verdict.VIOLATED: "violated",
    Verdict.NOT_PROMISED: "unpromised",
    Verdict.NOT_APPLICABLE: "not_applicable",
    Verdict.UNKNOWN: "unmeasured",
}
HIDDEN = gettext_noop("Hidden: the number is another tenant's.")
# For these lines, sentences omit numbers that the viewer may not see.
WITHOUT_NUMBERS = frozenset({P.LONG_TERM_ORDER, P.INDIVIDUAL_RATIONALITY, P.MEASURED_SPEEDS})
UNVERIFIED = gettext_noop("It could not be verified.")
UNIT = gettext_noop("Throughput is counted in GPUs of the slowest type.")


def round_certificate(view: RoundView, seen: CertificateView | None) -> CertificatePanel:
    checked = view.decision.checked if view.decision else None
    promises: list[Promise] = []
    if seen is None or seen.failure:
        promises += _first(checked) if checked else []
        promises += [
            _named_promise(name, "unclaimed", _("Not measured on this round."))
            for name in (P.ENVY_FREE, P.SHARING_INCENTIVE, P.PARETO, P.OVERSTATING)
        ]
    else:
        promises += [_line(row, checked) for row in seen.findings]
    promises += stored_lines(checked) if checked else []
    promises += [_follows(view.following)] if view.following else []
    return CertificatePanel(
        title=_("Certificate of round {number}").format(number=thousands(view.round.number)),
        promises=tuple(promises),
        text=_measured_text(view, seen),
        alarm=_alarm(view, seen),
        issued=_("Issued by policy {policy} {version}.").format(
            policy=view.round.policy, version=view.round.policy_version
        ),
    )


def _alarm(view: RoundView, seen: CertificateView | None) -> str:
    """Return a warning about a missing or differing certificate; empty if it is sound."""
    if view.damages or (view.decision is not None and view.decision.again is False):
        return _(UNVERIFIED)
    return _("It could not be certified.") if seen is not None and seen.failure else ""


def _measured_text(view: RoundView, seen: CertificateView | None) -> str:
    """Return the certificate's statement on how it was checked."""
    if view.damages and view.decision is None:
        return _(
            "The round is damaged: this page cannot measure it again, and its content is"
            " unverified."
        )
    if view.decision is None:
        return _(
            "Measured when the round was decided. Its data is no longer kept, so this page"
            " cannot measure it again."
        )
    if seen is None:
        return _("Checked on the stored data when you opened this page.")
    if seen.failure:
        text = _("This round could not be certified: {reason}.")
        return text.format(reason=seen.failure)
    return _measured_again(view.decision.again)


def _measured_again(is_same: bool | None) -> str:
    """Return how the certificate was measured, and whether a second measurement agrees.

    `is_same` is None if it was not measured again.
    """
    if is_same:
        return _(
            "Measured independently of the policy when the round was decided, and again when you"
            " opened this page: the same."
        )
    text = _("Measured independently of the policy when the round was decided.")
    if is_same is None:
        return text
    differs = _("Measured again when you opened this page, it DIFFERS: check the code.")
    return f"{text} {differs}"


def _follows(following: Following) -> Promise:
    """Return whether the round starts with the state that the round before left."""
    before = thousands(following.before)
    name = _("Follows from round {number}").format(number=before)
    if not following.before:
        name = _("First round")
    if following.follows is None:
        return Promise(name, "unmeasured", " ".join(map(WHY.shown, following.why)))
    if not following.follows:
        return Promise(name, "violated", " ".join(map(WHY.shown, following.why[:3])))
    if not following.before:
        return Promise(name, "holds", _("It is the pool's first round."))
    text = _("It starts with the GPU-time sums, memory, prices and leases of round {number}.")
    return Promise(name, "holds", text.format(number=before))


# ---- lines of fairness ----


def _line(row: CertificateItemView, checked: DecisionCounts | None) -> Promise:
    broken = checked.breaks(*RULES.get(row.name, ())) if checked else 0
    if broken:  # the stored bytes prove it, so the stored verdict does not matter
        return _named_promise(row.name, "violated", breaks_text(broken))
    verdict, text = SAID[row.verdict], _sentence(row)
    if row.name is P.CAPACITY and checked and verdict == "holds":
        text = capacity_text(checked)
    return _named_promise(row.name, verdict, text, _note(row))


def _named_promise(name: Property, verdict: str, text: str, note: Note | None = None) -> Promise:
    meaning = _(MEANINGS[name]) if name in MEANINGS else ""
    return Promise(_(NAMES[name]), verdict, text, note, meaning)


RULES: dict[Property, tuple[str, ...]] = {
    P.CAPACITY: ("node_capacity",),
    P.GANG: ("gang", "jobs"),
    P.SINGLE_HOLD: ("once",),
}


def _sentence(row: CertificateItemView) -> str:
    if row.why:
        return f"{capfirst(_(STORED.shown(row.why)))}."
    if row.hidden and row.name not in WITHOUT_NUMBERS:
        return _(HIDDEN)
    return SENTENCES[row.name](row)


def _guarantee(row: CertificateItemView) -> str:
    if row.verdict is Verdict.NOT_PROMISED:
        return _("This policy promises no time within which quota becomes available.")
    if row.basis is Basis.TERMS:
        return owners_sentence(row)
    if row.count:
        return ngettext(
            "{tenants} was left waiting although leases of others could have ended.",
            "{tenants} were left waiting although leases of others could have ended.",
            row.count,
        ).format(tenants=violators(row))
    return ngettext(
        "{count} queued job is owed GPUs of a quota: on no node could the end of others' leases"
        " make enough room.",
        "{count} queued jobs are owed GPUs of a quota: on no node could the end of others' leases"
        " make enough room.",
        row.checked,
    ).format(count=thousands(row.checked))


def _trades(row: CertificateItemView) -> str:
    """Return a sentence on a round's trades: the least gain, and the quota that open ones move."""
    if row.count:
        text = _("The trades or quotas of {tenants} break a rule.")
        return text.format(tenants=violators(row))
    count = thousands(row.checked)
    if row.checked and row.worst is not None:
        return ngettext(
            "{count} trade; the least gain is {tenant}'s: {gain}.",
            "{count} trades; the least gain is {tenant}'s: {gain}.",
            row.checked,
        ).format(count=count, tenant=name_of(row.tenant), gain=percent(row.worst - 1, 1))
    text = _("No trade was made or undone in this round.")
    if row.checked:
        text = ngettext("{count} trade was undone.", "{count} trades were undone.", row.checked)
        text = text.format(count=count)
    # The total is hidden if rows of other tenants are.
    if row.total is None:
        return text
    moved = _("Open trades move {gpus} of quota.").format(gpus=plural(int(row.total), "GPU"))
    return f"{text} {moved}"


SENTENCES: dict[Property, Callable[[CertificateItemView], str]] = {
    P.CAPACITY: capacity_sentence,
    P.GANG: gang_sentence,
    P.SINGLE_HOLD: single_sentence,
    P.LONG_TERM_ORDER: order_sentence,
    P.QUOTA_GUARANTEE: _guarantee,
    P.PROMISED_STARTS: starts_sentence,
    P.TRADES: _trades,
    P.INDIVIDUAL_RATIONALITY: value_sentence,
    P.ENVY_FREE: envy_sentence,
    P.SHARING_INCENTIVE: own_part_sentence,
    P.EQUAL_THROUGHPUT: equal_sentence,
    P.PARETO: pareto_sentence,
    P.OVERSTATING: misreport_sentence,
    P.UNDERSTATING: misreport_sentence,
    P.MEASURED_SPEEDS: declared_sentence,
}
BASES = {
    Basis.LEASES: gettext_noop("GPUs held after the round"),
    Basis.IDEALS: gettext_noop("shares before rounding to whole GPUs"),
    Basis.SUMS: gettext_noop(
        "GPU-time received and due at each pick, and on the jobs that could have been served"
    ),
    Basis.TRADES: gettext_noop(
        "the records of trades, and the speeds of the jobs that they were made for"
    ),
    Basis.TERMS: gettext_noop("leases after the round, and the ends of borrowing terms"),
    Basis.VALUES: gettext_noop("the declared values of jobs and the prices posted for the round"),
    Basis.PROBES: gettext_noop("the policy, run again with other speeds"),
    Basis.SPEEDS: gettext_noop("declared speeds of job types and the reports of their jobs"),
}


def _note(row: CertificateItemView) -> Note | None:
    """Return the measured numbers, also in whole GPUs."""
    line_items = [
        LineItem(_("checked"), thousands(row.checked)),
        LineItem(_counted(row), thousands(row.count)),
    ]
    if row.worst is not None:
        line_items.append(LineItem(_("deciding number"), thousands(row.worst, 4)))
    if row.in_gpus is not None:
        line_items.append(LineItem(_("the same in whole GPUs"), thousands(row.in_gpus, 4)))
    if row.why:
        return None
    text = _("Measured on {basis}.").format(basis=_(BASES[row.basis]))
    return Note(_(NAMES[row.name]), tuple(line_items), text=f"{text} {_(UNIT)}")


def _counted(row: CertificateItemView) -> str:
    """Return the label of the second number: an overclaim breaks no promise."""
    is_note = row.name is P.MEASURED_SPEEDS and row.verdict is not Verdict.VIOLATED
    return _("declared faster") if is_note else _("violations")


def _first(c: DecisionCounts) -> list[Promise]:
    """Return the lines on capacity and gangs for a round without a certificate."""
    return [
        stored_line(
            _(NAMES[P.CAPACITY]),
            c.breaks("node_capacity", "once"),
            capacity_text(c),
            capacity_note(c),
        ),
        stored_line(
            _(NAMES[P.GANG]), c.breaks("gang", "jobs"), whole_text(c.leases), leases_note(c)
        ),
    ]
