"""A round's certificate as text: a plain sentence per line, made from its numbers.

Lines of fairness were measured when the round was decided, and stored with it. The others are the
engine's invariants, checked again on the stored bytes whenever the page is opened.
"""

from collections.abc import Callable

from evenshare_core.fairness.certificate import Basis, Property, Verdict
from portal.charts.figures import percent, plural, thousands
from portal.charts.notes import CertificatePanel, LineItem, Note, Promise, count_note
from portal.rounds.text.borrowing_lines import owners_sentence, value_sentence
from portal.rounds.text.declared import declared_sentence
from portal.rounds.text.fairness_lines import (
    misreport_sentence,
    order_sentence,
    starts_sentence,
)
from portal.rounds.text.tenant_names import name_of, names_of
from scheduling.selectors.rounds.certificates import CertificateItemView, CertificateView
from scheduling.selectors.rounds.following import Following
from scheduling.selectors.rounds.one_round import RoundView
from scheduling.selectors.rounds.promises import DecisionCounts

P = Property
NAMES = {
    P.CAPACITY: "No GPU is granted twice",
    P.GANG: "Each job holds all of its GPUs",
    P.SINGLE_HOLD: "No job holds two leases",
    P.LONG_TERM_ORDER: "Furthest below fair share goes first",
    P.QUOTA_GUARANTEE: "Quotas are guaranteed",
    P.PROMISED_STARTS: "Promised starts are kept",
    P.TRADES: "No trade makes a tenant worse off",
    P.INDIVIDUAL_RATIONALITY: "Individual rationality",
    P.ENVY_FREE: "Envy-freeness",
    P.SHARING_INCENTIVE: "Sharing incentive",
    P.EQUAL_THROUGHPUT: "All progress equally, by weight",
    P.PARETO: "Pareto efficiency",
    P.OVERSTATING: "Strategy-proofness (overstating)",
    P.UNDERSTATING: "Strategy-proofness (understating)",
    P.MEASURED_SPEEDS: "Measured speeds are used",
}
# Explanations of standard names that are not clear by themselves.
MEANINGS = {
    P.QUOTA_GUARANTEE: "No tenant waits for GPUs of its quota that others could return",
    P.PROMISED_STARTS: "A promised job starts in time, and its GPUs are kept for it",
    P.TRADES: "Each rate is between the worth of a fast GPU to the seller and to the buyer",
    P.INDIVIDUAL_RATIONALITY: "No borrowed GPU-hour costs more than its value to the job",
    P.ENVY_FREE: "No tenant prefers another's share",
    P.SHARING_INCENTIVE: "No tenant does worse than with its own part of the pool",
    P.PARETO: "No tenant could do better without a loss to another",
    P.OVERSTATING: "Overstating speeds does not pay",
    P.UNDERSTATING: "Understating speeds does not pay",
    P.MEASURED_SPEEDS: "Declared speeds gain nothing if measured speeds exist",
}
SAID = {
    Verdict.HOLDS: "holds",
    Verdict.NOTED: "note",
    Verdict.VIOLATED: "violated",
    Verdict.NOT_PROMISED: "unpromised",
    Verdict.NOT_APPLICABLE: "not_applicable",
    Verdict.UNKNOWN: "unmeasured",
}
HIDDEN = "Hidden: the number is another tenant's."
# For these lines, sentences omit numbers that the viewer may not see.
WITHOUT_NUMBERS = frozenset({P.LONG_TERM_ORDER, P.INDIVIDUAL_RATIONALITY, P.MEASURED_SPEEDS})
UNVERIFIED = "It could not be verified."
UNIT = "Throughput is counted in GPUs of the slowest type."


def round_certificate(view: RoundView, seen: CertificateView | None) -> CertificatePanel:
    checked = view.decision.checked if view.decision else None
    promises: list[Promise] = []
    if seen is None or seen.failure:
        promises += _first(checked) if checked else []
        promises += [
            _named_promise(name, "unclaimed", "Not measured on this round.")
            for name in (P.ENVY_FREE, P.SHARING_INCENTIVE, P.PARETO, P.OVERSTATING)
        ]
    else:
        promises += [_line(row, checked) for row in seen.findings]
    promises += _rest(checked) if checked else []
    promises += [_follows(view.following)] if view.following else []
    return CertificatePanel(
        title=f"Certificate of round {thousands(view.round.number)}",
        promises=tuple(promises),
        text=_measured_text(view, seen),
        alarm=_alarm(view, seen),
        issued=f"Issued by policy {view.round.policy} {view.round.policy_version}.",
    )


