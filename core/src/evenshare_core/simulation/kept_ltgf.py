"""LTGF on queues and free GPUs that are kept between rounds, for the simulator.

`policies.ltgf.select` is the policy here as in a live round: who comes first, what fits where,
reservations, and who may stay. Only what it works on is not built from a snapshot of everything:
the free GPUs are told of the nodes on which something happened, queues hold the jobs that wait or
whose lease is due, and a claim's sums catch up when they are looked at. Nobody asks why a job
waits or by which numbers one was picked, so neither is made.

It holds where `Resting.suits` a world: no limit could refuse anybody. That it answers as
`decide_round` does is tested round by round (tests/simulation/test_kept_ltgf.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from evenshare_core.domain.decision import End, Grant, Renew
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason
from evenshare_core.domain.snapshot import SCHEMA_VERSION, JobService, Snapshot
from evenshare_core.fairness.gpu_time import ClaimSums, Sums, job_received
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.placement.stability import keep_placements
from evenshare_core.policies.ltgf.options import LtgfOptions
from evenshare_core.policies.ltgf.policy import Picks, select
from evenshare_core.policies.ltgf.queues import Claim
from evenshare_core.policies.shared.admission import Admission, Refusal
from evenshare_core.policies.shared.reservation import Reservations
from evenshare_core.simulation.world import World

_OPTIONS = LtgfOptions()


class Answer(NamedTuple):
    """What a round decided; own, borrowed and price are not filled yet."""

    grants: list[Grant]
    renewals: list[Renew]
    ends: list[End]
    memory: dict[str, Any]


class _KeptClaim(Claim):
    """A claim on sums that are still moving; they catch up when a job's rho is asked."""

    __slots__ = ("_sums",)

    def __init__(self, sums: ClaimSums, at_us: int) -> None:
        # Not the parent's: its sums are of a frozen row, and its integrals a copy.
        self.tenant, self.gpu_type = sums.key
        self.quota = sums.quota
        span_us = at_us - sums.since_us
        self.alloc = sums.alloc + sums.held * span_us  # (11)
        self.fair = sums.fair + min(sums.demand, sums.quota) * span_us  # (9)
        self.queue = []
        self.next = 0
        self._sums = sums

    def job_rho(self, row: JobService, at_us: int) -> float | None:
        """(15); None while nothing was deserved."""
        sums = self._sums
        if sums.since_us < at_us:
            sums.advance(at_us)
        fair = sums.classes[row.demand, row.weight][1] - row.baseline_gpu_us
        return job_received(row, at_us) / fair if fair else None


class _NoLimits(Admission):
    """Where nothing is limited: `terms.settle` would withdraw nothing either."""

    def __init__(self) -> None:
        pass

    def check(self, *_: Any, **__: Any) -> Refusal | None:
        """Nobody is refused."""
        return None

    def take(self, *_: Any, **__: Any) -> tuple[int, int]:
        """Own and borrowed GPUs are told by `Resting`."""
        return 0, 0


class KeptLtgf:
    """The free GPUs of a world, as they go on from round to round."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._nodes = tuple(world.nodes.values())
        by_type: dict[str, dict[int, int]] = {}
        for node in self._nodes:
            by_type.setdefault(node.gpu_type, {})[node.id] = node.gpus
        self._free_by_type = {name: FreeCapacity(gpus, {}, {}) for name, gpus in by_type.items()}
        world.touched.update(world.nodes)

    def decide(self, sums: Sums, due: list[Lease]) -> Answer:
        """Answer the round of the world's instant; `due` are the leases that end by it."""
        world = self._world
        self._begin(due)
        pick = Picks(world.at_us, world.rules.lease_us, self._free_by_type, _NoLimits())
        reservations = Reservations.load(self._snapshot(), _OPTIONS.reserve_after_leases)
        select(self._claims(sums, due), pick, reservations, _OPTIONS)
        grants, renewals = keep_placements(pick.grants, pick.renewals, due)
        renewed = {renewal.lease for renewal in renewals}
        ends = [
            End(lease.id, lease.job, lease.tenant, EndReason.NOT_RENEWED)
            for lease in sorted(due, key=_by_id)
            if lease.id not in renewed
        ]
        for free_capacity in self._free_by_type.values():  # free again, unless something came of it
            world.touched.update(free_capacity.held_back)
        return Answer(grants, renewals, ends, reservations.memory(pick.picked))

    def _begin(self, due: list[Lease]) -> None:
        """Tell the free GPUs of the nodes that leases took or left, and of those that are due."""
        world = self._world
        free: dict[str, dict[int, int]] = {name: {} for name in self._free_by_type}
        for node in world.touched:
            gpu_type = world.nodes[node].gpu_type
            free[gpu_type][node] = world.free[gpu_type].free[node]
        world.touched.clear()
        for name, free_capacity in self._free_by_type.items():
            free_capacity.again(
                free[name], [lease.placement for lease in due if lease.gpu_type == name]
            )

    def _snapshot(self) -> Snapshot:
        """What reservations read of a round."""
        world = self._world
        return Snapshot(
            schema=SCHEMA_VERSION, pool=0, number=world.number, at_us=world.at_us,
            round_us=world.rules.round_us, lease_us=world.rules.lease_us,
            policy=world.policy.name, policy_version=world.policy.version, options={}, seed=0,
            nodes=self._nodes, tenants=(), entitlements=(), jobs=(),
            leases=tuple(world.leases.values()), prices=(), changes=(), service=world.service,
            memory=world.memory,
        )  # fmt: skip

    def _claims(self, sums: Sums, due: list[Lease]) -> list[Claim]:
        """Claims with candidates; those without would never be looked at."""
        world, rows = self._world, sums.jobs
        at_us, jobs = world.at_us, world.jobs
        found: dict[tuple[int, str], _KeptClaim] = {}
        candidates: list[tuple[int, Lease | None]] = [(job, None) for job in world.queue]
        candidates += [(lease.job, lease) for lease in due]
        for job_id, lease in candidates:
            row, job = rows[job_id], jobs[job_id]
            key = (row.tenant, row.gpu_type)
            claim = found.get(key)
            if claim is None:
                claim = found[key] = _KeptClaim(sums.claims[key], at_us)
                if claim.gpu_type not in self._free_by_type:  # a type without nodes
                    self._free_by_type[claim.gpu_type] = FreeCapacity({}, {}, {})
            score = spent = 0.0
            if row.alloc_gpu_us or row.held:
                score, spent = claim.score(row, at_us)
            claim.queue.append((False, score, spent, job.submitted_us, job_id, job, row, lease))
        for claim in found.values():
            claim.queue.sort()
        return list(found.values())


def _by_id(lease: Lease) -> int:
    return lease.id
