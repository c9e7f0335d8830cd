"""Texts about a round: its sentence, why GPUs idle, the notes behind its numbers."""

from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext, pgettext

from evenshare_core.policies import registry
from portal.charts.figures import gpu_hours, plural, ratio, thousands
from portal.charts.notes import LineItem, Note, price_lines
from scheduling.models import Round
from scheduling.selectors.jobs.reasons import ending_text, why
from scheduling.selectors.pools.now import idle_gpus
from scheduling.selectors.rounds.one_round import RoundDecision, RoundView
from scheduling.selectors.rounds.rows import PickRow, RoundPrice
from scheduling.selectors.rounds.shares import RoundShare


def order_text(policy: str) -> str:
    """Return a policy's order of service; empty if the policy is not installed."""
    known = registry.POLICIES.get(policy)
    return _(known.order_text) if known else ""


def _note_text(policy: str, note: str) -> str:
    """Return the text of a pick's note, by default the note itself."""
    known = registry.POLICIES.get(policy)
    text = known.note_texts.get(note) if known else None
    return _(text) if text else note_name(note)


def note_name(note: str) -> str:
    """Return the name of a pick's note, such as "left over"; empty without a note."""
    return pgettext("pick", note.replace("_", " ")) if note else ""


# ---- the sentence ----


def applied_note(view: RoundView, key: str, item: str, title: str) -> Note | None:
    """Return how many leases were decided, superseded and applied; None if the bytes are gone."""
    if view.decision is None:
        return None
    superseded = view.round.superseded
    lost = sum(row["item"] == item for row in superseded)
    # A renewal that its tenant can no longer pay ends its lease.
    more = sum(row.get("ends", False) for row in superseded) if item == "end" else 0
    decided = view.decision.counts[key]
    gpus = {
        "grants": view.decision.granted.gpus,
        "renewals": view.decision.renewed.gpus,
        "ends": view.decision.ended_gpus,
    }[key]
    if not lost and not more:
        return Note(
            title,
            (
                LineItem(_("leases"), thousands(decided)),
                LineItem(_("GPUs of them"), thousands(gpus)),
            ),
            text=_("All of it was applied."),
        )
    not_renewed = LineItem(_("not renewed for lack of credit"), thousands(more))
    return Note(
        title,
        (
            LineItem(_("decided"), thousands(decided)),
            LineItem(_("superseded"), thousands(-lost)),
            *([not_renewed] if more else []),
        ),
        LineItem(_("applied"), thousands(decided - lost + more)),
        text=_("Items that changed between snapshot and apply were skipped; see below."),
    )


def lost_text(reason: str) -> str:
    """Return why an item was not applied, as a text; empty without a reason."""
    return _("not applied: {reason}").format(reason=_(reason)) if reason else ""


def waiting_text(round_: Round) -> str:
    """Return a text like "16 jobs are queued for 65 GPUs: 9 lower priority now, 7 no node fits"."""
    summary = round_.summary
    jobs = summary["waiting"]
    if not jobs:
        return _("No job is queued.")
    reasons = sorted(summary["reasons"].items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{thousands(count)} {why(code).text}" for code, count in reasons]
    if len(reasons) == 1:
        parts = [why(reasons[0][0]).text]
    return ngettext(
        "{count} job is queued for {gpus}: {reasons}.",
        "{count} jobs are queued for {gpus}: {reasons}.",
        jobs,
    ).format(
        count=thousands(jobs),
        gpus=plural(summary["waiting_gpus"], "GPU"),
        reasons=", ".join(parts),
    )


def idle_text(round_: Round, decision: RoundDecision | None) -> str:
    """Return why GPUs are idle, as far as the stored numbers show."""
    idle = idle_gpus(round_.summary)
    if idle == 0:
        return _("No GPU is idle.")
    if decision is None:
        text = ngettext("{count} GPU is idle.", "{count} GPUs are idle.", idle)
        return text.format(count=thousands(idle))
    if decision.smallest_gang is None:
        text = ngettext(
            "{count} GPU is idle: no job is queued.",
            "{count} GPUs are idle: no job is queued.",
            idle,
        )
        return text.format(count=thousands(idle))
    if decision.largest_free < decision.smallest_gang:
        text = ngettext(
            "{count} GPU is idle: at most {most} on one node, and no queued job needs fewer than"
            " {gang}.",
            "{count} GPUs are idle: at most {most} on one node, and no queued job needs fewer than"
            " {gang}.",
            idle,
        )
    else:
        text = ngettext(
            "{count} GPU is idle; at most {most} on one node.",
            "{count} GPUs are idle; at most {most} on one node.",
            idle,
        )
    return text.format(
        count=thousands(idle), most=decision.largest_free, gang=decision.smallest_gang
    )


# ---- notes ----


def share_note(row: RoundShare) -> Note:
    """Return a tenant's GPUs before and after."""
    title = _("{tenant}, GPUs held after the round")
    change = thousands(row.holds - row.held_before, signed=True)
    return Note(
        title.format(tenant=row.tenant.name if row.tenant else _("other tenants")),
        (
            LineItem(_("held before the round"), thousands(row.held_before)),
            LineItem(_("granted less ended"), change),
        ),
        LineItem(_("holds now"), thousands(row.holds)),
        text=ngettext(
            "Of these, {count} was granted or renewed in this round; {own} own, {borrowed}"
            " borrowed.",
            "Of these, {count} were granted or renewed in this round; {own} own, {borrowed}"
            " borrowed.",
            row.got,
        ).format(
            count=thousands(row.got), own=thousands(row.own), borrowed=thousands(row.borrowed)
        ),
    )


def rho_note(row: RoundShare) -> Note:
    """Return the note of a tenant's rho before the round: received over deserved."""
    return Note(
        _("rho before the round"),
        (
            LineItem(_("received, GPU-h"), gpu_hours(row.alloc_gpu_s)),
            LineItem(_("fair share, GPU-h"), gpu_hours(row.fair_gpu_s)),
        ),
        LineItem(_("received ÷ fair share"), ratio(row.rho_before, 3)),
        text=_(
            "After: rho at the end of one lease length, if all leases of this round last that long"
            " ({rho}, expected)."
        ).format(rho=ratio(row.rho_after, 3)),
    )


def key_note(row: PickRow, policy: str) -> Note:
    """Return the numbers by which a job was picked; rho only if the policy uses it."""
    by_rho = (
        LineItem(_("its tenant's rho at that point"), ratio(row.tenant_rho, 4)),
        LineItem(_("its job's rho at that point"), ratio(row.job_rho, 4)),
    )
    return Note(
        _("Pick {number} of the round").format(number=thousands(row.order)),
        by_rho if registry.traits(policy).picks_by_rho else (),
        text=_note_text(policy, row.note) or order_text(policy),
    )


def price_row_note(row: RoundPrice) -> Note:
    """Return the formula of a posted price with its numbers."""
    title = _("Price of {gpu_type} for the next round").format(gpu_type=row.gpu_type)
    return Note(title, *price_lines(row, row.posted))


MOVED = gettext_noop("Moved: the same round granted it other GPUs")


def ended_text(code: str) -> str:
    """Return why a lease ended, as a sentence."""
    return capfirst(ending_text(code))
