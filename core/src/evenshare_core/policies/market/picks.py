"""What a round of the market gives: renewals, own quota, then what is borrowed by plan.

The order of own GPUs is that of `policies.shared.terms`: leases that are renewed, by their start,
then new ones in pick order. It is counted here as if every lease that asks to be renewed were, so
that nobody is taken to be within quota who is not.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from evenshare_core.domain.cluster import Placement, capacity_by_type, placement_gpus
from evenshare_core.domain.decision import Grant, Key, Plan, PlanKind, Renew, TermLength
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import PoolPrice, Snapshot
from evenshare_core.fairness.claims import accepted_types
from evenshare_core.placement.consolidated import FreeCapacity, free_capacity_by_type
from evenshare_core.policies.market.clearing import ClearingNodes
from evenshare_core.policies.market.job_values import JobOnType, JobValues
from evenshare_core.policies.market.memory import MarketMemory
from evenshare_core.policies.market.options import MarketOptions
from evenshare_core.policies.market.search import PlannedStart, Search
from evenshare_core.policies.market.slots import SLOTS_MAX, Hold, SlotUse
from evenshare_core.policies.market.thetas import price_curve
from evenshare_core.policies.shared.admission import Admission, Refusal
from evenshare_core.units import ONE_MILLI, SECOND_US

OWN, PAID = "own_quota", "pays_price"
Choice = tuple[JobOnType, PlannedStart]


class MarketPicks:
    """One round as it is decided.

    `refused`: leases that a limit does not let go on, by job; `outbid`: jobs whose lease ends
    because an hour is not worth the posted price, with both.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        options: MarketOptions,
        memory: MarketMemory,
        settings: tuple[PoolPrice, ...],
    ) -> None:
        self._snapshot, self._options, self._memory = snapshot, options, memory
        self.capacity = capacity_by_type(snapshot.nodes)
        self.job_values = JobValues(snapshot, options, self.capacity)
        self.admission = Admission.of(snapshot)
        self.free_by_type: dict[str, FreeCapacity] = free_capacity_by_type(
            snapshot.nodes, snapshot.leases, snapshot.at_us, spread=options.spread
        )
        self._posted = {row.gpu_type: row.price_micro for row in snapshot.prices}
        self._settings = {row.gpu_type: row for row in settings}
        self._quotas = {(row.tenant, row.gpu_type): row.gpus for row in snapshot.entitlements}
        self._jobs = {job.id: job for job in snapshot.jobs}
        self.grants: list[Grant] = []
        self.renewals: list[Renew] = []
        self.lengths: list[TermLength] = []
        self.refused: dict[int, Refusal] = {}
        self.outbid: dict[int, tuple[str, int, int]] = {}
        self._running: list[tuple[Lease, int]] = []  # with when its term ends
        self._asking: list[tuple[Lease, tuple[int, int]]] = []
        # Jobs that fit by count and on no node, with the GPU type: they may start a slot later.
        self._no_node: set[tuple[int, str]] = set()
        self._uses: dict[str, SlotUse] = {}
        self._clearing: dict[str, ClearingNodes] = {}
        self._slot_us = snapshot.lease_us
        self._slots = max(1, min(SLOTS_MAX, options.horizon_s * SECOND_US // snapshot.lease_us))

    # Renewals and own quota, in every round.

    def renew_own(self) -> None:
        """Renew leases that are within quota; find those that are borrowed and worth it."""
        at_us = self._snapshot.at_us
        for lease in sorted(self._snapshot.leases, key=lambda row: (row.started_us, row.id)):
            if not lease.ends_by(at_us):
                end_us = max(lease.expires_us, lease.protected_until_us)
                self._running.append((lease, end_us))
            elif lease.job in self._jobs:
                self._consider(lease, self._jobs[lease.job])

    def _consider(self, lease: Lease, job: Job) -> None:
        """A lease that ended asks for one more term."""
        free_capacity = self.free_by_type[lease.gpu_type]
        refusal = self.admission.check(job, lease.gpu_type)
        is_own = self.admission.is_own(job, lease.gpu_type)
        one = self.job_values.of(job, lease.gpu_type)
        if refusal is not None:
            self.refused[job.id] = refusal
            free_capacity.drop(lease.placement)
            return
        if is_own:
            if free_capacity.renew(lease.placement):
                self._renew(lease, self.admission.take(job.tenant, lease.gpu_type, lease.gpus), OWN)
            return
        if one is None:  # its job type does not run there any more: there it is worth nothing
            free_capacity.drop(lease.placement)
            return
        value, price = one.hourly_micro(), self._posted.get(lease.gpu_type, 0)
        if value < price:
            self.outbid[job.id] = (lease.gpu_type, value, price)
            free_capacity.drop(lease.placement)
            return
        split = self.admission.take(job.tenant, lease.gpu_type, lease.gpus)
        self._asking.append((lease, split))

    def give_own(self, waiting: Iterable[Job]) -> list[Job]:
        """Start jobs within their tenants' quotas, first come first; return who still waits.

        They may take the GPUs of borrowed leases that ended: their owners go before them.
        """
        return [job for job in waiting if not self._give_own(job)]

    def _give_own(self, job: Job) -> bool:
        is_own = self.admission.is_own
        if not any(is_own(job, name) for name in accepted_types(job, self.capacity)):
            return False
        own = [one for one in self.job_values.on_types(job) if is_own(job, one.gpu_type)]
        if any(self._try_own(one) for one in own):
            return True
        for one in own:
            self._clear_for(job, one.gpu_type)
        return False

    def _clear_for(self, job: Job, gpu_type: str) -> None:
        """Keep a node's GPUs for a job within quota until what is borrowed there has ended.

        Without it, gangs would wait for as long as borrowed leases of one node end one by one.
        """
        free_capacity = self.free_by_type[gpu_type]
        if not free_capacity.available.total:
            return
        if gpu_type not in self._clearing:
            self._clearing[gpu_type] = self._clearing_nodes(gpu_type)
        node_id = self._clearing[gpu_type].keep(job.gpus)
        if node_id is not None:
            free_capacity.hold_back(((node_id, job.gpus),))

    def _clearing_nodes(self, gpu_type: str) -> ClearingNodes:
        nodes = [node for node in self._snapshot.nodes if node.gpu_type == gpu_type]
        rows = [row for row in self._running if row[0].id and row[0].gpu_type == gpu_type]
        own = [lease.placement for lease, _ in rows if not lease.borrowed]
        own += [row.placement for row in self.grants if row.gpu_type == gpu_type]
        borrowed = [row for row in rows if row[0].borrowed]
        return ClearingNodes(nodes, own, borrowed, self._snapshot.at_us)

    def _try_own(self, one: JobOnType) -> bool:
        job, gpu_type = one.job, one.gpu_type
        placement = self.free_by_type[gpu_type].place(job.gpus)
        if placement is None:
            return False
        if gpu_type in self._clearing:
            self._clearing[gpu_type].take(placement)
        self._grant(job, gpu_type, placement, OWN)
        start = PlannedStart(0, 0, 0, 0, one.value_micro(0), 0)
        self._memory.started(self._plan(one, start))
        at_us = self._snapshot.at_us
        self._running.append((_as_lease(job, gpu_type, at_us, job.gpus), at_us + self._slot_us))
        return True

    def renew_borrowed(self) -> None:
        """Renew what is borrowed, worth its price and was not taken by an owner."""
        free = self.free_by_type
        kept = [row for row in self._asking if free[row[0].gpu_type].renew(row[0].placement)]
        if len(kept) < len(self._asking):
            kept = self._split_again([lease for lease, _ in kept])
        for lease, split in kept:
            self._renew(lease, split, PAID if split[1] else OWN)

    def _split_again(self, borrowed: list[Lease]) -> list[tuple[Lease, tuple[int, int]]]:
        """Count own GPUs without the leases that owners took: their part is there for others.

        Else a job would be let in as if within quota, and pay a price that it was not asked for.
        `borrowed`: those that are renewed.
        """
        self.admission = Admission.of(self._snapshot)
        asking = {lease.id for lease in borrowed}
        going = asking | {row.lease for row in self.renewals}
        splits = []
        for lease in sorted(self._snapshot.leases, key=lambda row: (row.started_us, row.id)):
            if lease.id in going:
                split = self.admission.take(lease.tenant, lease.gpu_type, lease.gpus)
                if lease.id in asking:
                    splits.append((lease, split))
        for grant in self.grants:
            self.admission.take(grant.tenant, grant.gpu_type, placement_gpus(grant.placement))
        return splits

    # What is borrowed, by plan, in each batch.

    def plan_all(self, waiting: Iterable[Job]) -> None:
        """Plan jobs that still wait, first come first; start those whose plan begins now."""
        left = self._options.plan_jobs
        for job in waiting:
            if left <= 0:
                self._memory.forget(job.id)
            elif self._plan_job(job):
                left -= 1

    def _plan_job(self, job: Job) -> bool:
        """Plan one job; whether that took a search."""
        rows = [
            one for one in self.job_values.on_types(job) if job.gpus <= self.capacity[one.gpu_type]
        ]
        borrows = [one for one in rows if self.admission.check(job, one.gpu_type) is None]
        hopeful = [one for one in borrows if not self._search(one).is_hopeless(self._use(one))]
        own = self._own_plan(rows)
        while (chosen := self._best(own, hopeful)) is not None and not chosen[1].slot:
            if self._starts(*chosen):
                return True
            self._no_node.add((job.id, chosen[0].gpu_type))
        if chosen is not None:
            self._wait_for(*chosen)
        else:
            self._refuse(job, borrows)
        return bool(hopeful or own)

    def _best(self, own: Choice | None, hopeful: list[JobOnType]) -> Choice | None:
        """What gains most of the plan within quota and those on borrowed GPUs of each type."""
        chosen = own
        for one in hopeful:
            start = self._search(one).best(self._use(one))
            if start is not None and (chosen is None or _gains_more(one, start, chosen)):
                chosen = (one, start)
        return chosen

    def _own_plan(self, rows: list[JobOnType]) -> Choice | None:
        """The earliest end within quota; what fits now and found no node may start in a slot."""
        best: Choice | None = None
        for one in rows:
            quota = self._quota(one)
            if one.job.gpus > quota:
                continue
            use, slots = self._use(one), self._search(one).slots_on(self._use(one))
            slot = use.own_start(one.job.tenant, quota, one.job.gpus, slots, 1)
            if slot is None:
                continue
            start = PlannedStart(slot, slots, 0, 0, one.value_micro(slot * self._slot_us), 0)
            if best is None or _gains_more(one, start, best):
                best = (one, start)
        return best

    def _starts(self, one: JobOnType, start: PlannedStart) -> bool:
        """Start a job on borrowed GPUs if a node has room for it."""
        job, gpu_type = one.job, one.gpu_type
        placement = self.free_by_type[gpu_type].place(job.gpus)
        if placement is None:
            return False
        self._grant(job, gpu_type, placement, PAID if start.borrowed else OWN)
        sure = 1
        bounds = self._snapshot.lease_bounds_us
        if self._options.borrow_limit == "job" and bounds:
            length_us = min(max(one.left_us, bounds[0]), bounds[1])
            self.lengths.append(TermLength(job.id, length_us))
            sure = -(-length_us // self._slot_us)
        own = job.gpus - start.borrowed
        self._use(one).take(Hold(job.tenant, own, job.gpus, max(start.slots, sure), sure), 0)
        self._memory.started(self._plan(one, start))
        return True

    def _wait_for(self, one: JobOnType, start: PlannedStart) -> None:
        """Keep GPUs for a start that is later."""
        own = 0 if start.borrowed else one.job.gpus
        sure = start.slots if own else 0
        self._use(one).take(Hold(one.job.tenant, own, one.job.gpus, start.slots, sure), start.slot)
        if (one.job.id, one.gpu_type) in self._no_node:
            self._memory.forget(one.job.id)  # what it waits for is room on a node
        else:
            now = self._use(one).price_now_micro(one.job.gpus) if start.borrowed else 0
            self._memory.publish(replace(self._plan(one, start), lowest_micro=now))

    def _refuse(self, job: Job, borrows: Iterable[JobOnType]) -> None:
        """Tell which price a job would have needed, if the price is what keeps it waiting."""
        refused = []
        for one in borrows:
            refusal = self._search(one).refusal(self._use(one))
            if refusal is not None and (job.id, one.gpu_type) not in self._no_node:
                refused.append((refusal.loss_micro, one.gpu_type, refusal))
        if not refused:
            self._memory.forget(job.id)
            return
        _, gpu_type, refusal = min(refused)
        self._memory.publish(
            Plan(
                job.id, job.tenant, PlanKind.REFUSED, gpu_type, job.gpus,
                needed_micro=refusal.needed_micro, lowest_micro=refusal.lowest_micro,
            )
        )  # fmt: skip

    def _plan(self, one: JobOnType, start: PlannedStart) -> Plan:
        job = one.job
        start_us = self._snapshot.at_us + start.slot * self._slot_us
        return Plan(
            job.id, job.tenant, PlanKind.BORROWED if start.borrowed else PlanKind.OWN,
            one.gpu_type, job.gpus, start_us, start_us + one.left_us, start.borrowed,
            start.price_micro, start.cost_micro, start.value_micro, one.hourly_micro(),
        )  # fmt: skip

    def _search(self, one: JobOnType) -> Search:
        by_lease = self._options.borrow_limit == "lease"
        first = int((one.job.id, one.gpu_type) in self._no_node)
        return Search(one, self._quota(one), self._slot_us, first, counts_itself=by_lease)

    def _quota(self, one: JobOnType) -> int:
        return self._quotas.get((one.job.tenant, one.gpu_type), 0)

    def _use(self, one: JobOnType) -> SlotUse:
        """The use of its GPU type over the slots ahead, made when it is first asked for."""
        use = self._uses.get(one.gpu_type)
        if use is None:
            use = self._uses[one.gpu_type] = self._use_of(one.gpu_type)
        return use

    def _use_of(self, gpu_type: str) -> SlotUse:
        setting, capacity = self._settings.get(gpu_type), self.capacity[gpu_type]
        base, theta = (
            (0, ONE_MILLI) if setting is None else (setting.base_micro, setting.theta_milli)
        )
        curve = price_curve(base, theta, capacity)
        holds = [
            self._hold(lease, until_us)
            for lease, until_us in self._running
            if lease.gpu_type == gpu_type
        ]
        return SlotUse(capacity, self._slots, curve, self._posted.get(gpu_type, 0), holds)

    def _hold(self, lease: Lease, until_us: int) -> Hold:
        sure = max(1, -(-(until_us - self._snapshot.at_us) // self._slot_us))
        job, slots = self._jobs.get(lease.job), sure
        if job is not None and job.estimate_us is not None:
            one = self.job_values.of(job, lease.gpu_type)
            if one is not None:
                slots = max(sure, -(-one.left_us // self._slot_us))
        if not lease.borrowed:
            sure = slots
        return Hold(lease.tenant, lease.own, lease.gpus, slots, sure)

    # Picks.

    def _renew(self, lease: Lease, split: tuple[int, int], note: str) -> None:
        """`split`: own and borrowed GPUs of the new term."""
        self.renewals.append(
            Renew(
                self._order, lease.id, lease.job, lease.tenant, lease.gpu_type, lease.gpus,
                Key(None, None, note),
            )
        )  # fmt: skip
        own, borrowed = split
        again = replace(lease, own=own, borrowed=borrowed)
        self._running.append((again, self._snapshot.at_us + self._slot_us))

    def _grant(self, job: Job, gpu_type: str, placement: Placement, note: str) -> None:
        key = Key(None, None, note)
        self.grants.append(Grant(self._order, job.id, job.tenant, gpu_type, placement, key))
        self.admission.take(job.tenant, gpu_type, job.gpus)

    @property
    def _order(self) -> int:
        return len(self.grants) + len(self.renewals) + 1


def waiting_in_order(snapshot: Snapshot, held: set[int]) -> list[Job]:
    """The jobs that hold nothing, first come first."""
    return sorted((job for job in snapshot.jobs if job.id not in held), key=arrival_order)


def _gains_more(one: JobOnType, start: PlannedStart, than: Choice) -> bool:
    """Whether a start is better; of a bid the earlier one, of others the one that gains more."""
    other = than[1]
    if not one.has_decay:
        return start.slot < other.slot
    return start.gain_micro > other.gain_micro


def _as_lease(job: Job, gpu_type: str, at_us: int, own: int) -> Lease:
    """A lease that begins, as far as the use over time goes."""
    return Lease(
        0, job.id, job.tenant, gpu_type, ((0, job.gpus),), at_us, at_us, 1, own, job.gpus - own, 0
    )
