"""UniSched: jobs with deadlines and best-effort jobs share a pool by one program.

Source: W. Gao et al., "UniSched: A Unified Scheduler for Deep Learning Training Jobs With Different
User Demands", IEEE TC 2024, sections II-B and III-C.

| paper | here | unit |
|---|---|---|
| best-effort lease | the pool's lease length: a slot | us |
| SLO lease | `lease_multiple` slots, as one term if the pool's bounds allow it | us |
| V_f, D_f | `Snapshot.deadlines`, capped by class and by the tenant's budget | points, us |
| L, Q | leases of work and to the deadline, counted from the round | SLO leases |
| A, phi-bar | `evenshare_core.deadlines.options`, with `JobEstimate.spread_milli` | thousandths |
| T_sr (3) | `JobEstimate.overhead_us` | us |
| Selector (4) to (14) | `evenshare_core.formulations.selector.select`, per GPU type | |
| the answer to a user | `Decision.answers` | |

A round plans jobs of all classes if something changed, a lease ended, or a waiting job could use
free GPUs. Slots are counted from the time of the round. Other rounds only check which deadlines
have passed.

Departures, explained in docs/policies/unisched.md:

- A job has no profiling phase. A profiling run is a separate job (`Snapshot.profilers`), and no job
  waits for it. It has reward 1, gets only the next lease, and runs on one node.
- Work and slack are rounded together, so that a job without slack is not refused for a part of a
  lease.
- GPUs that no plan uses in slot 0 are given to any job that can use them for one slot.
- There is one program per GPU type.

All orders end in (submitted, id).
"""

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from evenshare_core.deadlines.model import HORIZON
from evenshare_core.domain.decision import Decision, Grant, Key, Renew, Skip, Solve, TermLength
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import Value, canonical_bytes, sha256_hex
from evenshare_core.fairness.claims import reported_type_first
from evenshare_core.placement.consolidated import free_capacity_by_type
from evenshare_core.policies.options import Options, parse_options
from evenshare_core.policies.policy import Policy, Traits
from evenshare_core.policies.shared import explain
from evenshare_core.policies.shared.admission import Admission
from evenshare_core.policies.shared.terms import expired_ends
from evenshare_core.policies.unisched.answers import AnswerBook, missed
from evenshare_core.policies.unisched.memory import MEMORY_IDS, UniSchedMemory
from evenshare_core.policies.unisched.options import UniSchedOptions
from evenshare_core.policies.unisched.pool import FORMER, DeadlinePool
from evenshare_core.policies.unisched.rounds import SolvedRound
from evenshare_core.units import ONE_MILLI, REWARD_MICRO

DEADLINE, PROFILER, BEST_EFFORT = "deadline", "profiler", "best_effort"


class UniSched(Policy):
    name = "unisched"
    version = "4"  # version 4: OR-Tools solves the programs
    earlier_versions = FORMER
    title = "Deadlines and best effort"
    promise = "Each job with a deadline gets an answer at once: planned in time, or the obstacle."
    suits = "Jobs with and without deadlines, with known or estimated durations."
    order_text = (
        "Jobs with the most valuable deadlines go first, as planned; the rest goes to the jobs"
        " that end soonest."
    )
    note_texts = MappingProxyType(
        {
            DEADLINE: "Its plan has a lease now, so that it meets a deadline.",
            PROFILER: "It measures the speed of its job type, on GPUs that no deadline needs now.",
            BEST_EFFORT: "It runs on GPUs that no plan uses now.",
        }
    )
    traits = Traits(needs_estimates=True, preempts=True, answers_deadlines=True)
    memory_ids = MEMORY_IDS
    options_type = UniSchedOptions

    def deadline_horizon_us(self, options: Options, lease_us: int) -> int:
        multiple = options.lease_multiple if isinstance(options, UniSchedOptions) else 1
        return HORIZON * multiple * lease_us

    def model_text(self, options: Options) -> str:  # noqa: ARG002 - always the same
        return "UniSched's Selector: leases with the largest reward of deadlines"

    def decide(self, snapshot: Snapshot) -> Decision:
        return _UniSchedRound(snapshot).decision()


