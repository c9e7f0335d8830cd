"""A round of a policy that divides GPU types by an optimisation program: from fractions to leases.

This module is not a policy: `oef` and its baselines select the program, and the rest is common.

1. Read job types and GPU types (`sharing.job_types`); solve their program, or reuse the last
   solution.
2. Round to whole GPUs per job type and GPU type, including past deviations (`placement.rounding`).
3. Within a job type, choose the longest-starved jobs first, while its whole GPUs exceed its held
   GPUs. A job gets the fastest GPU type that has room for it. A job whose lease ends stays on its
   GPU type while its job type has GPUs of this type. Job types that are furthest behind choose
   first.
4. Place the chosen jobs, larger gangs first, each on a single node if possible.
5. Offer the remaining GPUs, including what a job type did not use, to job types in turn, one job
   each. The largest deviation comes first; job types without quota come last.

So starvation decides which jobs run, and size decides which are placed first. Leases that are not
due keep their GPUs and count as held. A job type has received the GPUs that its jobs hold, except
leases of step 5 beyond its whole GPUs. Whole GPUs that none of its jobs fits on also count as
received.

All orders end in (tenant, profile) for job types and (submitted, id) for jobs.

Source: OEF (Middleware 2024), 4.2.4 and 4.3.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import version
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta

from evenshare_core.domain.decision import Decision, Ideal, Skip
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.formulations.problems import ShareProblem, ShareRule, ShareSolution
from evenshare_core.formulations.shares import BACKENDS, missing_backend, solve_shares
from evenshare_core.placement.rounding import ShareRequest, round_shares
from evenshare_core.placement.stability import keep_placements
from evenshare_core.policies.options import SPREAD_TEXT, UNIT, Options, parse_options
from evenshare_core.policies.policy import Policy, Traits
from evenshare_core.policies.quota_promise import QuotaPromiseKind
from evenshare_core.policies.shared import explain
from evenshare_core.policies.shared.reservation import RESERVED_TEXTS, Reservations
from evenshare_core.policies.shared.terms import expired_ends
from evenshare_core.policies.sharing.job_types import (
    GpuTypeCapacity,
    JobType,
    RoundProgram,
    SolvedShares,
    WaitingJob,
    read_job_types,
)
from evenshare_core.policies.sharing.memory import (
    MEMORY_IDS,
    read_deviations,
    stored_shares,
    write_memory,
)
from evenshare_core.policies.sharing.picks import LEFTOVER, SHARE, SharingPicks, pick_all
from evenshare_core.units import GPU_MICRO

# The version includes those of HiGHS and of OR-Tools, whose solver is GLOP. If the optimum is
# not unique, another version of them may return another optimum. A change of version drops the
# memory, and with it the last solution.
# version 6: OR-Tools solves (9) and `gavel`, except by prefix sums. A maximum price that refuses no
# type makes no difference.
VERSION = f"6 highs {version('highspy')} glop {version('ortools')}"
FORMER = "5 highs "  # rounds of version 5 are decided by its method


MODEL_TEXTS = {
    ShareRule.COOPERATIVE: "OEF (10): the largest total throughput without envy",
    ShareRule.NONCOOPERATIVE: "OEF (9): equal throughputs by weight",
    ShareRule.MAX_MIN: "equal split",
    ShareRule.GAVEL: "Gavel: the lowest normalised throughput as high as possible",
    ShareRule.MAX_EFFICIENCY: "OEF (4): the largest total throughput",
}


class SharingOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options that every sharing policy has."""

    backend: Annotated[
        Literal["fast", "highs", "ortools", "pyomo"],
        Meta(
            description="Solver for the shares. The default, fast, is an OR-Tools model for equal"
            " gains (noncooperative), and HiGHS called directly for envy-freeness (cooperative),"
            " where OR-Tools takes more than 1.2 times as long. The others are for checks."
        ),
    ] = "fast"
    job_order: Annotated[
        Literal["starvation", "arrival"],
        Meta(
            description="Order within a job type: longest wait since the last run first"
            " (starvation), or earliest submission first (arrival)."
        ),
    ] = "starvation"
    reserve_after_leases: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="How long a job within its tenant's share that fits no nodes waits"
            " before nodes are reserved for it; 0: never.",
            extra_json_schema={UNIT: "lease lengths"},
        ),
    ] = 2
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False


