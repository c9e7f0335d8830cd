"""A round of evenshare with its promised starts, as the checker of promises reads it.

`decision.memory["promises"]` has a row per promise: [job, gpu_type, gpus, due_us, made_us, parts].
A part is [node, gpus, held, [[lease, gpus], ...], [[job, gpus], ...]]. It has the GPUs on a node of
the promise's place. Some of them are free and held, some are pinned in leases, and some come after
the lease of another promised job. Without the key, there are no promises.

| symbol | here | unit |
|---|---|---|
| T | `Promise.due_us`, the latest start | us |
| L | `Snapshot.longest_us` | us |
| n | `RoundView.notice_us` | us |
| r | `Snapshot.round_us` | us |
| c | `promise_bound.Followed.chains` | promises |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

from evenshare_core.domain.cluster import Placement, placement_gpus
from evenshare_core.domain.decision import Decision, swapped
from evenshare_core.domain.jobs import Job
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


def promises_of(memory: Mapping[str, Any]) -> list[Promise]:
    """Return the promises of a stored memory, in its order."""
    return [
        Promise(job, gpu_type, gpus, due_us, made_us, tuple(_part_of(*row) for row in parts))
        for job, gpu_type, gpus, due_us, made_us, parts in memory.get("promises", ())
    ]


def _part_of(
    node: int, gpus: int, held: int, pins: list[list[int]], after: list[list[int]]
) -> Part:
    return Part(
        node, gpus, held, {row[0]: row[1] for row in pins}, {row[0]: row[1] for row in after}
    )


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
        self.rows = promises_of(self.decision.memory)
        self.before = {row.job: row for row in promises_of(self.snapshot.memory)}
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

        return [
            RunningLease(
                lease.id, lease.job, lease.placement,
                until(lease.job) if lease.id in renewed else lease.expires_us,
            )
            for lease in self.leases.values() if lease.id not in self.ended
        ] + [
            RunningLease(0, grant.job, grant.placement, until(grant.job))
            for grant in self.decision.grants
        ]  # fmt: skip # rows of what belongs together

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