def _alarm(view: RoundView, seen: CertificateView | None) -> str:
    """Return that the certificate is missing, or differs when computed again."""
    if view.damages or (view.decision is not None and view.decision.again is False):
        return UNVERIFIED
    return "It could not be certified." if seen is not None and seen.failure else ""


def _measured_text(view: RoundView, seen: CertificateView | None) -> str:
    """Return the certificate's statement on how it was checked."""
    if view.damages and view.decision is None:
        return (
            "The round is damaged: this page cannot measure it again, and its content is"
            " unverified."
        )
    if view.decision is None:
        return (
            "Measured when the round was decided. Its data is no longer kept, so this page"
            " cannot measure it again."
        )
    if seen is None:
        return "Checked on the stored data when you opened this page."
    if seen.failure:
        return f"This round could not be certified: {seen.failure}."
    text = "Measured independently of the policy when the round was decided"
    again = {
        True: ", and again when you opened this page: the same.",
        False: ". Measured again when you opened this page, it DIFFERS: check the code.",
        None: ".",
    }
    return text + again[view.decision.again]


def _follows(following: Following) -> Promise:
    """Return whether the round starts with the state that the round before left."""
    before = f"round {thousands(following.before)}"
    name = f"Follows from {before}" if following.before else "First round"
    if following.follows is None:
        return Promise(name, "unmeasured", " ".join(following.why))
    if not following.follows:
        return Promise(name, "violated", " ".join(following.why[:3]))
    text = f"It starts with the GPU-time sums, memory, prices and leases of {before}."
    return Promise(name, "holds", text if following.before else "It is the pool's first round.")


# ---- lines of fairness ----


def _line(row: CertificateItemView, checked: DecisionCounts | None) -> Promise:
    verdict = SAID[row.verdict]
    broken = checked.breaks(*RULES.get(row.name, ())) if checked else 0
    if broken:  # the stored bytes prove it, so the stored verdict does not matter
        verdict = "violated"
        return _named_promise(
            row.name, verdict, f"{plural(broken, 'row breaks', 'rows break')} it."
        )
    text = _sentence(row)
    if row.name is P.CAPACITY and checked and verdict == "holds":
        text = _capacity_text(checked)
    return _named_promise(row.name, verdict, text, _note(row))


def _capacity_text(c: DecisionCounts) -> str:
    given, there = c.fullest
    return (
        f"{thousands(c.leased)} leased + {thousands(c.capacity - c.leased)} free"
        f" = {thousands(c.capacity)}; the fullest node gives {given} of {there}."
    )


def _named_promise(name: Property, verdict: str, text: str, note: Note | None = None) -> Promise:
    return Promise(NAMES[name], verdict, text, note, MEANINGS.get(name, ""))


RULES: dict[Property, tuple[str, ...]] = {
    P.CAPACITY: ("node_capacity",),
    P.GANG: ("gang", "jobs"),
    P.SINGLE_HOLD: ("once",),
}


def _sentence(row: CertificateItemView) -> str:
    if row.why:
        return row.why[0].upper() + row.why[1:] + "."
    if row.hidden and row.name not in WITHOUT_NUMBERS:
        return HIDDEN
    return SENTENCES[row.name](row)


def _capacity(row: CertificateItemView) -> str:
    if row.count:
        nodes = plural(row.count, "node gives", "nodes give")
        return f"{nodes} more GPUs than it has."
    if row.verdict is Verdict.VIOLATED:
        return f"Shares before rounding exceed a type by {_gpus(row.worst)} GPUs."
    return (
        f"{plural(int(row.total or 0), 'GPU is', 'GPUs are')} leased, and no node exceeds its GPUs."
    )


def _gang(row: CertificateItemView) -> str:
    if row.count:
        return f"{plural(row.count, 'job holds', 'jobs hold')} a wrong number of GPUs."
    return f"All {plural(row.checked, 'lease')} {'is' if row.checked == 1 else 'are'} whole."


def _single(row: CertificateItemView) -> str:
    if row.count:
        return f"{plural(row.count, 'job holds', 'jobs hold')} more than one."
    return f"{plural(row.checked, 'job holds', 'jobs hold')} one each."


