"""A round in words: its sentence, why GPUs idle, its certificate, the notes behind its numbers."""

from __future__ import annotations

from portal.context import PYTHON
from portal.marks.figures import credits_text, gpu_hours, plural, ratio, thousands
from portal.marks.notes import Addend, Certificate, Note, Promise, count_note
from scheduling.models import Round
from scheduling.selectors.promises import Checked
from scheduling.selectors.reasons import ENDINGS, why
from scheduling.selectors.rounds import PickRow, PriceRow, RoundDecision, RoundView, ShareRow

FORMULA = "base \N{MULTIPLICATION SIGN} (theta ^ use \N{MINUS SIGN} 1)"
NOTES = {"reserved": "Its gang had waited so long that GPUs were kept for it."}
UNCLAIMED = (
    ("Nobody would rather have another's share", "Envy is not computed for this round."),
    ("Nobody does worse than alone", "The sharing incentive is not computed for this round."),
    ("Lying does not pay", "No misreport is tried on this round."),
)


def replay_command(pool: str, number: int) -> str:
    """The command that decides a round again and compares bytes."""
    return f"{PYTHON} manage.py replay_round {number} --pool {pool}"


# ---- the sentence ----


def applied_note(view: RoundView, key: str, item: str, words: str) -> Note | None:
    """Decided less superseded: what the headline counts; None where the bytes are gone."""
    if view.decision is None:
        return None
    lost = sum(row["item"] == item for row in view.round.superseded)
    decided = view.decision.counts[key]
    gpus = {
        "grants": view.decision.granted.gpus,
        "renewals": view.decision.renewed.gpus,
        "ends": view.decision.ended_gpus,
    }[key]
    if not lost:
        return Note(
            f"Leases {words}",
            (
                Addend("leases", thousands(decided)),
                Addend("GPUs of them", thousands(gpus)),
            ),
            words="Decided and applied are the same.",
        )
    return Note(
        f"Leases {words}",
        (
            Addend("decided", thousands(decided)),
            Addend("superseded", thousands(-lost)),
        ),
        Addend("applied", thousands(decided - lost)),
        words="What changed between snapshot and apply was left out; it is listed below.",
    )


def waiting_words(round_: Round) -> str:
    """ "16 jobs wait for 65 GPUs: 9 lease turn, 7 no node with enough room." """
    summary = round_.summary
    if not summary["waiting"]:
        return "No job waits."
    jobs = plural(summary["waiting"], "job waits", "jobs wait")
    text = f"{jobs} for {plural(summary['waiting_gpus'], 'GPU')}"
    reasons = sorted(summary["reasons"].items(), key=lambda item: (-item[1], item[0]))
    if len(reasons) == 1:
        return f"{text}: {why(reasons[0][0]).words}."
    parts = [f"{thousands(count)} {why(code).words}" for code, count in reasons]
    return f"{text}: {', '.join(parts)}."


def idle_words(round_: Round, decision: RoundDecision | None) -> str:
    """Why GPUs stay idle, as far as the stored numbers say."""
    idle = round_.summary["idle"]
    if idle == 0:
        return "No GPU is idle."
    verb = "is" if idle == 1 else "are"
    text = f"{plural(idle, 'GPU')} {verb} idle"
    if decision is None:
        return f"{text}."
    if decision.smallest_gang is None:
        return f"{text}, for no job waits."
    if decision.largest_hole < decision.smallest_gang:
        hole, gang = decision.largest_hole, decision.smallest_gang
        return f"{text}: at most {hole} on one node, and no waiting job needs fewer than {gang}."
    return f"{text}; at most {decision.largest_hole} on one node."


# ---- notes ----


def share_note(row: ShareRow) -> Note:
    """What a tenant held before and after."""
    name = row.seen.name if row.seen else "other tenants"
    return Note(
        f"{name}, GPUs held after the round",
        (
            Addend("held before the round", thousands(row.held_before)),
            Addend("ended less granted", thousands(row.holds - row.held_before, signed=True)),
        ),
        Addend("holds now", thousands(row.holds)),
        words=f"Of these, {thousands(row.got)} were granted or renewed in this round;"
        f" {thousands(row.own)} own, {thousands(row.borrowed)} borrowed.",
    )


def rho_note(row: ShareRow) -> Note:
    """Received over deserved: rho at the round's instant."""
    return Note(
        "rho before the round",
        (
            Addend("received, GPU-h", gpu_hours(row.alloc_gpu_s)),
            Addend("deserved, GPU-h", gpu_hours(row.fair_gpu_s)),
        ),
        Addend("received ÷ deserved", ratio(row.rho_before, 3)),
        words="After: rho at the end of one lease length, if all leases of this round last so long"
        f" ({ratio(row.rho_after, 3)}, expected).",
    )