class _UniSchedRound:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        options = parse_options(UniSchedOptions, snapshot.options)
        self.pool = DeadlinePool(snapshot, options, UniSchedMemory.of(snapshot.memory))
        self.admission = Admission.of(snapshot)
        self.grants: list[Grant] = []
        self.renewals: list[Renew] = []
        self.lengths: list[TermLength] = []
        self.refused: dict[int, Any] = {}
        types = [row.gpu_type for row in snapshot.service.claims]
        self.free = free_capacity_by_type(
            snapshot.nodes, snapshot.leases, snapshot.at_us, types=types
        )

    def decision(self) -> Decision:
        pool, snapshot = self.pool, self.snapshot
        pool.update_losses()
        answers = missed(pool, snapshot.deadlines)
        self._renew_kept()
        solved = None
        deadlines = [
            row
            for row in snapshot.deadlines
            if row.id in pool.jobs and row.steps[-1].by_us > snapshot.at_us
        ]
        looked_at = self._looked_at(is_missed=bool(answers))
        if looked_at != pool.memory.looked_at or pool.ended or self._could_use():
            pool.memory.looked_at = looked_at
            pool.memory.keep_phase(snapshot.at_us)
            solved = SolvedRound(pool, self.admission)
            solved.run(deadlines)
            self._give(solved)
            answers += AnswerBook(solved).run(deadlines)
            self._begin_leases(solved)
        return Decision(
            at_us=snapshot.at_us,
            grants=tuple(self.grants),
            renewals=tuple(self.renewals),
            ends=expired_ends(snapshot, {row.lease for row in self.renewals}, self.refused),
            skips=tuple(self._skips(solved)),
            memory=pool.memory.data(row.id for row in snapshot.deadlines if row.id in pool.jobs),
            solve=_solve(solved),
            lengths=tuple(self.lengths),
            answers=tuple(sorted(answers, key=lambda row: row.job)),
        )

    def _looked_at(self, *, is_missed: bool) -> str:
        """Return a hash of a plan's inputs except time and prices.

        If it changes, a new plan is made.

        Ids are replaced by their ranks, and leases by their jobs and starts, so that the memory
        does not depend on ids (ADR 0195).
        """
        snapshot = self.snapshot
        jobs, profiles = _places(self.pool.jobs), _places(self.pool.profiles)
        of_quotas = {row.tenant for row in snapshot.entitlements}
        tenants = _places(of_quotas | {row.tenant for row in snapshot.jobs})
        rows: list[Value] = [*snapshot.nodes]
        rows += [replace(row, tenant=tenants[row.tenant]) for row in snapshot.entitlements]
        # Fields that no plan reads are left out, because a disclosed round might lack them.
        rows += [
            replace(
                row, id=jobs[row.id], tenant=tenants[row.tenant],
                profile=profiles.get(row.profile, 0), max_price_micro=None, deadline_us=None,
            )
            for row in snapshot.jobs
        ]  # fmt: skip # a table
        rows += [replace(row, id=jobs[row.id]) for row in snapshot.deadlines if row.id in jobs]
        rows += [replace(row, id=jobs[row.id]) for row in snapshot.estimates if row.id in jobs]
        leases = sorted((jobs.get(row.job, 0), row.started_us) for row in snapshot.leases)
        parts = (sorted(canonical_bytes(row).decode() for row in rows), leases, is_missed)
        return sha256_hex(canonical_bytes(parts))[:16]

    def _could_use(self) -> bool:
        """Return whether enough GPUs are free for a waiting job that no limit refuses."""
        for job in self.snapshot.jobs:
            if job.id in self.pool.kept:
                continue
            for name in self.pool.types(job):
                enough = job.gpus <= self.free[name].available.total
                if enough and self.admission.check(job, name) is None:
                    return True
        return False

    def _renew_kept(self) -> None:
        """Renew leases in the middle of an SLO lease. Leases that a limit refuses have ended."""
        pool = self.pool
        for lease in sorted(pool.renewed, key=lambda row: (row.started_us, row.id)):
            if self.admission.check(pool.jobs[lease.job], lease.gpu_type) is None:
                self.admission.take(lease.tenant, lease.gpu_type, lease.gpus)
                self._renew(lease, DEADLINE)
                self.free[lease.gpu_type].available.take(lease.placement)
            else:
                del pool.kept[lease.job]
                pool.ended[lease.job] = lease

    def _renew(self, lease: Lease, note: str) -> None:
        order = len(self.renewals) + len(self.grants) + 1
        self.renewals.append(Renew.of(lease, order, Key(None, None, note)))

    def _give(self, solved: SolvedRound) -> None:
        for name, placed in solved.placed.items():
            plan = solved.plans[name].beginning()
            for job_id, gpus in placed.gpus.items():
                job, lease = self.pool.jobs[job_id], self.pool.ended.get(job_id)
                is_slo = not plan.jobs[job_id].is_now
                placement = tuple(sorted(gpus.items()))
                note = DEADLINE if is_slo else self._note(job_id)
                if lease and lease.gpu_type == name and tuple(lease.placement) == placement:
                    self._renew(lease, note)
                else:
                    order = len(self.renewals) + len(self.grants) + 1
                    key = Key(None, None, note)
                    self.grants.append(Grant(order, job_id, job.tenant, name, placement, key))
                self.free[name].available.take(placement)
                length = solved.slo_term_us() if is_slo else None
                if length is not None and length != self.snapshot.lease_us:
                    self.lengths.append(TermLength(job_id, length))

    def _note(self, job: int) -> str:
        return PROFILER if job in self.snapshot.profilers else BEST_EFFORT

    def _begin_leases(self, solved: SolvedRound) -> None:
        """Store the ends of SLO leases that begin now. Add the time lost in restarts."""
        granted = {row.job for row in self.grants}
        for name, placed in solved.placed.items():
            plan = solved.plans[name].beginning()
            for job in placed.gpus:
                answer = self.pool.memory.answers.get(job)
                if answer is None:
                    continue
                if not plan.jobs[job].is_now:
                    answer.until_us = self.snapshot.at_us + self.pool.lease_us
                estimate = self.pool.estimates.get(job)
                if job in granted and self.pool.jobs[job].terms and estimate:
                    answer.lost_us += estimate.overhead_us

    # ---- why other jobs wait ----

    def _skips(self, solved: SolvedRound | None) -> list[Skip]:
        given = {row.job for row in self.grants} | {row.job for row in self.renewals}
        waiting = [
            job
            for job in self.snapshot.jobs
            if job.id not in given and job.id not in self.pool.kept
        ]
        later: dict[tuple[int, str], list[tuple[Job, int]]] = {}
        queues: dict[tuple[int, tuple[str, ...]], list[Job]] = {}
        for job in sorted(waiting, key=arrival_order):
            claimed = self.pool.sums[job.id].gpu_type
            types = reported_type_first(self.pool.capacity, job, claimed)
            starts_us = self._starts_us(solved, job)
            if starts_us is not None and self.admission.check(job, types[0]) is None:
                later.setdefault((job.tenant, types[0]), []).append((job, starts_us))
            else:
                queues.setdefault((job.tenant, types), []).append(job)
        rows = [_planned_later(*key, jobs) for key, jobs in sorted(later.items())]
        explained = [
            explain.Queue(tenant, first, jobs, None, None, None, tuple(others))
            for (tenant, (first, *others)), jobs in sorted(queues.items())
        ]
        return rows + explain.skips(explained, self.free, self.admission)

    def _starts_us(self, solved: SolvedRound | None, job: Job) -> int | None:
        """Return the job's planned start if it is after this round, or else None."""
        if solved is None:
            return None
        made = solved.plans.get(self.pool.home(job))
        row = made.rows.get(job.id) if made else None
        if row is None or row.is_now or not row.slots or not row.slots[0]:
            return None
        return self.snapshot.at_us + row.slots[0] * self.pool.lease_us