def _guarantee(row: CertificateItemView) -> str:
    if row.verdict is Verdict.NOT_PROMISED:
        return "This policy promises no time within which quota becomes available."
    if row.basis is Basis.TERMS:
        return owners_sentence(row)
    jobs = plural(row.checked, "queued job is owed", "queued jobs are owed")
    if row.count:
        who = names_of(row) or plural(row.count, "tenant")
        return f"{who} {_was(row.count)} left waiting although leases of others could have ended."
    return f"{jobs} GPUs of a quota: on no node could the end of others' leases make enough room."


def _trades(row: CertificateItemView) -> str:
    """Return a sentence on a round's trades: the least gain, and the quota that open ones move."""
    if row.count:
        who = names_of(row) or plural(row.count, "tenant")
        return f"The trades or quotas of {who} break a rule."
    # The total is hidden if rows of other tenants are.
    moved = None if row.total is None else plural(int(row.total), "GPU")
    stand = "" if moved is None else f"; open trades move {moved} of quota"
    if not row.checked:
        return f"No trade was made or undone in this round{stand}."
    if row.worst is None:
        return f"{plural(row.checked, 'trade was', 'trades were')} undone{stand}."
    gain = percent(row.worst - 1, 1)
    return f"{plural(row.checked, 'trade')}; the least gain is {name_of(row.tenant)}'s: {gain}."


def _envy(row: CertificateItemView) -> str:
    if row.worst is None:
        return ""
    who, other = name_of(row.tenant), name_of(row.other, "another")
    if row.verdict is Verdict.NOTED:
        gain = f"{who} would do {_gpus(row.worst)} more with the share of {other}"
        return f"It holds for all tenants whose jobs do not limit them. Of the others, {gain}."
    if row.count:
        pairs = "" if row.count == 1 else f" {plural(row.count, 'pair')} of {row.checked} do so."
        return (
            f"By weight, {who} would do {_gpus(row.worst)} more with the share of {other}.{pairs}"
        )
    whose = f"{other}'s" if other != who else "that of another of its job types"
    if row.worst > -0.005:
        return f"Closest of {plural(row.checked, 'pair')}: {who} would do the same with {whose}."
    less = _gpus(-row.worst)
    return f"Closest of {plural(row.checked, 'pair')}: {who} would do {less} less with {whose}."


def _alone(row: CertificateItemView) -> str:
    if row.worst is None:
        return ""
    who = name_of(row.tenant)
    if row.count:
        rest = "" if row.count == 1 else f" {plural(row.count, 'row is', 'rows are')} below 1."
        return f"{who} does {_gpus(row.worst)} times what its part of every type would do.{rest}"
    return f"The least is {who}: {_gpus(row.worst)} times what its part of every type would do."


def _equal(row: CertificateItemView) -> str:
    if row.worst is None:
        return ""
    if not row.count:
        return f"{plural(row.checked, 'row does', 'rows do')} the same per unit of weight."
    return f"Per unit of weight, the least is {percent(row.worst, 1)} below the most."


def _pareto(row: CertificateItemView) -> str:
    if row.worst is None or row.total is None:
        return ""
    total = f"throughput {_gpus(row.total)}"
    if not row.count:
        return f"No other division raises the {total} without a loss to a tenant."
    return f"{_gpus(row.worst)} more than the {total} is possible without a loss to any tenant."


SENTENCES: dict[Property, Callable[[CertificateItemView], str]] = {
    P.CAPACITY: _capacity,
    P.GANG: _gang,
    P.SINGLE_HOLD: _single,
    P.LONG_TERM_ORDER: order_sentence,
    P.QUOTA_GUARANTEE: _guarantee,
    P.PROMISED_STARTS: starts_sentence,
    P.TRADES: _trades,
    P.INDIVIDUAL_RATIONALITY: value_sentence,
    P.ENVY_FREE: _envy,
    P.SHARING_INCENTIVE: _alone,
    P.EQUAL_THROUGHPUT: _equal,
    P.PARETO: _pareto,
    P.OVERSTATING: misreport_sentence,
    P.UNDERSTATING: misreport_sentence,
    P.MEASURED_SPEEDS: declared_sentence,
}
BASES = {
    Basis.LEASES: "GPUs held after the round",
    Basis.IDEALS: "shares before rounding to whole GPUs",
    Basis.SUMS: "GPU-time received and due at each pick, and on the jobs that could have been"
    " served",
    Basis.TRADES: "the records of trades, and the speeds of the jobs that they were made for",
    Basis.TERMS: "leases after the round, and the ends of borrowing terms",
    Basis.VALUES: "the declared values of jobs and the prices posted for the round",
    Basis.PROBES: "the policy, run again with other speeds",
    Basis.SPEEDS: "declared speeds of job types and the reports of their jobs",
}


