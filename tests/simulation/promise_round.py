"""A round of evenshare with its promised starts, as the checker of promises reads it.

`decision.memory["promises"]` has a row per promise: [job, gpu_type, gpus, due_us, made_us, parts].
A part has the GPUs on a node of the promise's place (`promises_of`). Some of them are free and
held, some are pinned in leases, and some come after the lease of another promised job. Without the
key, there are no promises.

| symbol | here | unit |
|---|---|---|
| T | `Promise.due_us`, the latest start | us |
| L | `Snapshot.longest_us` | us |
| n | `RoundView.notice_us` | us |
| r | `Snapshot.round_us` | us |
| c | `promise_bound.Followed.chains` | promises |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

from evenshare_core.domain.cluster import Placement, placement_gpus
from evenshare_core.domain.decision import Decision, swapped
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import ClaimService, Snapshot
from evenshare_core.fairness.gpu_time import deserved, received
from evenshare_core.units import SECOND_US

ClaimKey = tuple[int, str]  # (tenant, GPU type)
HEAD_START_US = 300 * SECOND_US  # of rule 1


class Part(NamedTuple):
    """The GPUs of a promise on one node; `pins` by lease, `after` by promised job."""

    node: int
    gpus: int
    held: int
    pins: Mapping[int, int]
    after: Mapping[int, int]


class Promise(NamedTuple):
    """A job's promised start: at `due_us` at the latest, on the nodes of its parts."""

    job: int
    gpu_type: str
    gpus: int
    due_us: int
    made_us: int
    parts: tuple[Part, ...]

    @property
    def place(self) -> Placement:
        return tuple((part.node, part.gpus) for part in self.parts)


def promises_of(
    memory: Mapping[str, Any],
    leases: Iterable[Lease] = (),
    granted: Collection[int] = (),
) -> list[Promise]:
    """Return the promises of a stored memory, in its order.

    `leases`: those of the snapshot. `granted`: the jobs that the round starts. The reference stores
    pins by lease, and each part with its GPUs. The product stores pins by job.
    """
    holders = {lease.job: lease.id for lease in leases}
    return [
        Promise(
            job, gpu_type, gpus, due_us, made_us,
            tuple(_part_of(row, holders, granted) for row in parts),
        )
        for job, gpu_type, gpus, due_us, made_us, parts in memory.get("promises", ())
    ]  # fmt: skip # rows of what belongs together


def _part_of(row: list[Any], holders: Mapping[int, int], granted: Collection[int]) -> Part:
    if len(row) == 5:
        node, gpus, held, pins, after = row
        return Part(node, gpus, held, dict(pins), dict(after))
    node, held, by_job, after = row
    pins, behind = dict[int, int](), dict(after)
    for job, gpus in by_job:
        if job in granted and job not in holders:
            behind[job] = behind.get(job, 0) + gpus  # its lease has no id yet
        else:
            pins[holders.get(job, -job)] = gpus
    return Part(node, held + sum(pins.values()) + sum(behind.values()), held, pins, behind)


class RunningLease(NamedTuple):
    """A lease after a round. `id` is 0 if the round granted it."""

    id: int
    job: int
    placement: Placement
    expires_us: int


