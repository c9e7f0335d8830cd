"""One round of a policy that shares GPU types by a program: from fractions to leases.

Not a policy: `oef` and its baselines name the rule, and the rest is the same.

1. Rows and columns of the program (`sharing_rows`); solve it, or use the last answer again.
2. Whole GPUs per row and type, with the deviations of the past (`placement.rounding`).
3. Inside a row, the job that has starved longest first, as far as its whole GPUs go beyond what it
   holds: it takes the fastest type that has room for it. A job whose lease ends stays on its type
   while its row has GPUs there. Rows that are behind most choose first.
4. The chosen jobs are placed, larger gangs first, each on one node where it fits one.
5. What is left, a row's own remainder included, is offered row by row, a job each, the row of
   largest deviation first; rows without quota come last.

So starvation decides who runs, and size who is placed first. Leases that are not due keep their
GPUs and count as held. What a row received is what its jobs hold, except for leases from step 5
beyond its whole GPUs; whole GPUs that none of its jobs fits count as received by it.

All orders end in (tenant, profile) for rows and (submitted, id) for jobs.

Source: OEF (Middleware 2024), 4.2.4 and 4.3.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta

from evenshare_core.domain.decision import Decision, Ideal, Skip
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.formulations.shares import (
    BACKENDS,
    ShareProblem,
    ShareRule,
    ShareSolution,
    solve_shares,
)
from evenshare_core.placement.rounding import ShareRequest, round_shares
from evenshare_core.placement.stability import keep_placements
from evenshare_core.policies.options import Options, parse_options
from evenshare_core.policies.policy import Policy, Traits
from evenshare_core.policies.shared import explain
from evenshare_core.policies.shared.reservation import RESERVED_TEXTS, Reservations
from evenshare_core.policies.shared.terms import lapsed
from evenshare_core.policies.sharing.memory import read_deviations, shares_known, write_memory
from evenshare_core.policies.sharing.picks import LEFTOVER, SHARE, Picks, pick_all
from evenshare_core.policies.sharing.rows import (
    Candidate,
    Column,
    Program,
    Row,
    Shares,
    table,
)
from evenshare_core.units import GPU_MICRO

# With that of HiGHS, because an optimum need not be the only one and another version may find
# another vertex: then the memory, with the last answer in it, is dropped.
VERSION = f"2 highs {version('highspy')}"


class SharingOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of every sharing policy."""

    backend: Annotated[
        Literal["fast", "highs", "ortools", "pyomo"],
        Meta(
            description="What computes the shares: the method made for it (fast); the other"
            " solvers are there to check it."
        ),
    ] = "fast"
    job_order: Annotated[
        Literal["starvation", "arrival"],
        Meta(
            description="Who comes first inside a job type: the job that has waited longest since"
            " it last ran (starvation), or the one that was submitted first (arrival)."
        ),
    ] = "starvation"
    reserve_after_leases: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="After how many lease lengths nodes are held back for a job that its job"
            " type's share has room for and the nodes do not; 0: never.",
        ),
    ] = 2
    spread: Annotated[
        bool,
        Meta(description="A job that fits on one node may also be split over several."),
    ] = False


class SharingPolicy(Policy):
    """What the sharing policies have in common: all but the program that is solved."""

    version = VERSION
    order_text = (
        "Each job type up to its whole GPUs, larger gangs first; then what is left,"
        " to the one that is owed most."
    )
    note_texts = MappingProxyType(
        {
            **RESERVED_TEXTS,
            SHARE: "Its tenant's whole GPUs of this round had room for it.",
            LEFTOVER: "Others could not use these GPUs; it is next in line for what is left.",
        }
    )
    # What `shares`, which knows no jobs, lets one choose: the values, the default first.
    share_options: Mapping[str, tuple[str, ...]] = MappingProxyType({"backend": tuple(BACKENDS)})
    traits = Traits(trades_types=True, needs_profiles=True, preempts=True, keys_drift=True)
    options_type: type[SharingOptions] = SharingOptions

    @abstractmethod
    def rule(self, options: SharingOptions) -> ShareRule:
        """The program whose optimum is shared."""

    def share(self, problem: ShareProblem, chosen: Mapping[str, str]) -> ShareSolution:
        """Solve a problem apart from any round; `chosen` of `share_options`.

        Raises:
            ShareError: the problem is not one.
        """
        known = {
            key: value
            for key, value in chosen.items()
            if key in self.options_type.__struct_fields__
        }
        options = parse_options(self.options_type, known)
        return solve_shares(problem, self.rule(options), options.backend)

    def decide(self, snapshot: Snapshot) -> Decision:
        """Answer one round."""
        options = parse_options(self.options_type, snapshot.options)
        return decide_shares(snapshot, options, self.rule(options))


