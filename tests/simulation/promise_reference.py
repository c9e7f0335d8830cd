"""A plain policy with promised starts, by which the checker and its adversary are tested.

Rule 4 follows the second edition of evenshare step by step, with a search over all nodes. The other
rules are as simple as possible. Jobs of the owed tenant with the least key come first, then the job
with the least GPU-time. No lease ends before its expiry, no job moves, and nothing is fast. The
pool has one GPU type, no notice and no limits.

Each of `promise_draft.FAULTS` can be planted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Decision, End, Grant, Key, Renew, Skip, TermLength
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason, Reason
from evenshare_core.domain.snapshot import ClaimService, Snapshot
from evenshare_core.fairness.gpu_time import job_received
from evenshare_core.policies.evenshare.memory import DecayedSums
from evenshare_core.policies.evenshare.options import EvenshareOptions
from evenshare_core.policies.evenshare.policy import Evenshare
from evenshare_core.policies.evenshare.progress import BACKFILLED
from evenshare_core.policies.evenshare.queues import HEAD_START_US
from evenshare_core.policies.options import parse_options
from evenshare_core.policies.policy import Traits
from evenshare_core.policies.shared.session import Session
from tests.simulation.promise_draft import (
    Draft,
    DraftPart,
    Offer,
    Source,
    drop,
    offer_of,
    part_of,
)
from tests.simulation.promise_round import promises_of


class RoundDraft:
    """A round of the reference, step by step."""

    def __init__(
        self, snapshot: Snapshot, sums: DecayedSums, faults: frozenset[str], *, advances: bool
    ) -> None:
        self.snapshot, self.sums, self.faults, self.advances = snapshot, sums, faults, advances
        self.at_us, self.lease_us = snapshot.at_us, snapshot.lease_us
        self.min_runtime_us = EvenshareOptions().min_runtime_us
        self.gpu_type = snapshot.nodes[0].gpu_type
        self.sizes = {node.id: node.gpus for node in snapshot.nodes}
        self.jobs = {job.id: job for job in snapshot.jobs}
        self.leases = {lease.id: lease for lease in snapshot.leases}
        self.lease_of = {lease.job: lease for lease in snapshot.leases}
        self.waiting = {key: job for key, job in self.jobs.items() if key not in self.lease_of}
        self.services = {row.job: row for row in snapshot.service.jobs}
        self.claims = {row.tenant: row for row in snapshot.service.claims}
        self.granted_us: Counter[int] = Counter()
        self.drafts: list[Draft] = []
        self.grants: dict[int, Placement] = {}
        self.lengths_us: dict[int, int] = {}
        self.renewed: list[Lease] = []
        self.ended: set[int] = set()

    def run(self) -> None:
        self.prepare()
        self.make_promises()
        self.serve()
        self.end_due()
        self.lend_held()

    def prepare(self) -> None:
        """Keep or start the promises of the last round."""
        self.update_promises()
        if self.advances:
            self.advance_due()
        self.start_promised()

    # ---- rule 4 (a) ----

    def update_promises(self) -> None:
        """Drop promises of jobs that do not wait, and replace what is over in the rest."""
        self.drafts = [
            Draft.of(row) for row in promises_of(self.snapshot.memory, self.snapshot.leases)
        ]
        known = {draft.job for draft in self.drafts}
        for draft in self.drafts:
            for node, part in draft.parts.items():
                self._replace_over(node, part, known)
        for draft in sorted(self.drafts, key=lambda one: one.rank, reverse=True):
            if draft.job not in self.waiting or not self._has_nodes(draft):
                drop(draft, self.drafts, twice="inherited_twice" in self.faults)

    def _has_nodes(self, draft: Draft) -> bool:
        return all(self.sizes.get(node, 0) >= part.gpus for node, part in draft.parts.items())

    def _replace_over(self, node: int, part: DraftPart, known: set[int]) -> None:
        """Replace started jobs by pins of their leases, and leases that are over by held GPUs."""
        for job in [job for job in part.after if job not in known]:
            gpus = part.after.pop(job)
            lease = self.lease_of.get(job)
            if lease is not None and node in dict(lease.placement):
                part.pins[lease.id] += gpus
            else:
                part.held += gpus
        for lease_id in [key for key in part.pins if key not in self.leases]:
            part.held += part.pins.pop(lease_id)

    def advance_due(self) -> None:
        """Move T to the time at which the place is free, if that is earlier."""
        due_us: dict[int, int] = {}
        for draft in sorted(self.drafts, key=lambda one: one.rank):
            ends_us = [self.at_us]
            for part in draft.parts.values():
                ends_us += [self._end_us(self.leases[key]) for key in +part.pins]
                ends_us += [due_us.get(job, draft.due_us) + self.lease_us for job in +part.after]
            due_us[draft.job] = draft.due_us = min(draft.due_us, max(ends_us))

    def _end_us(self, lease: Lease) -> int:
        return max(lease.expires_us, lease.protected_until_us, self.at_us)

    # ---- rule 4 (b) ----

    def start_promised(self) -> None:
        for draft in sorted(self.drafts, key=lambda one: one.rank):
            pinned = [self.leases[key] for part in draft.parts.values() for key in +part.pins]
            is_free = all(lease.ends_by(self.at_us) for lease in pinned)
            if not draft.has_after and is_free:
                self.drafts.remove(draft)
                self._end(lease.id for lease in pinned)
                self._grant(self.jobs[draft.job], draft.placement)

    def _end(self, leases: Iterable[int]) -> None:
        """End leases; GPUs that other promises pin in them become held."""
        ended = set(leases)
        self.ended |= ended
        for draft in self.drafts:
            for part in draft.parts.values():
                for key in ended & part.pins.keys():
                    part.held += part.pins.pop(key)

    def _grant(self, job: Job, placement: Placement, due_us: int | None = None) -> None:
        self.grants[job.id] = placement
        del self.waiting[job.id]
        self._limit(job, due_us)

    def _limit(self, job: Job, due_us: int | None) -> None:
        length_us = self.lease_us
        if due_us is not None:
            length_us = min(length_us, due_us - self.at_us)
        self.lengths_us[job.id] = length_us
        self.granted_us[job.tenant] += job.gpus * self.lease_us

    # ---- rule 4 (d) ----

    def make_promises(self) -> None:
        tenants = [row.tenant for row in self.snapshot.service.claims if self.key(row.tenant) < 1]
        for tenant in sorted(tenants, key=lambda one: (self.key(one), one)):
            job = self._candidate(tenant)
            if job is not None and self._is_within_quota(job):
                self._promise(job)

    def key(self, tenant: int) -> float:
        """Return the key of rule 1."""
        row: ClaimService = self.claims[tenant]
        received_us, deserved_us = self.sums.sums(row)
        due_us = deserved_us + HEAD_START_US * min(row.demand, row.quota)
        return (received_us + self.granted_us[tenant]) / due_us if due_us else float("inf")

    def _candidate(self, tenant: int) -> Job | None:
        promised = {draft.job for draft in self.drafts}
        jobs = [
            job
            for job in self.waiting.values()
            if job.tenant == tenant and job.id not in promised
            if job.gpus <= sum(self.sizes.values()) and self._since_us(job) < self.at_us
        ]
        if "head_first" in self.faults:
            return min(jobs, default=None, key=self._order)
        return min(
            jobs, default=None, key=lambda job: (self._since_us(job), job.submitted_us, job.id)
        )

    def _since_us(self, job: Job) -> int:
        return max(job.submitted_us, self.services[job.id].held_since_us)

    def _is_within_quota(self, job: Job) -> bool:
        if "over_quota" in self.faults:
            return True
        own = sum(draft.gpus for draft in self.drafts if self.jobs[draft.job].tenant == job.tenant)
        return own + job.gpus <= max(self.claims[job.tenant].quota, job.gpus)

    def _promise(self, job: Job) -> None:
        """Promise the earliest place, or start the job if it is free now; see `_offers`."""
        most = self.key(job.tenant)
        spared = {row.tenant for row in self.claims.values() if self.key(row.tenant) <= most}
        chosen = self._offers(job, spared) or self._offers(job)
        due_us = max(offer.due_us for offer in chosen)
        parts = {offer.node: part_of(offer) for offer in chosen}
        draft = Draft(job.id, job.gpus, due_us, self.at_us, parts)
        if due_us > self.at_us:
            self.drafts.append(draft)
            return
        self._end(one.lease for offer in chosen for one in offer.sources if one.lease)
        self._grant(job, draft.placement)

    def _offers(self, job: Job, spared: Collection[int] = ()) -> list[Offer]:
        """Return the best offers, without GPUs that are promised, or leased to `spared` tenants."""
        left, chosen = job.gpus, list[Offer]()
        rest = {node: size for node, size in self.sizes.items() if size}
        while left:
            wanted = {node: left for node, size in rest.items() if size >= left} or rest
            offers = [self._offer(node, gpus, spared) for node, gpus in wanted.items()]
            best = min((offer for offer in offers if offer is not None), default=None)
            if best is None:
                return []
            chosen.append(best)
            left -= wanted[best.node]
            del rest[best.node]
        return chosen

    def _offer(self, node: int, gpus: int, spared: Collection[int]) -> Offer | None:
        """Return a node's offer, of promised GPUs only if the other GPUs do not suffice."""
        free = list(self._unpromised(node))
        if spared:
            kept = {key for key, lease in self.leases.items() if lease.tenant in spared}
            left = [one for one in free if not one.job and one.lease not in kept]
            return offer_of(node, gpus, left, self.at_us)
        return offer_of(node, gpus, free, self.at_us) or offer_of(
            node, gpus, [*free, *self._promised(node)], self.at_us
        )

    def _unpromised(self, node: int) -> Iterator[Source]:
        yield Source(self.at_us, self.free(node) - self._held(node))
        for lease in self._left():
            gpus = dict(lease.placement).get(node, 0)
            pinned = 0 if "pinned_twice" in self.faults else self._pinned(lease.id, node)
            at_us = self._end_us(lease)
            due_us = self._least_due_us(lease.id)
            if "rest_at_due" in self.faults and due_us is not None:
                at_us = due_us
            if gpus > pinned:
                yield Source(at_us, gpus - pinned, lease=lease.id)

        for job, placement in self.grants.items():
            yield from self._not_behind(node, job, dict(placement).get(node, 0), self.at_us)

    def _promised(self, node: int) -> Iterator[Source]:
        for draft in self.drafts:
            gpus = dict(draft.placement).get(node, 0)
            yield from self._not_behind(node, draft.job, gpus, draft.due_us)

    def _not_behind(self, node: int, job: int, gpus: int, start_us: int) -> Iterator[Source]:
        """Yield the GPUs of a job that starts at `start_us` which no promise comes after."""
        behind = sum(draft.parts[node].after[job] for draft in self.drafts if node in draft.parts)
        if gpus > behind:
            yield Source(start_us + self.lease_us, gpus - behind, job=job)

    def _left(self) -> list[Lease]:
        """Return the leases that have not ended in this round."""
        return [lease for lease in self.leases.values() if lease.id not in self.ended]

    def free(self, node: int) -> int:
        """Return the GPUs of a node in no lease and no grant; expired leases still count."""
        used = sum(dict(lease.placement).get(node, 0) for lease in self._left())
        return self.sizes[node] - used - sum(dict(row).get(node, 0) for row in self.grants.values())

    def _held(self, node: int) -> int:
        return sum(draft.parts[node].held for draft in self.drafts if node in draft.parts)

    def _pinned(self, lease: int, node: int) -> int:
        return sum(draft.parts[node].pins[lease] for draft in self.drafts if node in draft.parts)

    def _least_due_us(self, lease: int) -> int | None:
        return min(
            (
                draft.due_us
                for draft in self.drafts
                if any(part.pins[lease] for part in draft.parts.values())
            ),
            default=None,
        )

    # ---- rules 1 to 3 ----

    def serve(self) -> None:
        """Renew leases and start jobs on GPUs that are not held: owed tenants first."""
        due = {lease.job: lease for lease in self._left() if lease.ends_by(self.at_us)}
        left = [*self.waiting.values(), *(self.jobs[key] for key in due)]
        while left:
            job = min(left, key=lambda one: (self._turn(one), self._order(one)))
            left.remove(job)
            if job.id in due:
                self._renew(due[job.id])
            elif placement := self._placement(job):
                self._grant(job, placement)

    def _turn(self, job: Job) -> tuple[int, float]:
        key = self.key(job.tenant)
        return (0, key) if key < 1 else (1, 0)

    def _order(self, job: Job) -> tuple[int, int, int]:
        return (job_received(self.services[job.id], self.at_us), job.submitted_us, job.id)

    def room(self, node: int) -> int:
        """Return the GPUs that rules 1 to 3 may still give: not those held, or pinned when due."""
        undecided = self._undecided()
        own = sum(
            dict(lease.placement).get(node, 0) - self._pinned(lease.id, node) for lease in undecided
        )
        held = 0 if "held_shown" in self.faults else self._held(node)
        return self.free(node) - held + own

    def _undecided(self) -> list[Lease]:
        renewed = {lease.id for lease in self.renewed}
        return [
            lease for lease in self._left() if lease.ends_by(self.at_us) and lease.id not in renewed
        ]

    def _renew(self, lease: Lease) -> None:
        """Renew a lease whose other GPUs were not given away, until the least T that pins it."""
        due_us = self._least_due_us(lease.id)
        fits = all(
            gpus <= self.room(node) + self._pinned(lease.id, node) for node, gpus in lease.placement
        )
        if fits and (due_us is None or due_us > self.at_us):
            self.renewed.append(lease)
            self._limit(self.jobs[lease.job], None if "renewed_whole" in self.faults else due_us)

    def _placement(self, job: Job) -> Placement:
        """Return the best fit on one node, or the largest rooms for a gang that is larger."""
        rooms = {node: self.room(node) for node in self.sizes}
        if job.gpus <= max(self.sizes.values()):
            free = {node: self.free(node) - self._held(node) for node in self.sizes}
            nodes = [node for node, gpus in rooms.items() if gpus >= job.gpus]
            best = min(nodes, default=0, key=lambda one: (free[one] < job.gpus, rooms[one], one))
            return ((best, job.gpus),) if best else ()
        left, places = job.gpus, []
        for node in sorted(rooms, key=lambda one: (-rooms[one], one)):
            gpus = min(left, rooms[node])
            if gpus > 0:
                places.append((node, gpus))
                left -= gpus
        return () if left else tuple(sorted(places))

    def end_due(self) -> None:
        self._end(lease.id for lease in self._undecided())

    # ---- rule 4 (e) ----

    def lend_held(self) -> None:
        """Start waiting jobs on held GPUs for terms that end by T.

        The term of a promised job is at least half a lease, and its promise ends.
        """
        promised = {draft.job: draft for draft in self.drafts}
        for job in sorted(self.waiting.values(), key=self._order):
            own = promised.get(job.id)
            if any(self._lend(job, node, own) for node in sorted(self.sizes)) and own is not None:
                drop(own, self.drafts)

    def _lend(self, job: Job, node: int, own: Draft | None) -> bool:
        least_us = (
            self.min_runtime_us if own is None else max(self.min_runtime_us, self.lease_us // 2)
        )
        lenders = [
            draft
            for draft in sorted(self.drafts, key=lambda one: one.rank, reverse=True)
            if draft is not own and node in draft.parts and draft.due_us >= self.at_us + least_us
        ]
        left = job.gpus - max(0, self.free(node) - self._held(node))
        if left > sum(draft.parts[node].held for draft in lenders):
            return False
        due_us = None
        for draft in lenders:
            part = draft.parts[node]
            gpus = min(left, part.held)
            if gpus > 0:
                part.held -= gpus
                part.after[job.id] += gpus
                left -= gpus
                due_us = draft.due_us
        self._grant(job, ((node, job.gpus),), None if "lent_whole" in self.faults else due_us)
        return True

    # ---- the decision ----

    def decision(self) -> Decision:
        memory = {key: self.sums.memory[key] for key in ("mark", "claims")}
        if self.drafts:
            memory["promises"] = [draft.row(self.gpu_type) for draft in self.drafts]
        key, gpu_type, jobs = Key(None, None), self.gpu_type, self.jobs
        notes = dict.fromkeys(self.lengths_us, Key(None, None, BACKFILLED))
        grants = [
            Grant(order, job, jobs[job].tenant, gpu_type, placement, notes.get(job, key))
            for order, (job, placement) in enumerate(self.grants.items(), 1)
        ]
        renewals = [
            Renew(order, one.id, one.job, one.tenant, gpu_type, one.gpus, key)
            for order, one in enumerate(self.renewed, len(grants) + 1)
        ]
        ended = [self.leases[key] for key in sorted(self.ended)]
        waits = [*self.waiting.values(), *(jobs[lease.job] for lease in ended)]
        return Decision(
            self.at_us,
            tuple(grants),
            tuple(renewals),
            tuple(End(one.id, one.job, one.tenant, EndReason.NOT_RENEWED) for one in ended),
            tuple(Skip(Reason.LEASE_TURN, job.tenant, (job.id,), job.gpus) for job in waits),
            memory=memory,
            lengths=tuple(
                TermLength(job, length_us)
                for job, length_us in sorted(self.lengths_us.items())
                if length_us != self.lease_us
            ),
        )


def draft_of(
    snapshot: Snapshot, faults: Iterable[str] = (), *, advances: bool = False
) -> RoundDraft:
    """Return a round before its first step; the snapshot's sums are those of the round."""
    options = parse_options(EvenshareOptions, snapshot.options)
    sums = DecayedSums(options.window_us)
    sums.begin(snapshot.memory, snapshot.service.claims, snapshot.at_us, snapshot.round_us)
    return RoundDraft(snapshot, sums, frozenset(faults), advances=advances)


class PlainPromises(Evenshare):
    """The reference as a policy; it replaces evenshare in the registry of a test.

    If it `advances`, T moves to the time at which the place is free, in each round.
    """

    traits = Traits()

    def __init__(self, *faults: str, advances: bool = False) -> None:
        self.faults, self.advances = faults, advances

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = draft_of(snapshot, self.faults, advances=self.advances)
        draft.run()
        return draft.decision()

    def session(self, options: dict[str, object]) -> Session | None:
        return None
