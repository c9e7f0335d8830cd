"""Check that candidates of owed tenants are promised a start, and start within the bound.

`follow` checks a sequence of rounds of one pool, each as in `tests.simulation.promise_checker`. It
also follows the candidate of rule 4 (d) of each owed tenant, from the first round in which the job
is the candidate until its start. It must start within B = r + (1 + c)(L + n + r).

c is the longest chain of promises that the candidate's promise comes after. If the tenant's
promises leave no GPUs for another promise, the candidate waits for them first, so their chain
counts too.

If a job starts early, a promise behind it may keep its T. Then the chain of its first round counts,
with jobs that have started since. If T always moves to the time at which the place is free, only
the promises of the round need to count (`is_tight`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import ChangeKind, Snapshot
from tests.simulation.promise_checker import breaches
from tests.simulation.promise_round import ClaimKey, Promise, RoundView, seconds

Round = tuple[Snapshot, Decision]


@dataclass
class Candidate:
    """A job that is its tenant's candidate since `since_us`, and what it waits for.

    `chain` is c so far, and `waited_us` its wait until the last round. `is_blocked`: whether its
    tenant's promises left no GPUs for it. `is_over`: whether it started.
    """

    job: int
    gpus: int
    claim: ClaimKey
    since_us: int
    chain: int = 0
    waited_us: int = 0
    bound_us: int = 0
    is_blocked: bool = False
    is_promised: bool = False
    is_over: bool = False


@dataclass
class Followed:
    """The results of a sequence of rounds, and the state between two of them.

    `started` has former candidates, `candidates` the current ones. `promises` counts new promises,
    and `chains` has c of the current ones, by job. `since_us` has the time since when each waiting
    job waits: its submission or its last lease's end.
    """

    notice_us: int = 0
    is_tight: bool = False
    rounds: int = 0
    promises: int = 0
    breaches: list[str] = field(default_factory=list)
    started: list[Candidate] = field(default_factory=list)
    candidates: dict[int, Candidate] = field(default_factory=dict)
    chains: dict[int, int] = field(default_factory=dict)
    since_us: dict[int, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)

    @property
    def waits(self) -> list[Candidate]:
        """Return all former and current candidates."""
        return [*self.started, *self.candidates.values()]

    def add(self, snapshot: Snapshot, decision: Decision) -> None:
        """Check the next round."""
        view = RoundView(snapshot, decision, self.notice_us, self.sizes)
        sizes = {node.id: node.gpus for node in snapshot.nodes}
        if sizes != self.sizes:
            self.candidates.clear()  # the bound does not hold across a change of nodes
        self._update_waiting(view)
        self._update_chains(view)
        label = f"round {snapshot.number} at {seconds(snapshot.at_us)}"
        texts = [*breaches(view), *self._check_candidates(view)]
        self.breaches += [f"{label}: {text}" for text in texts]
        self.rounds += 1
        self.promises += sum(row.made_us == view.at_us for row in view.rows)
        self.sizes = sizes

    def _update_waiting(self, view: RoundView) -> None:
        released = {
            change.job: change.at_us
            for change in view.snapshot.changes
            if change.kind is ChangeKind.RELEASE
        }
        known = self.since_us | released
        self.since_us = {
            key: known.get(key, job.submitted_us)
            for key, job in view.jobs.items()
            if key not in view.holders
        }

    def _update_chains(self, view: RoundView) -> None:
        """Count the chains of promises, each after the promises that it comes after."""
        known, self.chains = self.chains, {}
        for row in sorted(view.rows, key=lambda row: row.due_us):
            ahead = {job for part in row.parts for job in part.after if job in self.chains}
            chain = max((1 + self.chains[job] for job in ahead), default=0)
            is_new = self.is_tight or row.made_us == view.at_us
            self.chains[row.job] = chain if is_new else known.get(row.job, chain)

    def _check_candidates(self, view: RoundView) -> Iterator[str]:
        heads = self._heads(view)
        for claim, job in heads.items():
            if job.id not in self.candidates:
                self.candidates[job.id] = Candidate(job.id, job.gpus, claim, view.at_us)
        yield from self._check_order(view)
        for one in list(self.candidates.values()):
            yield from self._check(view, one, heads)

    def _check_order(self, view: RoundView) -> Iterator[str]:
        """Check that a tenant's new promise is for its longest waiting job."""
        last_us = view.at_us - view.snapshot.round_us
        left: dict[ClaimKey, Job] = {}
        for job, claim in self._queue(view):
            promise = view.after.get(job.id)
            if promise is not None and promise.made_us == view.at_us and claim in left:
                yield f"candidate: job {left[claim].id} has waited longer than job {job.id}"
            is_left = promise is None and job.id not in view.grants
            if is_left and self.since_us[job.id] <= last_us:
                left.setdefault(claim, job)

    def _heads(self, view: RoundView) -> dict[ClaimKey, Job]:
        """Return the candidate of each owed tenant, of the jobs that waited in the last round."""
        last_us = view.at_us - view.snapshot.round_us
        heads: dict[ClaimKey, Job] = {}
        for job, claim in self._queue(view):
            old = view.before.get(job.id)
            is_promised = old is not None and not view.lost_node(old)
            if not is_promised and self.since_us[job.id] <= last_us:
                heads.setdefault(claim, job)
        return {claim: job for claim, job in heads.items() if view.key(claim, with_starts=True) < 1}

    def _queue(self, view: RoundView) -> list[tuple[Job, ClaimKey]]:
        """Return the waiting jobs that fit the pool, the longest waiting one first."""
        capacity = capacity_by_type(view.snapshot.nodes)
        claims = {row.job: (row.tenant, row.gpu_type) for row in view.decision.service.jobs}
        jobs = sorted(view.waiting.values(), key=self._rank)
        rows = [(job, claims[job.id]) for job in jobs]
        return [(job, claim) for job, claim in rows if job.gpus <= capacity.get(claim[1], 0)]

    def _rank(self, job: Job) -> tuple[int, int, int]:
        return (self.since_us[job.id], job.submitted_us, job.id)

    def _check(self, view: RoundView, one: Candidate, heads: dict[ClaimKey, Job]) -> Iterator[str]:
        """Check a candidate after a round, and remove it if it is no longer the candidate."""
        promise = view.after.get(one.job)
        head = heads.get(one.claim)
        if one.job in view.grants:
            one.is_over = True
            self.started.append(self.candidates.pop(one.job))
        elif one.job not in view.waiting or (promise is None and one.is_promised):
            del self.candidates[one.job]  # it waits no longer, or `kept` reports the lost promise
            return
        elif promise is not None:
            one.chain += 0 if one.is_promised else self.chains[one.job]
            one.is_promised = True
        elif head is None or head.id != one.job:
            del self.candidates[one.job]  # its tenant is not owed any more
            return
        elif not one.is_blocked:
            if not _is_blocked(view, one):
                yield f"candidate: job {one.job} of owed tenant {one.claim[0]} has no promise"
            one.is_blocked = True
            chains = [self.chains.get(row.job, 0) for row in _own(view, one)]
            one.chain = 1 + max(chains, default=0)
        one.waited_us = view.at_us - one.since_us
        one.bound_us = view.snapshot.round_us + view.most_us(one.chain)
        if one.waited_us > one.bound_us:
            wait, most = seconds(one.waited_us), seconds(one.bound_us)
            yield f"bound: job {one.job} waited {wait}, at most {most} with a chain of {one.chain}"


def _is_blocked(view: RoundView, one: Candidate) -> bool:
    """Return whether the tenant's promises leave no GPUs for the candidate's promise.

    Promises whose job started in the round may have blocked it.
    """
    gpus = sum(row.gpus for row in _own(view, one))
    return gpus + one.gpus > max(view.quotas.get(one.claim, 0), one.gpus)


def _own(view: RoundView, one: Candidate) -> list[Promise]:
    return [
        row
        for row in (view.before | view.after).values()
        if row.job in view.jobs and (view.jobs[row.job].tenant, row.gpu_type) == one.claim
    ]


def follow(rounds: Iterable[Round], *, notice_us: int = 0, is_tight: bool = False) -> Followed:
    """Check rounds of one pool in order, until the first round with a breach."""
    state = Followed(notice_us, is_tight)
    for snapshot, decision in rounds:
        state.add(snapshot, decision)
        if state.breaches:
            break
    return state