def _places(ids: Iterable[int]) -> dict[int, int]:
    return {id_: place for place, id_ in enumerate(sorted(ids), 1)}


def _planned_later(tenant: int, gpu_type: str, jobs: list[tuple[Job, int]]) -> Skip:
    first, starts_us = jobs[0]
    numbers = {"gpu_type": gpu_type, "needed": first.gpus, "starts_us": starts_us, "borrowed": 0}
    ids, gpus = tuple(job.id for job, _ in jobs), sum(job.gpus for job, _ in jobs)
    return Skip(Reason.PLANNED_LATER, tenant, ids, gpus, numbers)


def _solve(solved: SolvedRound | None) -> Solve | None:
    """Return the solver status of the round. Its gap is the largest gap of all GPU types."""
    if solved is None or not any(row.problem.jobs for row in solved.plans.values()):
        return None
    plans = [row.plan for row in solved.plans.values()]
    gap_milli = max(round(plan.gap * ONE_MILLI) for plan in plans)
    status = "solved" if all(plan.is_complete for plan in plans) else "iteration limit"
    points = sum(plan.reward_micro for plan in plans) / REWARD_MICRO
    solver = "highs" if solved.pool.is_former else "ortools"
    return Solve(solver, f"{status}, gap {gap_milli / 10:g} %", points)


POLICY = UniSched()