@dataclass
class RoundView:
    """A round, its promises before and after it, and the leases that run after it.

    `sizes` has the GPUs of each node in the previous round, if known.
    """

    snapshot: Snapshot
    decision: Decision
    notice_us: int = 0
    sizes: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.at_us = self.snapshot.at_us
        leases = self.snapshot.leases
        granted = {grant.job for grant in self.decision.grants}
        self.rows = promises_of(self.decision.memory, leases, granted)
        self.before = {row.job: row for row in promises_of(self.snapshot.memory, leases)}
        self.after = {row.job: row for row in self.rows}
        self.jobs = {job.id: job for job in self.snapshot.jobs}
        self.nodes = {node.id: node for node in self.snapshot.nodes}
        self.leases = {lease.id: lease for lease in self.snapshot.leases}
        self.holders = {lease.job for lease in self.snapshot.leases}
        self.ended = {end.lease for end in self.decision.ends}
        self.grants = {grant.job: grant for grant in self.decision.grants}

    @cached_property
    def waiting(self) -> dict[int, Job]:
        """Return the jobs that may start in this round, without the jobs of ending leases."""
        at_us = self.at_us
        barred = {row.job for row in self.snapshot.backoffs if row.until_us > at_us}
        return {key: job for key, job in self.jobs.items() if key not in self.holders | barred}

    @cached_property
    def running(self) -> list[RunningLease]:
        """Return the leases that run after the round."""
        lengths = {row.job: row.lease_us for row in self.decision.lengths}
        renewed = {row.lease for row in self.decision.renewals}

        def until(job: int) -> int:
            return self.at_us + lengths.get(job, self.snapshot.lease_us)

        kept = [lease for lease in self.leases.values() if lease.id not in self.ended]
        ends = {lease.id: lease.expires_us for lease in kept}
        ends |= {lease.id: until(lease.job) for lease in kept if lease.id in renewed}
        return [
            RunningLease(
                lease.id, lease.job, lease.placement, self._ends_us(lease.id, ends[lease.id])
            )
            for lease in kept
        ] + [
            RunningLease(0, grant.job, grant.placement, self._ends_us(-grant.job, until(grant.job)))
            for grant in self.decision.grants
        ]  # fmt: skip # rows of what belongs together

    def _ends_us(self, lease: int, expires_us: int) -> int:
        """Return when a lease ends: the product renews a pinned lease, and ends it at T.

        `lease`: its id, or -(job) if the round granted it.
        """
        rows = self.decision.memory.get("promises", ())
        if any(len(part) == 5 for row in rows for part in row[5]):
            return expires_us  # the reference renews until T only
        grant = self.grants.get(-lease)
        is_lent = grant is not None and grant.key.note == "backfilled"
        due_us = [
            self.due_round_us(row.due_us)
            for row in self.rows
            for part in row.parts
            if lease in part.pins or (-lease in part.after and is_lent)
        ]
        return min([expires_us, *due_us])

    def key(self, claim: ClaimKey, *, with_starts: bool) -> float:
        """Return rule 1's key of a claim, or inf if nothing is deserved.

        With `with_starts`, the starts of promised jobs count as granted in the round.
        """
        row = self._sums.get(claim)
        if row is None:
            return inf
        granted_us = 0
        for grant in self.decision.grants if with_starts else ():
            if grant.job in self.before and (grant.tenant, grant.gpu_type) == claim:
                granted_us += placement_gpus(grant.placement) * self.snapshot.lease_us
        return _key(*row, self.at_us, granted_us)

    @cached_property
    def _sums(self) -> dict[ClaimKey, tuple[ClaimService, list[Any]]]:
        """Return each claim's sums of the round, and its row in the memory."""
        rows = {(row[0], row[1]): row for row in self.decision.memory.get("claims", ())}
        claims = {(row.tenant, row.gpu_type): row for row in self.decision.service.claims}
        return {key: (claim, rows[key]) for key, claim in claims.items() if key in rows}

    @cached_property
    def quotas(self) -> dict[ClaimKey, int]:
        rows = swapped(self.snapshot.entitlements, self.decision.swaps)
        return {(row.tenant, row.gpu_type): row.gpus for row in rows}

    @property
    def real(self) -> list[Promise]:
        """Return the promises after the round, without those whose job started on its place."""
        return [
            row
            for row in self.rows
            if row.job not in self.grants or self.grants[row.job].placement != row.place
        ]

    def due_round_us(self, due_us: int) -> int:
        """Return the time of the first round at or after `due_us`."""
        round_us = self.snapshot.round_us
        return -(-due_us // round_us) * round_us if round_us else due_us

    def most_us(self, chain: int) -> int:
        """Return (1 + c)(L + n + r)."""
        snapshot = self.snapshot
        return (1 + chain) * (snapshot.longest_us + self.notice_us + snapshot.round_us)

    def lost_node(self, promise: Promise) -> bool:
        """Return whether a node of the promise was lost or shrank, which excuses it."""
        for node, gpus in promise.place:
            size = self.nodes[node].gpus if node in self.nodes else 0
            if size < self.sizes.get(node, gpus):
                return True
        return False

    def name(self, promise: Promise) -> str:
        return f"promise of job {promise.job}, due {seconds(promise.due_us)}"


def seconds(us: int) -> str:
    return f"{us / SECOND_US:g} s"


def _key(claim: ClaimService, row: list[Any], at_us: int, granted_us: int) -> float:
    """Return (A + granted) / (F + 300 s x min(D, Q)); `row` is the claim's in the memory."""
    received_us = row[2] + received(claim, at_us) - row[4] + granted_us
    deserved_us = row[3] + deserved(claim, at_us) - row[5]
    due_us = deserved_us + HEAD_START_US * min(claim.demand, claim.quota)
    return received_us / due_us if due_us else inf
