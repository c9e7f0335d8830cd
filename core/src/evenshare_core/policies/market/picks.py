"""The picks of a market round: renewals, own quota, then borrowed GPUs by plan.

Own GPUs are assigned as in `policies.shared.terms`: first to renewed leases, by their start, then
to new ones in pick order. The market counts all leases that request a renewal as renewed, so that
no job counts as within quota by mistake.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from evenshare_core.domain.cluster import Placement, placement_gpus
from evenshare_core.domain.decision import End, Grant, Key, Plan, PlanKind, Renew, TermLength
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason
from evenshare_core.domain.snapshot import PoolPrice
from evenshare_core.fairness.claims import accepted_types
from evenshare_core.policies.market.clearing import ClearingNodes
from evenshare_core.policies.market.job_values import JobOnType, JobValues
from evenshare_core.policies.market.memory import MarketMemory
from evenshare_core.policies.market.options import MarketOptions
from evenshare_core.policies.market.pool import PricedPool
from evenshare_core.policies.market.search import PlannedStart, Search
from evenshare_core.policies.market.slots import SLOTS_MAX, Hold, SlotUse, Store
from evenshare_core.policies.market.thetas import price_curve
from evenshare_core.policies.shared.admission import Refusal
from evenshare_core.policies.shared.terms import ends_of
from evenshare_core.units import ONE_MILLI, SECOND_US

OWN, PAID = "own_quota", "pays_price"
Choice = tuple[JobOnType, PlannedStart]


class MarketPicks:
    """The picks of the round so far.

    `refused`: refusals of renewals by a limit, by job. `outbid`: jobs whose lease ends because a
    GPU-hour is worth less to them than the posted price, with type, value and price. `has_planned`:
    whether this round was a batch with waiting jobs.
    """

    def __init__(
        self,
        pool: PricedPool,
        options: MarketOptions,
        memory: MarketMemory,
        settings: Iterable[PoolPrice],
        store: Store | None = None,
    ) -> None:
        self._pool, self._options, self._memory = pool, options, memory
        self.capacity, self.admission = pool.capacity, pool.admission
        self.job_values = JobValues(pool, options, self.capacity)
        self.free_by_type = pool.free_by_type
        self._posted = {row.gpu_type: row.price_micro for row in pool.prices}
        self._settings = {row.gpu_type: row for row in settings}
        self._jobs = pool.jobs
        self.grants: list[Grant] = []
        self.renewals: list[Renew] = []
        self.lengths: list[TermLength] = []
        self.has_planned = False
        self.refused: dict[int, Refusal] = {}
        self.outbid: dict[int, tuple[str, int, int]] = {}
        # leases whose term this round gave, each with the end of the term
        self._given: list[tuple[Lease, int]] = []
        # leases that continue, each with the end of its term
        self._going: list[tuple[Lease, int]] | None = None
        # Whether GPUs were kept for an owner. If so, due leases decide which node is kept.
        self.clears = False
        self._asking: list[tuple[Lease, tuple[int, int]]] = []
        # (job, GPU type): enough GPUs were free, but no node had room, so it may start a slot
        # later.
        self._no_node: set[tuple[int, str]] = set()
        self._uses: dict[str, SlotUse] = {}
        self._clearing: dict[str, ClearingNodes] = {}
        self._store: Store = {} if store is None else store
        self._slot_us = pool.lease_us
        self._slots = max(1, min(SLOTS_MAX, options.horizon_s * SECOND_US // pool.lease_us))

    def run(self, waiting: Iterable[Job]) -> list[Job]:
        """Decide the round. `waiting`: the jobs without a lease, by arrival.

        Return the jobs without a lease after the round, by arrival.
        """
        self.renew_own()
        left = self.give_own(waiting)
        self.renew_borrowed()
        renewed = {row.job for row in self.renewals}
        jobs, due = self._jobs, self._pool.due
        ended = [jobs[row.job] for row in due if row.job not in renewed and row.job in jobs]
        if ended:
            left = sorted([*left, *ended], key=arrival_order)
        self.has_planned = self._memory.is_batch and bool(left)
        if not self.has_planned:
            return left
        self.plan_all([job for job in left if job.id not in self.outbid])
        granted = {row.job for row in self.grants}
        return [job for job in left if job.id not in granted]

    def ends(self, gpus: Mapping[int, int]) -> tuple[End, ...]:
        """Return the leases that end. `PRICE_ABOVE_VALUE` marks leases not worth their price.

        `gpus`: schedulable GPUs of each node.
        """
        renewed = {row.lease for row in self.renewals}
        return tuple(
            End(end.lease, end.job, end.tenant, EndReason.PRICE_ABOVE_VALUE)
            if end.reason is EndReason.NOT_RENEWED and end.job in self.outbid
            else end
            for end in ends_of(self._pool.due, gpus, renewed, self.refused)
        )

    # Renewals and own quota, in every round.

    def renew_own(self) -> None:
        """Renew leases within quota. Collect the borrowed leases that are worth their price."""
        for lease in self._pool.due:
            if lease.job in self._jobs:
                self._consider(lease, self._jobs[lease.job])

    def _consider(self, lease: Lease, job: Job) -> None:
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
        if one is None:  # the job can no longer run on this type, so the GPUs have no value for it
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
        """Start jobs within their tenants' quotas, by arrival; return the jobs that still wait.

        The jobs may take the GPUs of borrowed leases that ended, since owners go first.
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
        """Keep a node's GPUs for a job within quota until the node's borrowed leases have ended.

        If nothing were kept, other jobs would take the node's GPUs as these leases end one by one.
        """
        self.clears = True
        free_capacity = self.free_by_type[gpu_type]
        if not free_capacity.available.total:
            return
        if gpu_type not in self._clearing:
            self._clearing[gpu_type] = self._clearing_nodes(gpu_type)
        node_id = self._clearing[gpu_type].keep(job.gpus)
        if node_id is not None:
            free_capacity.hold_back(((node_id, job.gpus),))

    def _clearing_nodes(self, gpu_type: str) -> ClearingNodes:
        nodes = [node for node in self._pool.nodes if node.gpu_type == gpu_type]
        terms = (*self._terms_before(), *self._given)
        rows = [row for row in terms if row[0].id and row[0].gpu_type == gpu_type]
        own = [lease.placement for lease, _ in rows if not lease.borrowed]
        own += [row.placement for row in self.grants if row.gpu_type == gpu_type]
        borrowed = [row for row in rows if row[0].borrowed]
        return ClearingNodes(nodes, own, borrowed, self._pool.at_us)

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
        at_us = self._pool.at_us
        self._given.append((_as_lease(job, gpu_type, at_us, job.gpus), at_us + self._slot_us))
        return True

    def renew_borrowed(self) -> None:
        """Renew the collected borrowed leases, except those whose GPUs owners took."""
        free = self.free_by_type
        kept = [row for row in self._asking if free[row[0].gpu_type].renew(row[0].placement)]
        if len(kept) < len(self._asking):
            kept = self._split_again([lease for lease, _ in kept])
        for lease, split in kept:
            self._renew(lease, split, PAID if split[1] else OWN)

    def _split_again(self, borrowed: list[Lease]) -> list[tuple[Lease, tuple[int, int]]]:
        """Divide GPUs into own and borrowed again, without the leases whose GPUs owners took.

        Without this, a job that was admitted as within quota might pay a price that was not
        checked. `borrowed`: the leases that are renewed.
        """
        self.admission = self._pool.admission_again()
        asking = {lease.id for lease in borrowed}
        going = asking | {row.lease for row in self.renewals}
        splits = []
        for lease in self._pool.due:
            if lease.id in going:
                split = self.admission.take(lease.tenant, lease.gpu_type, lease.gpus)
                if lease.id in asking:
                    splits.append((lease, split))
        for grant in self.grants:
            self.admission.take(grant.tenant, grant.gpu_type, placement_gpus(grant.placement))
        return splits

    # Borrowed GPUs, by plan, in each batch.

    def plan_all(self, waiting: Iterable[Job]) -> None:
        """Plan the jobs that still wait, by arrival, and start those whose plan begins now."""
        left = self._options.plan_jobs
        for job in waiting:
            if left <= 0:
                self._memory.forget(job.id)
            elif self._plan_job(job):
                left -= 1

    def _plan_job(self, job: Job) -> bool:
        rows = [
            self._search(one)
            for one in self.job_values.on_types(job)
            if job.gpus <= self.capacity[one.gpu_type]
        ]
        borrows = [row for row in rows if self.admission.check(job, row.one.gpu_type) is None]
        hopeful = [row for row in borrows if not row.is_hopeless(self._use(row.one))]
        own = self._own_plan(rows)
        while (chosen := self._best(own, hopeful)) is not None and not chosen[1].slot:
            if self._starts(*chosen):
                return True
            self._no_node.add((job.id, chosen[0].gpu_type))
            hopeful = [self._search(row.one) for row in hopeful]
        if chosen is not None:
            self._wait_for(*chosen)
        else:
            self._refuse(job, borrows)
        return bool(hopeful or own)

    def _best(self, own: Choice | None, hopeful: list[Search]) -> Choice | None:
        chosen = own
        for search in hopeful:
            start = search.best(self._use(search.one))
            if start is not None and (chosen is None or _gains_more(search.one, start, chosen)):
                chosen = (search.one, start)
        return chosen

    def _own_plan(self, rows: list[Search]) -> Choice | None:
        """Return the best start within quota. It is in a later slot, since no node has room now."""
        best: Choice | None = None
        for search in rows:
            one, quota = search.one, search.quota
            if one.job.gpus > quota:
                continue
            use = self._use(one)
            slots = search.slots_on(use)
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
        bounds = self._pool.lease_bounds_us
        if self._options.borrow_limit == "job" and bounds:
            length_us = min(max(one.left_us, bounds[0]), bounds[1])
            self.lengths.append(TermLength(job.id, length_us))
            sure = -(-length_us // self._slot_us)
        own = job.gpus - start.borrowed
        self._use(one).take(Hold(job.tenant, own, job.gpus, max(start.slots, sure), sure), 0)
        self._memory.started(self._plan(one, start))
        return True

    def _wait_for(self, one: JobOnType, start: PlannedStart) -> None:
        own = 0 if start.borrowed else one.job.gpus
        sure = start.slots if own else 0
        self._use(one).take(Hold(one.job.tenant, own, one.job.gpus, start.slots, sure), start.slot)
        if (one.job.id, one.gpu_type) in self._no_node:
            # the job waits for room on a node, which no plan predicts
            self._memory.forget(one.job.id)
        else:
            now = self._use(one).price_now_micro(one.job.gpus) if start.borrowed else 0
            self._memory.publish(replace(self._plan(one, start), lowest_micro=now))

    def _refuse(self, job: Job, borrows: Iterable[Search]) -> None:
        """If the price keeps a job waiting, publish the price below which it would start."""
        refused = []
        for search in borrows:
            gpu_type = search.one.gpu_type
            refusal = search.refusal(self._use(search.one))
            if refusal is not None and (job.id, gpu_type) not in self._no_node:
                refused.append((refusal.loss_micro, gpu_type, refusal))
        if not refused:
            self._memory.forget(job.id)
            return
        _, gpu_type, refusal = min(refused)
        self._memory.publish(
            Plan(
                job.id, job.tenant, PlanKind.REFUSED, gpu_type, job.gpus,
                needed_micro=refusal.needed_micro, lowest_micro=refusal.lowest_micro,
            )
        )  # fmt: skip # rows of what belongs together

    def _plan(self, one: JobOnType, start: PlannedStart) -> Plan:
        job = one.job
        start_us = self._pool.at_us + start.slot * self._slot_us
        return Plan(
            job.id, job.tenant, PlanKind.BORROWED if start.borrowed else PlanKind.OWN,
            one.gpu_type, job.gpus, start_us, start_us + one.left_us, start.borrowed,
            start.price_micro, start.cost_micro, start.value_micro, one.hourly_micro(),
        )  # fmt: skip # rows of what belongs together

    def _search(self, one: JobOnType) -> Search:
        by_lease = self._options.borrow_limit == "lease"
        first = int((one.job.id, one.gpu_type) in self._no_node) if self._no_node else 0
        quota = self._pool.quota(one.job.tenant, one.gpu_type)
        return Search(one, quota, self._slot_us, first, counts_itself=by_lease)

    def _use(self, one: JobOnType) -> SlotUse:
        """Return the use of the job's GPU type over future slots, computed on first access."""
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
            for lease, until_us in (*self._terms_before(), *self._given)
            if lease.gpu_type == gpu_type
        ]
        use = SlotUse(capacity, self._slots, curve, self._posted.get(gpu_type, 0), holds)
        use.keep_in(self._store)
        return use

    def _terms_before(self) -> list[tuple[Lease, int]]:
        if self._going is None:
            self._going = [
                (lease, max(lease.expires_us, lease.protected_until_us))
                for lease in self._pool.going()
            ]
        return self._going

    def _hold(self, lease: Lease, until_us: int) -> Hold:
        sure = max(1, -(-(until_us - self._pool.at_us) // self._slot_us))
        job, slots = self._jobs.get(lease.job), sure
        if job is not None and job.estimate_us is not None:
            one = self.job_values.of(job, lease.gpu_type)
            if one is not None:
                slots = max(sure, -(-one.left_us // self._slot_us))
        if not lease.borrowed:
            sure = slots
        return Hold(lease.tenant, lease.own, lease.gpus, slots, sure)

    def _renew(self, lease: Lease, split: tuple[int, int], note: str) -> None:
        """`split`: own and borrowed GPUs of the new term."""
        self.renewals.append(Renew.of(lease, self._order, Key(None, None, note)))
        own, borrowed = split
        again = replace(lease, own=own, borrowed=borrowed)
        self._given.append((again, self._pool.at_us + self._slot_us))

    def _grant(self, job: Job, gpu_type: str, placement: Placement, note: str) -> None:
        key = Key(None, None, note)
        self.grants.append(Grant(self._order, job.id, job.tenant, gpu_type, placement, key))
        self.admission.take(job.tenant, gpu_type, job.gpus)

    @property
    def _order(self) -> int:
        return len(self.grants) + len(self.renewals) + 1


def _gains_more(one: JobOnType, start: PlannedStart, than: Choice) -> bool:
    """Return whether a start is better: an earlier one for a bid, or else one with more gain."""
    other = than[1]
    if not one.has_decay:
        return start.slot < other.slot
    return start.gain_micro > other.gain_micro


def _as_lease(job: Job, gpu_type: str, at_us: int, own: int) -> Lease:
    """Return a lease that starts now. Only the fields that slot use reads are set."""
    return Lease(
        0, job.id, job.tenant, gpu_type, ((0, job.gpus),), at_us, at_us, 1, own, job.gpus - own, 0
    )