def _note(row: CertificateItemView) -> Note | None:
    """Return the measured numbers, also in whole GPUs."""
    line_items = [
        LineItem("checked", thousands(row.checked)),
        LineItem(_counted(row), thousands(row.count)),
    ]
    if row.worst is not None:
        line_items.append(LineItem("deciding number", thousands(row.worst, 4)))
    if row.in_gpus is not None:
        line_items.append(LineItem("the same in whole GPUs", thousands(row.in_gpus, 4)))
    if row.why:
        return None
    text = f"Measured on {BASES[row.basis]}. "
    return Note(NAMES[row.name], tuple(line_items), text=text + UNIT)


def _counted(row: CertificateItemView) -> str:
    """Return the label of the second number: an overclaim breaks no promise."""
    is_note = row.name is P.MEASURED_SPEEDS and row.verdict is not Verdict.VIOLATED
    return "declared faster" if is_note else "break it"


def _gpus(value: float | None) -> str:
    return thousands(value, 2)


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


# ---- what is checked again on the stored bytes ----


def _first(c: DecisionCounts) -> list[Promise]:
    """Return the lines on capacity and gangs for a round without a certificate."""
    return [
        _promise(
            NAMES[P.CAPACITY],
            c.breaks("node_capacity", "once"),
            _capacity_text(c),
            count_note("GPUs", [("leased", c.leased), ("free", c.capacity - c.leased)]),
        ),
        _promise(
            NAMES[P.GANG],
            c.breaks("gang", "jobs"),
            f"All {plural(c.leases, 'lease')} {'is' if c.leases == 1 else 'are'} whole.",
            count_note(
                "Leases after the round",
                [("went on", c.kept), ("renewed", c.renewed), ("granted", c.granted)],
            ),
        ),
    ]


def _rest(c: DecisionCounts) -> list[Promise]:
    return [
        _promise(
            "Own GPUs stay within quota",
            c.breaks("own_and_borrowed"),
            f"{thousands(c.own)} own + {thousands(c.borrowed)} borrowed = {thousands(c.leased)}.",
            count_note("GPUs leased", [("own", c.own), ("borrowed", c.borrowed)]),
        ),
        _ends(c),
        _promise(
            "Borrowed GPUs cost the posted price, within limits",
            c.breaks("limits", "prices"),
            f"{plural(c.borrowing, 'new term borrows', 'new terms borrow')}."
            f" {plural(c.capped, 'job has', 'jobs have')} a maximum price,"
            f" {plural(c.budgeted, 'tenant has', 'tenants have')} a credit limit.",
        ),
        _promise(
            "Every queued job has one reason",
            c.breaks("reasons"),
            f"{plural(c.waiting, 'job is queued', 'jobs are queued')},"
            f" {plural(c.explained, 'reason is', 'reasons are')} given.",
        ),
    ]


def _ends(c: DecisionCounts) -> Promise:
    """Return which leases ended: expired ones, and those with notice before."""
    broken = c.breaks("known_leases", "running_leases", "instants")
    on_time = c.ended - c.preempted
    text = f"{plural(c.expired, 'lease was', 'leases were')} due:"
    text += f" {thousands(c.renewed)} renewed, {thousands(on_time)} ended."
    note = count_note("Leases due", [("renewed", c.renewed), ("ended", on_time)])
    if not c.preempted:
        return _promise("Leases end when they are due, not before", broken, text, note)
    text += (
        f" {plural(c.preempted, 'other', 'others')} got notice before, past"
        f" {'its' if c.preempted == 1 else 'their'} minimum runtime."
    )
    return _promise(
        "Leases end when they are due, or with notice after their minimum runtime",
        broken,
        text,
        note,
    )


def _promise(name: str, broken: int, text: str, note: Note | None = None) -> Promise:
    if broken:
        return Promise(name, "violated", f"{plural(broken, 'row breaks', 'rows break')} it.", note)
    return Promise(name, "holds", text, note)
