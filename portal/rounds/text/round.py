"""Texts about a round: its sentence, why GPUs idle, the notes behind its numbers."""

from evenshare_core.policies import registry
from portal.charts.figures import gpu_hours, plural, ratio, thousands
from portal.charts.notes import LineItem, Note, price_lines
from scheduling.models import Round
from scheduling.selectors.jobs.reasons import ending_text, why
from scheduling.selectors.rounds.one_round import RoundDecision, RoundView
from scheduling.selectors.rounds.rows import PickRow, RoundPrice
from scheduling.selectors.rounds.shares import RoundShare


def order_text(policy: str) -> str:
    """Return a policy's order of service; empty if the policy is not installed."""
    known = registry.POLICIES.get(policy)
    return known.order_text if known else ""


def _note_text(policy: str, note: str) -> str:
    """Return the text of a pick's note, by default the note itself."""
    known = registry.POLICIES.get(policy)
    return (known.note_texts.get(note) if known else None) or note.replace("_", " ")


# ---- the sentence ----


def applied_note(view: RoundView, key: str, item: str, text: str) -> Note | None:
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
            f"Leases {text}",
            (
                LineItem("leases", thousands(decided)),
                LineItem("GPUs of them", thousands(gpus)),
            ),
            text="All of it was applied.",
        )
    return Note(
        f"Leases {text}",
        (
            LineItem("decided", thousands(decided)),
            LineItem("superseded", thousands(-lost)),
            *([LineItem("not renewed for lack of credit", thousands(more))] if more else []),
        ),
        LineItem("applied", thousands(decided - lost + more)),
        text="Items that changed between snapshot and apply were skipped; see below.",
    )


def waiting_text(round_: Round) -> str:
    """Return a text like "16 jobs are queued for 65 GPUs: 9 lower priority now, 7 no node fits"."""
    summary = round_.summary
    if not summary["waiting"]:
        return "No job is queued."
    jobs = plural(summary["waiting"], "job is queued", "jobs are queued")
    text = f"{jobs} for {plural(summary['waiting_gpus'], 'GPU')}"
    reasons = sorted(summary["reasons"].items(), key=lambda item: (-item[1], item[0]))
    if len(reasons) == 1:
        ((only, _),) = reasons
        return f"{text}: {why(only).text}."
    parts = [f"{thousands(count)} {why(code).text}" for code, count in reasons]
    return f"{text}: {', '.join(parts)}."


def idle_text(round_: Round, decision: RoundDecision | None) -> str:
    """Return why GPUs are idle, as far as the stored numbers show."""
    idle = round_.summary["idle"]
    if idle == 0:
        return "No GPU is idle."
    verb = "is" if idle == 1 else "are"
    text = f"{plural(idle, 'GPU')} {verb} idle"
    if decision is None:
        return f"{text}."
    if decision.smallest_gang is None:
        return f"{text}: no job is queued."
    if decision.largest_free < decision.smallest_gang:
        largest, gang = decision.largest_free, decision.smallest_gang
        return f"{text}: at most {largest} on one node, and no queued job needs fewer than {gang}."
    return f"{text}; at most {decision.largest_free} on one node."


# ---- notes ----


def share_note(row: RoundShare) -> Note:
    """Return a tenant's GPUs before and after."""
    name = row.tenant.name if row.tenant else "other tenants"
    return Note(
        f"{name}, GPUs held after the round",
        (
            LineItem("held before the round", thousands(row.held_before)),
            LineItem("ended less granted", thousands(row.holds - row.held_before, signed=True)),
        ),
        LineItem("holds now", thousands(row.holds)),
        text=f"Of these, {plural(row.got, 'was', 'were')} granted or renewed in this round;"
        f" {thousands(row.own)} own, {thousands(row.borrowed)} borrowed.",
    )


def rho_note(row: RoundShare) -> Note:
    """Return the note of a tenant's rho before the round: received over deserved."""
    return Note(
        "rho before the round",
        (
            LineItem("received, GPU-h", gpu_hours(row.alloc_gpu_s)),
            LineItem("fair share, GPU-h", gpu_hours(row.fair_gpu_s)),
        ),
        LineItem("received ÷ fair share", ratio(row.rho_before, 3)),
        text="After: rho at the end of one lease length, if all leases of this round last that"
        f" long ({ratio(row.rho_after, 3)}, expected).",
    )


def key_note(row: PickRow, policy: str) -> Note:
    """Return the numbers by which a job was picked; rho only if the policy uses it."""
    by_rho = (
        LineItem("its tenant's rho at that point", ratio(row.tenant_rho, 4)),
        LineItem("its job's rho at that point", ratio(row.job_rho, 4)),
    )
    return Note(
        f"Pick {thousands(row.order)} of the round",
        by_rho if registry.traits(policy).picks_by_rho else (),
        text=_note_text(policy, row.note) or order_text(policy),
    )


def price_row_note(row: RoundPrice) -> Note:
    """Return the formula of a posted price with its numbers."""
    return Note(f"Price of {row.gpu_type} for the next round", *price_lines(row, row.posted))


MOVED = "Moved: the same round granted it other GPUs"


def ended_text(code: str) -> str:
    """Return why a lease ended, as a sentence."""
    text = ending_text(code)
    return text[0].upper() + text[1:]