class SharingPolicy(Policy):
    """The base of the sharing policies: everything but the choice of the program."""

    version = VERSION
    order_text = (
        "Each job type up to its whole GPUs, larger gangs first; then the rest to the job type"
        " that is owed most."
    )
    quota_text = (
        "A quota is a weight: a tenant's quotas of all GPU types together determine its part of"
        " the pool. It may receive more or less than its quota of one type, and in a single"
        " round more or less than its part."
    )
    quota_kind = QuotaPromiseKind.WEIGHT
    note_texts = MappingProxyType(
        {
            **RESERVED_TEXTS,
            SHARE: "Its tenant's whole GPUs of this round had room for it.",
            LEFTOVER: "Other jobs could not use these GPUs; it was next for the remaining GPUs.",
        }
    )
    # Options of `share`, which reads no jobs. Each has its possible values, the default first.
    share_options: Mapping[str, tuple[str, ...]] = MappingProxyType({"backend": tuple(BACKENDS)})
    traits = Traits(trades_types=True, needs_profiles=True, preempts=True)
    memory_ids = MEMORY_IDS
    options_type: type[SharingOptions] = SharingOptions
    program: ShareRule

    def decides_as(self, version: str) -> bool:
        """Return whether a version's rounds get the same bytes, those of version 5 included.

        Its solver may differ; `verification.rounds` compares that.
        """
        return super().decides_as(version) or version.startswith(FORMER)

    def rule(self, options: SharingOptions) -> ShareRule:  # noqa: ARG002 - where several may be
        """Return the rule that determines the program."""
        return self.program

    def share(self, problem: ShareProblem, chosen: Mapping[str, str]) -> ShareSolution:
        """Solve a problem without a round. `chosen`: values for `share_options`.

        Raises:
            ShareError: the problem is invalid.
        """
        known = {
            key: value
            for key, value in chosen.items()
            if key in self.options_type.__struct_fields__
        }
        options = parse_options(self.options_type, known)
        return solve_shares(problem, self.rule(options), options.backend)

    def missing(self, options: Options) -> str:
        """Return why the solver cannot be used, or "" if it can."""
        assert isinstance(options, SharingOptions)  # noqa: S101 - narrows; of `options_type`
        return missing_backend(options.backend)

    def model_text(self, options: Options) -> str:
        assert isinstance(options, SharingOptions)  # noqa: S101 - narrows; of `options_type`
        return MODEL_TEXTS[self.rule(options)]

    def ideals(self, snapshot: Snapshot, options: Options) -> tuple[Ideal, ...]:
        """Return the shares before rounding, by solving the program again."""
        assert isinstance(options, SharingOptions)  # noqa: S101 - narrows; of `options_type`
        types, job_types = read_job_types(snapshot, by_starvation=False)
        program = self._program(snapshot, options, job_types, types)
        return _with_ideals(job_types, types, program.solve())

    def decide(self, snapshot: Snapshot) -> Decision:
        options = parse_options(self.options_type, snapshot.options)
        types, job_types = read_job_types(snapshot, by_starvation=options.job_order == "starvation")
        program = self._program(snapshot, options, job_types, types)
        return _decide_shares(snapshot, options, types, job_types, program)

    def most_gpus(
        self,
        snapshot: Snapshot,  # noqa: ARG002 - its version may decide
        options: SharingOptions,  # noqa: ARG002 - for policies with other limits
    ) -> Callable[[JobType], int]:
        """Return the function that gives the most GPUs that a job type may get."""
        return attrgetter("most")

    def _program(
        self,
        snapshot: Snapshot,
        options: SharingOptions,
        job_types: list[JobType],
        types: list[GpuTypeCapacity],
    ) -> RoundProgram:
        return RoundProgram(
            job_types,
            types,
            self.rule(options),
            options.backend,
            former=is_former(snapshot),
            most=self.most_gpus(snapshot, options),
        )


def is_former(snapshot: Snapshot) -> bool:
    """Return whether version 5 decided the round."""
    return snapshot.policy_version.startswith(FORMER)


def _decide_shares(
    snapshot: Snapshot,
    options: SharingOptions,
    types: list[GpuTypeCapacity],
    job_types: list[JobType],
    program: RoundProgram,
) -> Decision:
    shares = stored_shares(snapshot.memory, program) or program.solve()
    ideals = _with_ideals(job_types, types, shares)
    read_deviations(snapshot, job_types)
    _round(job_types, types, snapshot.lease_us)
    picks = SharingPicks(snapshot, types, spread=options.spread)
    reservations = Reservations.load(snapshot, options.reserve_after_leases)
    extra = _held(snapshot, job_types, types)
    pick_all(job_types, picks, reservations, snapshot.lease_us)
    grants, renewals = keep_placements(picks.grants, picks.renewals, snapshot.leases)
    memory = write_memory(
        snapshot,
        shares,
        job_types,
        [_rates(job_type, picks) for job_type in job_types],
        extra | picks.extra,
    )
    return Decision(
        at_us=snapshot.at_us,
        grants=tuple(grants),
        renewals=tuple(renewals),
        ends=expired_ends(snapshot, {renewal.lease for renewal in renewals}, picks.refused),
        skips=_skips(job_types, types, picks),
        memory=memory | reservations.memory(picks.picked),
        ideals=ideals,
        solve=shares.solve,
    )


