"""The state of a round: an entry for each job that had its turn, with the leases ended for it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import End, Grant, Key, Preemption, Renew
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.reasons import EndReason, PreemptionRule
from evenshare_core.domain.snapshot import JobService
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.placement.stability import keep_placements
from evenshare_core.policies.evenshare.options import EvenshareOptions
from evenshare_core.policies.evenshare.promises import StartPromise
from evenshare_core.policies.evenshare.queues import (
    ClaimKey,
    Entry,
    EvenCandidate,
    JobOrder,
    Kinds,
    TenantStanding,
)
from evenshare_core.policies.evenshare.restarts import RestartBudget
from evenshare_core.policies.shared.admission import Admission, Refusal
from evenshare_core.policies.shared.session import NO_KEY

# Notes of picks that rule 1 does not explain.
LEFT_OVER, GUARANTEE, PAYS, DEFRAGMENTED, MOVED, LARGE_GANG, PROMISED, BACKFILLED = (
    "left over",
    "guarantee",
    "pays",
    "defragmented",
    "moved",
    "large gang",
    "promised",
    "backfilled",
)

NOTE_OF = {
    PreemptionRule.GUARANTEE: GUARANTEE,
    PreemptionRule.PAYS: PAYS,
    PreemptionRule.DEFRAGMENT: DEFRAGMENTED,
    PreemptionRule.GANG: LARGE_GANG,
}


class RoundPool(NamedTuple):
    """Inputs of a round, from a snapshot or from kept state.

    `queues`: the waiting jobs. `ended`: the jobs whose lease ended, each with the entry that
    `order` gives it. `standing` returns the standing of a claim. `running` returns the leases that
    continue. `gpus`: the schedulable GPUs of each node. `is_waiting` returns whether a queued job
    still waits; None if all do. `promises`: those of the last round, from the policy's `memory`.
    `longest_waiting` yields (since when, job) for a claim's waiting jobs, the longest waiting
    first. `may_be_overfull`: some nodes may have fewer GPUs than their leases hold.
    """

    at_us: int
    lease_us: int
    jobs: Mapping[int, Job]
    sums: Mapping[int, JobService]
    profiles: Mapping[int, Profile]
    gpus: Mapping[int, int]
    queues: Mapping[ClaimKey, Kinds]
    order: JobOrder
    ended: Sequence[tuple[Entry, EvenCandidate]]
    standing: Callable[[ClaimKey], TenantStanding]
    running: Callable[[], Collection[Lease]]
    free_by_type: dict[str, FreeCapacity]
    admission: Admission
    round_us: int
    promises: Sequence[StartPromise]
    memory: Mapping[str, Any]
    longest_waiting: Callable[[ClaimKey], Iterable[tuple[int, int]]]
    is_waiting: Callable[[int], bool] | None = None
    may_be_overfull: bool = True
    explains: bool = True


class Standings(dict[ClaimKey, TenantStanding]):
    """The standings of claims. Each is created on first access."""

    def __init__(self, make: Callable[[ClaimKey], TenantStanding]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: ClaimKey) -> TenantStanding:
        row = self[key] = self._make(key)
        return row


class PickState(Enum):
    """The state of a job that had its turn."""

    NOMINATED = auto()  # tried; if this stays the job's state, it did not fit
    GRANTED = auto()
    RENEWED = auto()
    PREEMPTING = auto()  # leases end or move for this job, so its placement is fixed
    PROMISED = auto()  # its GPUs were promised to it, or to another job later
    MOVED = auto()  # the job makes room and continues on another node
    SKIPPED = auto()  # a limit or the job's size excludes it, see `because`


@dataclass(slots=True)
class PickEntry:
    """A job that had its turn. `preemptions`: the leases that end for the job."""

    state: PickState
    row: Grant | Renew | None = None
    because: Refusal | None = None
    preemptions: tuple[Preemption, ...] = ()


class RoundProgress:
    """The entries of jobs, in the order of turns. A tenant is charged when its job is served."""

    def __init__(self, pool: RoundPool, options: EvenshareOptions) -> None:
        self.pool, self.options = pool, options
        self.standings = Standings(pool.standing)
        self.free_by_type, self.admission = pool.free_by_type, pool.admission
        self.entries: dict[int, PickEntry] = {}
        self.restarts = RestartBudget(pool.memory, pool.sums, pool.at_us, options.paid_us)
        self._order = 0

    @property
    def grants(self) -> list[Grant]:
        rows = (entry.row for entry in self.entries.values())
        return [row for row in rows if isinstance(row, Grant)]

    @property
    def renewals(self) -> list[Renew]:
        rows = (entry.row for entry in self.entries.values())
        return [row for row in rows if isinstance(row, Renew)]

    @property
    def preemptions(self) -> list[Preemption]:
        return [row for entry in self.entries.values() for row in entry.preemptions]

    @property
    def ends(self) -> list[End]:
        """Leases that end before their expiry."""
        return [End(row.lease, row.job, row.tenant, _why(row.rule)) for row in self.preemptions]

    @property
    def refused(self) -> dict[int, Refusal]:
        entries = self.entries.items()
        return {job: entry.because for job, entry in entries if entry.because is not None}

    def nominate(self, job: Job) -> None:
        self.entries[job.id] = PickEntry(PickState.NOMINATED)

    def skip(self, job: Job, because: Refusal) -> None:
        entry = self.entries[job.id]
        entry.state, entry.because = PickState.SKIPPED, because

    def give(self, job: Job, gpu_type: str, placement: Placement, note: str) -> None:
        """Grant a gang GPUs that are already taken, and charge its tenant."""
        standing, entry = self.standings[job.tenant, gpu_type], self.entries[job.id]
        if entry.state is PickState.NOMINATED:
            entry.state = PickState.GRANTED
        key = self._pick_key(standing, note)
        entry.row = Grant(self._next(), job.id, job.tenant, gpu_type, placement, key)
        self._charge(standing, job.gpus, gpu_type)

    def renew(self, lease: Lease, note: str) -> None:
        standing, entry = self.standings[lease.tenant, lease.gpu_type], self.entries[lease.job]
        entry.state, key = PickState.RENEWED, self._pick_key(standing, note)
        entry.row = Renew(
            self._next(), lease.id, lease.job, lease.tenant, lease.gpu_type, lease.gpus, key
        )
        self._charge(standing, lease.gpus, lease.gpu_type)

    def move(self, lease: Lease, node: int) -> None:
        """Grant a moved job its new node. Its tenant still holds the same number of GPUs."""
        key = Key(None, None, MOVED) if self.pool.explains else NO_KEY
        place = ((node, lease.gpus),)
        row = Grant(self._next(), lease.job, lease.tenant, lease.gpu_type, place, key)
        self.entries[lease.job] = PickEntry(PickState.MOVED, row)
        self.admission.take(lease.tenant, lease.gpu_type, lease.gpus)

    def end(self, lease: Lease, rule: PreemptionRule, job: Job, numbers: dict[str, int]) -> None:
        entry = self.entries[job.id]
        entry.state = PickState.PREEMPTING
        row = Preemption(lease.id, lease.job, lease.tenant, rule, job.id, job.tenant, numbers)
        entry.preemptions = (*entry.preemptions, row)
        if rule is PreemptionRule.PAYS:
            self.restarts.count(lease.job)
        if _why(rule) is EndReason.PREEMPTED:
            self.standings[lease.tenant, lease.gpu_type].kept -= lease.gpus

    def stay(
        self, due: Iterable[Lease], promises: Iterable[StartPromise]
    ) -> tuple[list[Grant], list[Renew]]:
        """Keep jobs on their nodes, except moved jobs and jobs for which leases ended.

        `promises`: those after the round. Jobs that rule 4 started keep their place on the nodes
        of promises.
        """
        promised = {node for row in promises for node in row.parts}
        free: list[Grant] = []
        fixed: list[Grant] = []
        for entry in self.entries.values():
            row, state = entry.row, entry.state
            if isinstance(row, Grant):
                may_swap = state is PickState.GRANTED or (
                    state is PickState.PROMISED
                    and promised.isdisjoint(node for node, _ in row.placement)
                )
                (free if may_swap else fixed).append(row)
        grants, renewals = keep_placements(free, self.renewals, due)
        if fixed:
            grants = sorted([*grants, *fixed], key=lambda grant: grant.order)
        return grants, renewals

    def _next(self) -> int:
        self._order += 1
        return self._order

    def _pick_key(self, standing: TenantStanding, note: str) -> Key:
        if not self.pool.explains:
            return NO_KEY
        value = standing.tight_key() if self.options.is_tight else standing.key()
        return Key(None if value == float("inf") else value, None, note)

    def _charge(self, standing: TenantStanding, gpus: int, gpu_type: str) -> None:
        """Charge the tenant for one lease of GPU-time, until this round ends (rule 1)."""
        self.admission.take(standing.tenant, gpu_type, gpus)
        standing.charge(gpus, self.pool.lease_us)


def _why(rule: PreemptionRule) -> EndReason:
    return EndReason.MOVED if rule is PreemptionRule.DEFRAGMENT else EndReason.PREEMPTED