def decide_shares(snapshot: Snapshot, options: SharingOptions, rule: ShareRule) -> Decision:
    """Answer one round by the rule."""
    columns, rows = table(snapshot, by_starvation=options.job_order == "starvation")
    program = Program(rows, columns, rule, options.backend)
    shares = shares_known(snapshot.memory, program.key) or program.solve()
    for row in rows:
        row.ideal = shares.micro.get(row.key, row.ideal)
    read_deviations(snapshot, rows)
    _round(rows, columns, snapshot.lease_us)
    picks = Picks(snapshot, columns, spread=options.spread)
    reservations = Reservations.load(snapshot, options.reserve_after_leases)
    extra = _held(snapshot, rows, columns)
    pick_all(rows, picks, reservations, snapshot.lease_us)
    grants, renewals = keep_placements(picks.grants, picks.renewals, snapshot.leases)
    memory = write_memory(
        snapshot, shares, rows, [_rates(row, picks) for row in rows], extra | picks.extra
    )
    return Decision(
        at_us=snapshot.at_us,
        grants=tuple(grants),
        renewals=tuple(renewals),
        ends=lapsed(snapshot, {renewal.lease for renewal in renewals}, picks.refused),
        skips=_skips(rows, columns, picks),
        memory=memory | reservations.memory(picks.picked),
        ideals=_ideals(rows, columns, shares),
        solve=shares.solve,
    )


def _round(rows: list[Row], columns: list[Column], lease_us: int) -> None:
    """4.3: real = round(ideal + dev); a unit is one GPU for one lease."""
    wants = [
        ShareRequest(
            tuple(
                ideal * lease_us + dev for ideal, dev in zip(row.ideal, row.deviation, strict=True)
            ),
            row.gangs,
            row.most,
        )
        if row.weight
        else ShareRequest((0,) * len(columns), row.gangs, 0)
        for row in rows
    ]
    real = round_shares(wants, [column.gpus for column in columns], GPU_MICRO * lease_us)
    for row, gpus in zip(rows, real, strict=True):
        row.real = gpus


def _held(snapshot: Snapshot, rows: list[Row], columns: list[Column]) -> set[int]:
    """Count the GPUs of leases that go on for their rows; return the jobs that hold extra ones."""
    kinds = {column.name: kind for kind, column in enumerate(columns)}
    by_key = {row.key: row for row in rows}
    profiles = {profile.id for profile in snapshot.profiles}
    jobs = {job.id: job for job in snapshot.jobs}
    told = set(snapshot.memory.get("extra", ()))
    extra = set()
    for lease in snapshot.leases:
        job = jobs.get(lease.job)
        if job is None or lease.ends_by(snapshot.at_us):
            continue
        if job.id in told:
            extra.add(job.id)
        elif lease.gpu_type in kinds:
            profile = job.profile if job.profile in profiles else 0
            by_key[job.tenant, profile].held[kinds[lease.gpu_type]] += lease.gpus
    return extra


def _rates(row: Row, picks: Picks) -> list[int]:
    """How fast each deviation grows until the next round: ideal - held, in micro-GPUs.

    It does not grow where nobody waits, or where what is left of the row's whole GPUs is too few
    for each of its jobs that wait: then the row was offered what it is due.
    """
    waiting = [one.job for one in row.queue if picks.waits(one.id)]
    rates = []
    for kind, ideal in enumerate(row.ideal):
        gang = min((job.gpus for job in waiting if kind in row.kinds(job)), default=None)
        left = row.real[kind] - row.held[kind]
        rate = ideal - row.held[kind] * GPU_MICRO
        rates.append(min(0, rate) if gang is None or 0 < left < gang else rate)
    return rates


def _ideals(rows: list[Row], columns: list[Column], shares: Shares) -> tuple[Ideal, ...]:
    """The shares that are not 0, as GPUs; a row that has none is there with one 0."""
    told = []
    for row in rows:
        if row.key not in shares.micro:
            continue
        some = [kind for kind, micro in enumerate(row.ideal) if micro] or [0]
        told += [
            Ideal(row.tenant, row.profile, columns[kind].name, row.ideal[kind] / GPU_MICRO)
            for kind in some
        ]
    return tuple(told)


def _skips(rows: list[Row], columns: list[Column], picks: Picks) -> tuple[Skip, ...]:
    """Why each job waits, told of the fastest type on which no limit of its own is in its way."""
    queues: dict[tuple[int, str], explain.Queue] = {}
    nowhere: dict[int, list[Candidate]] = {}
    for row in rows:
        for one in row.queue:
            if one.id in picks.picked:
                continue
            kinds = row.kinds(one.job)
            if not kinds:
                nowhere.setdefault(row.tenant, []).append(one)
                continue
            open_ = [kind for kind in kinds if picks.admits(one.job, kind)]
            gpu_type = columns[(open_ or kinds)[0]].name
            empty = explain.Queue(row.tenant, gpu_type, [], None, None, None)
            queues.setdefault((row.tenant, gpu_type), empty).jobs.append(one.job)
    told = explain.skips(
        [queues[key] for key in sorted(queues)], picks.free_by_type, picks.admission
    )
    return (*told, *(_nowhere(tenant, found) for tenant, found in sorted(nowhere.items())))


def _nowhere(tenant: int, found: list[Candidate]) -> Skip:
    """Jobs that no GPU type of the pool can run: by profile, by what they accept, or by size."""
    found.sort(key=lambda one: (one.submitted_us, one.id))
    numbers: dict[str, Any] = {"needed": min(one.job.gpus for one in found), "capacity": 0}
    gpus = sum(one.job.gpus for one in found)
    return Skip(Reason.TOO_LARGE, tenant, tuple(one.id for one in found), gpus, numbers)