def _round(job_types: list[JobType], types: list[GpuTypeCapacity], lease_us: int) -> None:
    """Set real = round(ideal + deviation) (4.3), in units of one GPU for one lease."""
    wants = [
        ShareRequest(
            tuple(
                ideal * lease_us + dev
                for ideal, dev in zip(job_type.ideal, job_type.deviation, strict=True)
            ),
            job_type.gangs,
            job_type.most,
        )
        if job_type.weight
        else ShareRequest((0,) * len(types), job_type.gangs, 0)
        for job_type in job_types
    ]
    real = round_shares(wants, [capacity.gpus for capacity in types], GPU_MICRO * lease_us)
    for job_type, gpus in zip(job_types, real, strict=True):
        job_type.real = gpus


def _held(snapshot: Snapshot, job_types: list[JobType], types: list[GpuTypeCapacity]) -> set[int]:
    """Add the GPUs of continuing leases to `held` of their job types. Return jobs on extra GPUs."""
    type_indexes = {capacity.name: type_index for type_index, capacity in enumerate(types)}
    by_key = {job_type.key: job_type for job_type in job_types}
    profiles = {profile.id for profile in snapshot.profiles}
    jobs = {job.id: job for job in snapshot.jobs}
    extra_before = set(snapshot.memory.get("extra", ()))
    extra = set()
    for lease in snapshot.leases:
        job = jobs.get(lease.job)
        if job is None or lease.ends_by(snapshot.at_us):
            continue
        if job.id in extra_before:
            extra.add(job.id)
        elif lease.gpu_type in type_indexes:
            profile = job.profile if job.profile in profiles else 0
            by_key[job.tenant, profile].held[type_indexes[lease.gpu_type]] += lease.gpus
    return extra


def _rates(job_type: JobType, picks: SharingPicks) -> list[int]:
    """Return the growth of each deviation until the next round: ideal - held, in micro-GPUs.

    A deviation does not grow if no job waits. It also does not grow if the job type's unused whole
    GPUs are fewer than any of its waiting jobs needs.
    """
    waiting = [one.job for one in job_type.queue if picks.waits(one.id)]
    rates = []
    for type_index, ideal in enumerate(job_type.ideal):
        gang = min(
            (job.gpus for job in waiting if type_index in job_type.usable_types(job)), default=None
        )
        left = job_type.real[type_index] - job_type.held[type_index]
        rate = ideal - job_type.held[type_index] * GPU_MICRO
        rates.append(min(0, rate) if gang is None or 0 < left < gang else rate)
    return rates


def _with_ideals(
    job_types: list[JobType], types: list[GpuTypeCapacity], shares: SolvedShares
) -> tuple[Ideal, ...]:
    """Set each job type's share, and return the shares that are not 0, in GPUs.

    A job type whose shares are all 0 gets a single entry of 0.
    """
    ideals = []
    for job_type in job_types:
        job_type.ideal = shares.micro.get(job_type.key, job_type.ideal)
        if job_type.key not in shares.micro:
            continue
        some = [type_index for type_index, micro in enumerate(job_type.ideal) if micro] or [0]
        ideals += [
            Ideal(
                job_type.tenant,
                job_type.profile,
                types[type_index].name,
                job_type.ideal[type_index] / GPU_MICRO,
            )
            for type_index in some
        ]
    return tuple(ideals)


def _skips(
    job_types: list[JobType], types: list[GpuTypeCapacity], picks: SharingPicks
) -> tuple[Skip, ...]:
    """Return why each job waits, for the fastest of its types on which no limit refuses it."""
    queues: dict[tuple[int, str], explain.Queue] = {}
    nowhere: dict[int, list[WaitingJob]] = {}
    for job_type in job_types:
        for one in job_type.queue:
            if one.id in picks.picked:
                continue
            type_indexes = job_type.usable_types(one.job)
            if not type_indexes:
                nowhere.setdefault(job_type.tenant, []).append(one)
                continue
            open_ = [type_index for type_index in type_indexes if picks.admits(one.job, type_index)]
            gpu_type = types[(open_ or type_indexes)[0]].name
            empty = explain.Queue(job_type.tenant, gpu_type, [], None, None, None)
            queues.setdefault((job_type.tenant, gpu_type), empty).jobs.append(one.job)
    skips = explain.skips(
        [queues[key] for key in sorted(queues)], picks.free_by_type, picks.admission
    )
    return (*skips, *(_nowhere(tenant, jobs) for tenant, jobs in sorted(nowhere.items())))


def _nowhere(tenant: int, waiting: list[WaitingJob]) -> Skip:
    """Return a skip of the jobs that no GPU type of the pool can run."""
    waiting.sort(key=lambda one: (one.submitted_us, one.id))
    numbers: dict[str, Any] = {"needed": min(one.job.gpus for one in waiting), "capacity": 0}
    gpus = sum(one.job.gpus for one in waiting)
    return Skip(Reason.TOO_LARGE, tenant, tuple(one.id for one in waiting), gpus, numbers)
