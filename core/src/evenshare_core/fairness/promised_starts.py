"""Check of promised starts: no promise of a start was broken, and each GPU is promised once.

A policy that promises starts keeps the promises in its memory. A promise names a job, its GPUs, the
time by which it starts, and its nodes. Of its GPUs on a node, `held` ones are free. Pinned ones
belong to leases that end by then. The others come after an older promise.

A promise from before the round is kept if the job starts in the round. It is also kept if its time
has not come, and the job has a promise for the same time or earlier after the round. There are five
excuses:

- the job waits no more;
- a node has fewer GPUs than its leases and promises need;
- a limit of the job or its tenant refuses it, or withdrew its start;
- its time has come, but a lease on its GPUs may not end yet, and the promise continues;
- its time has come, but it is behind an older promise that must wait, and the promise continues.

After the round, the parts of each promise must add up to its GPUs, and every GPU counts once. No
more GPUs are held on a node than are free. A limit that withdraws a term changes what is free after
the promises were made, so GPU types with such a term are left out.

The check shares no code with policies.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from evenshare_core.domain.cluster import Placement, gpus_by_node
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.holds import HeldLease
from evenshare_core.fairness.limits import RoundLimits
from evenshare_core.fairness.room import free_at_start, picked_terms

LIMITS = (Reason.RESERVED_QUOTA, Reason.QUOTA_LIMIT, Reason.PRICE_ABOVE_MAX, Reason.BUDGET)
OnNode = tuple[int, int]  # (node, job)


class PromiseCheck(NamedTuple):
    """The numbers of promises before or after the round, and of broken ones.

    `tenants`: whose promises are broken, sorted. `held`: the free GPUs kept after the round.
    """

    checked: int
    broken: int
    tenants: tuple[int, ...]
    held: int


def check_promised_starts(
    snapshot: Snapshot, decision: Decision, held: list[HeldLease], min_runtime_us: int
) -> PromiseCheck:
    """Return how many promises were broken.

    `held` has the leases after the round. A lease runs for `min_runtime_us` before it may end.
    """
    round_ = _PromisedRound(snapshot, decision, held, min_runtime_us)
    broken = {row.job for row in round_.before.values() if not round_.is_kept(row)}
    broken |= round_.miscounted()
    tenants = {round_.jobs[job].tenant for job in broken if job in round_.jobs}
    return PromiseCheck(
        len(round_.before.keys() | round_.after.keys()),
        len(broken),
        tuple(sorted(tenants)),
        sum(part.held for row in round_.after.values() for part in row.parts),
    )


def jobs_of_lost_places(snapshot: Snapshot, decision: Decision) -> set[int]:
    """Return the jobs with a promise from before the round whose node is gone or too small."""
    round_ = _PromisedRound(snapshot, decision, [], 0)
    return {row.job for row in round_.before.values() if round_.has_lost_gpus(row)}


class _Part(NamedTuple):
    """The GPUs of a promise on a node; `pins` and `behind` are GPUs by job."""

    node: int
    held: int
    pins: dict[int, int]
    behind: dict[int, int]

    @property
    def gpus(self) -> int:
        return self.held + sum(self.pins.values()) + sum(self.behind.values())


class _PromisedStart(NamedTuple):
    job: int
    gpu_type: str
    gpus: int
    due_us: int
    made_us: int
    parts: tuple[_Part, ...]

    @property
    def turn(self) -> tuple[int, int, int]:
        return self.due_us, self.made_us, self.job


def _read(memory: Mapping[str, Any]) -> dict[int, _PromisedStart]:
    return {
        job: _PromisedStart(
            job,
            gpu_type,
            gpus,
            due_us,
            made_us,
            tuple(_Part(node, held, dict(pins), dict(after)) for node, held, pins, after in parts),
        )
        for job, gpu_type, gpus, due_us, made_us, parts in memory.get("promises", ())
    }


class _PromisedRound:
    """The promises before and after a round, and the leases and nodes that they count on."""

    def __init__(
        self, snapshot: Snapshot, decision: Decision, held: list[HeldLease], min_runtime_us: int
    ) -> None:
        self._snapshot, self._decision = snapshot, decision
        self._at_us, self._min_runtime_us = snapshot.at_us, min_runtime_us
        self.before, self.after = _read(snapshot.memory), _read(decision.memory)
        self.jobs = {job.id: job for job in snapshot.jobs}
        self._leases = {lease.job: lease for lease in snapshot.leases}
        self._granted = {grant.job for grant in decision.grants}
        self._sizes = {(node.id, node.gpu_type): node.gpus for node in snapshot.nodes}
        self._used = gpus_by_node(lease.placement for lease in snapshot.leases)
        self._used_after = gpus_by_node(hold.placement for hold in held)
        self._gpus = _by_node_and_job((row.job, row.placement) for row in snapshot.leases)
        self._gpus_after = _by_node_and_job((row.job, row.placement) for row in held)
        self._needed = self._needed_before()
        withdrawn = [skip for skip in decision.skips if skip.numbers.get("withdrawn")]
        limited = [skip for skip in decision.skips if skip.reason in LIMITS]
        self._limited = {job for skip in (*withdrawn, *limited) for job in skip.jobs}
        self._unclear_types = {skip.numbers.get("gpu_type") for skip in withdrawn}

    # ---- promises from before the round ----

    def is_kept(self, row: _PromisedStart) -> bool:
        """Return whether the job started, may still start in time, or has an excuse."""
        if row.job in self._granted or row.job not in self.jobs or row.job in self._leases:
            return True
        return self._is_waiting(row) or self.has_lost_gpus(row) or self._is_refused(row)

    def _is_waiting(self, row: _PromisedStart) -> bool:
        """Return whether the promise continues, and its job starts later or must wait."""
        later = self.after.get(row.job)
        if later is None or later.due_us > row.due_us:
            return False
        return self._at_us < later.due_us or self._must_wait(later)

    def _needed_before(self) -> Counter[int]:
        """Return, by node, the GPUs that promises held before the round.

        Pinned GPUs are held once their lease is over.
        """
        needed: Counter[int] = Counter()
        for row in self.before.values():
            for part in row.parts:
                needed[part.node] += part.held + sum(
                    gpus
                    for job, gpus in part.pins.items()
                    if gpus > self._gpus.get((part.node, job), 0)
                )
        return needed

    def has_lost_gpus(self, row: _PromisedStart) -> bool:
        """Return whether a node of the promise is gone, or has too few GPUs for it."""
        for part in row.parts:
            size = self._sizes.get((part.node, row.gpu_type), 0)
            free = size - self._used.get(part.node, 0)
            if not size or free < 0 or free < self._needed[part.node]:
                return True
        return False

    def _is_refused(self, row: _PromisedStart) -> bool:
        """Return whether a limit refuses the job, before or after the leases on its GPUs end."""
        pins = {job for part in row.parts for job in part.pins}
        is_listed = row.job in self._limited
        return is_listed or any(self._is_refused_without(row, gone) for gone in (set(), pins))

    def _is_refused_without(self, row: _PromisedStart, gone: set[int]) -> bool:
        """Return whether a limit refuses the job, without the leases of the jobs in `gone`.

        Promises with an earlier turn start first, and leases end for them.
        """
        snapshot, job = self._snapshot, self.jobs[row.job]
        first = {one.job for one in self.before.values() if one.turn < row.turn}
        gone = gone | {end.job for end in self._decision.preemptions if end.for_job in first}
        leases = (lease for lease in snapshot.leases if not lease.ends_by(self._at_us))
        kept = [lease for lease in leases if lease.job not in gone]
        free = free_at_start(snapshot.nodes, kept)
        unused = {name: sum(nodes.values()) for name, nodes in free.items()}
        limits = RoundLimits(snapshot, self._decision, kept, unused)
        terms = [term for term in picked_terms(snapshot, self._decision) if term.job in first]
        limits.take(terms)
        taken = [term.gpus for term in terms if term.gpu_type == row.gpu_type]
        left, end = unused.get(row.gpu_type, 0) - sum(taken), len(taken) + 1
        ask = (job.tenant, row.gpu_type, job.gpus)
        is_reserved = job.gpus <= left and limits.open_until(*ask, end) < end
        return is_reserved or limits.refuses(*ask, job.max_price_micro)

    def _must_wait(self, row: _PromisedStart) -> bool:
        """Return whether a lease on the GPUs may not end yet, or an older promise must wait."""
        pins = {job for part in row.parts for job in part.pins}
        older = {job for part in row.parts for job in part.behind} & self.after.keys()
        return any(self._may_not_end(job) for job in pins) or any(
            self._must_wait(self.after[job])
            for job in older
            if self.after[job].due_us < row.due_us  # so the search ends
        )

    def _may_not_end(self, job: int) -> bool:
        if job in self._granted:
            return True
        lease = self._leases.get(job)
        if lease is None or lease.ends_by(self._at_us):
            return False
        is_young = lease.started_us + self._min_runtime_us > self._at_us
        return is_young or lease.protected_until_us > self._at_us or job not in self.jobs

    # ---- promises after the round ----

    def miscounted(self) -> set[int]:
        """Return the jobs of promises whose GPUs do not exist, or count twice."""
        rows = [row for row in self.after.values() if row.gpu_type not in self._unclear_types]
        kept, pinned, behind = Counter[int](), Counter[OnNode](), Counter[OnNode]()
        for part in (part for row in rows for part in row.parts):
            kept[part.node] += part.held
            pinned.update({(part.node, job): gpus for job, gpus in part.pins.items()})
            behind.update({(part.node, job): gpus for job, gpus in part.behind.items()})
        # A pinned lease that ended in the round left its GPUs to the promises.
        over = {place for place, gpus in pinned.items() if gpus > self._gpus_after.get(place, 0)}
        for node, job in over:
            kept[node] += pinned[node, job]
        unknown = {place for place in over if pinned[place] > self._gpus.get(place, 0)}
        parts = {(part.node, row.job): part.gpus for row in rows for part in row.parts}
        unknown |= {place for place, gpus in behind.items() if gpus > parts.get(place, 0)}
        broken = {row.job for row in rows if not self._adds_up(row)}
        for row in rows:
            for part in row.parts:
                size = self._sizes.get((part.node, row.gpu_type), 0)
                is_short = kept[part.node] > max(0, size - self._used_after.get(part.node, 0))
                places = {(part.node, job) for job in part.pins}
                ahead = {(part.node, job) for job in part.behind}
                if (is_short and (part.held or places & over)) or (places | ahead) & unknown:
                    broken.add(row.job)
        return broken

    def _adds_up(self, row: _PromisedStart) -> bool:
        """Return whether the job waits or started, and the parts are its GPUs."""
        is_known = row.job in self._granted or row.job not in self._leases
        gpus = sum(part.gpus for part in row.parts)
        job = self.jobs.get(row.job)
        return is_known and job is not None and job.gpus == row.gpus == gpus


def _by_node_and_job(holders: Iterable[tuple[int, Placement]]) -> dict[OnNode, int]:
    return {(node, job): gpus for job, placement in holders for node, gpus in placement}