def key_note(row: PickRow) -> Note:
    """The numbers that a pick was made by."""
    words = "The tenant with the least rho is served first, then its job with the least."
    return Note(
        f"Pick {thousands(row.order)} of the round",
        (
            Addend("its tenant's rho then", ratio(row.tenant_rho, 4)),
            Addend("its job's rho then", ratio(row.job_rho, 4)),
        ),
        words=NOTES.get(row.note, row.note.replace("_", " ")) or words,
    )


def price_row_note(row: PriceRow) -> Note:
    """The formula of a posted price with its numbers."""
    return Note(
        f"Price of {row.gpu_type} for the next round",
        (
            Addend("base price", credits_text(row.base, 6)),
            Addend("theta", f"{row.theta:.3f}"),
            Addend("use", f"{thousands(row.used)} of {thousands(row.capacity)}"),
        ),
        Addend(FORMULA, credits_text(row.posted, 6)),
    )


MOVED = "Moved: the same round granted it other GPUs"


def ended_words(code: str) -> str:
    """Why a lease ended, as a sentence."""
    words = ENDINGS.get(code, code.replace("_", " "))
    return words[0].upper() + words[1:]


# ---- the certificate ----


def certificate(view: RoundView) -> Certificate:
    """What was checked on this round's own numbers, and what is not claimed."""
    round_ = view.round
    unclaimed = tuple(Promise(name, "unclaimed", words) for name, words in UNCLAIMED)
    checked = view.decision.checked if view.decision else None
    if checked is None:
        promises: tuple[Promise, ...] = ()
        words = "The engine checked this decision before it was applied. Its bytes are gone, so"
        words += " this page cannot check it again."
    else:
        promises = tuple(_promises(checked))
        words = "Invariants, checked again on this round's stored bytes while you opened the page."
    return Certificate(
        title=f"Certificate of round {thousands(round_.number)}",
        promises=(*promises, *unclaimed),
        # Both hashes and the command stand on the page themselves.
        sha256="",
        command="",
        words=words,
        issued=f"Issued by policy {round_.policy} {round_.policy_version}.",
    )


def _promises(c: Checked) -> list[Promise]:
    given, there = c.fullest
    return [
        _promise(
            "No GPU is given twice",
            c.breaks("node_capacity", "once"),
            f"{thousands(c.leased)} leased + {thousands(c.capacity - c.leased)} free"
            f" = {thousands(c.capacity)}; the fullest node gives {given} of {there}.",
            count_note("GPUs", [("leased", c.leased), ("free", c.capacity - c.leased)]),
        ),
        _promise(
            "No job holds a part of its GPUs",
            c.breaks("gang", "jobs"),
            f"All {plural(c.leases, 'lease')} {'is' if c.leases == 1 else 'are'} whole.",
            count_note(
                "Leases after the round",
                [("went on", c.kept), ("renewed", c.renewed), ("granted", c.granted)],
            ),
        ),
        _promise(
            "Own GPUs stay within quota",
            c.breaks("own_and_borrowed"),
            f"{thousands(c.own)} own + {thousands(c.borrowed)} borrowed = {thousands(c.leased)}.",
            count_note("GPUs leased", [("own", c.own), ("borrowed", c.borrowed)]),
        ),
        _promise(
            "Leases end when they are due, not before",
            c.breaks("known_leases", "running_leases", "instants"),
            f"{plural(c.due, 'lease was', 'leases were')} due:"
            f" {thousands(c.renewed)} renewed, {thousands(c.ended)} ended.",
            count_note("Leases due", [("renewed", c.renewed), ("ended", c.ended)]),
        ),
        _promise(
            "Borrowed GPUs cost the posted price, within limits",
            c.breaks("limits", "prices"),
            f"{plural(c.borrowing, 'new term borrows', 'new terms borrow')}."
            f" {plural(c.capped, 'job has', 'jobs have')} a maximum price,"
            f" {plural(c.budgeted, 'tenant has', 'tenants have')} a credit limit.",
        ),
        _promise(
            "Who waits is told one reason",
            c.breaks("reasons"),
            f"{plural(c.waiting, 'job waits', 'jobs wait')},"
            f" {plural(c.told, 'reason is', 'reasons are')} given.",
        ),
    ]


def _promise(name: str, broken: int, words: str, note: Note | None = None) -> Promise:
    if broken:
        return Promise(name, "violated", f"{plural(broken, 'row breaks', 'rows break')} it.", note)
    return Promise(name, "holds", words, note)
