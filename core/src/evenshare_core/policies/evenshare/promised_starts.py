"""Promised starts: rule 4 of a round with the option `promises`.

a. *End.* A promise ends when its job does not wait any more, or when a node of its place is lost
   (`promises.settle`). It also ends if a limit refuses the job when it is due.

b. *Start.* A promised job starts as soon as its nodes have its GPUs free, or in leases that come
   due. When it is due, leases that still run on its GPUs end, with notice.

c. *Hide.* Rules 1 to 3 do not see held GPUs. Rules 5 and 6 end no pinned lease.

d. *Make.* Tenants whose key is below 1 follow, the lowest key first. The candidate of a tenant is
   the job that has waited longest since its submission or its last lease. It waited in the round
   before. It starts now if it fits. If not, it is promised the place that is free first
   (`promise_places`), unless the promised GPUs of its tenant would exceed max(Q, d). Leases of
   tenants with the same key or a lower one count only if the others do not suffice.

e. *Backfill.* After all other rules, waiting jobs use held GPUs in the order of rule 2, if the
   promise is due after the minimum runtime. They become pins. For a promised job it must be due
   after half a lease; its own promise ends.

A promise becomes due earlier if its GPUs are known to be free earlier, but never later.
"""

from collections.abc import Callable, Collection, Mapping

from evenshare_core.domain.decision import Grant
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import PreemptionRule
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.policies.evenshare.progress import PROMISED, PickState, RoundProgress
from evenshare_core.policies.evenshare.promise_places import NodeSources, add_promised, best_place
from evenshare_core.policies.evenshare.promises import (
    PoolState,
    StartPromise,
    bequeath,
    gpus_on,
    kept_gpus,
    owed_as_much,
    pinned_gpus,
    promise_rows,
    settle,
)
from evenshare_core.policies.evenshare.queues import ClaimKey
from evenshare_core.policies.shared.admission import Refusal
from evenshare_core.policies.shared.preemption import overfull_nodes


class PromisedStarts:
    """The promises during one round.

    `is_open`: whether a job may get a promise in the next round although nothing happens.
    """

    def __init__(
        self,
        progress: RoundProgress,
        key: Callable[[ClaimKey], float],
        refusal: Callable[[Job, str], Refusal | None],
    ) -> None:
        """`key`: the key of rule 1. `refusal`: why a job may not take GPUs of a type now."""
        self._progress, self._pool = progress, progress.pool
        self._key, self._refusal = key, refusal
        self.rows: dict[int, StartPromise] = {}
        self.started: set[int] = set()
        self.is_open = False
        self._due: dict[int, Lease] = {}  # leases that this round may take, by job
        self._leases: dict[int, Lease] = {}  # all others, by job
        self._refused: set[int] = set()  # jobs whose promise a limit ended in this round
        self._taken: set[int] = set()  # jobs whose lease ended for a promised job
        self._beside: set[int] = set()  # jobs on nodes with unassigned GPUs (`_free_rest`)
        self._overfull: Collection[int] = ()  # nodes with fewer GPUs than their leases hold

    def spared(self) -> set[int]:
        """Return the jobs whose leases rules 5 and 6 may not end."""
        parts = [part for row in self.rows.values() for part in row.parts.values()]
        return {job for part in parts for job in part.pins} | self._taken | self._beside

    @property
    def next_us(self) -> int | None:
        """Return when the first promise is due, or None without promises."""
        return min((row.due_us for row in self.rows.values()), default=None)

    def memory(self) -> list[list[object]]:
        return promise_rows(self.rows.values())

    # ---- before rules 1 to 3 ----

    def begin(self) -> None:
        """Start the jobs whose time has come, hide the other promised GPUs, and make promises."""
        pool = self._pool
        if not (pool.promises or self._owed()):
            return
        self._read_leases()
        if pool.may_be_overfull:
            leases = [*self._leases.values(), *self._due.values()]
            self._overfull = overfull_nodes(leases, pool.gpus)
        if pool.promises:
            self._keep()
        for claim in self._owed():  # starts were charged to their tenants
            self._make_one(claim)

    def first_jobs(self) -> list[int]:
        """Return the promised jobs, then the candidates of owed tenants, as if all of them fitted.

        No promise changes. The jobs count as started.
        """
        pool, standings = self._pool, self._progress.standings
        self._read_leases()
        order: list[int] = []

        def start(job: Job, gpu_type: str) -> None:
            standings[job.tenant, gpu_type].charge(job.gpus, pool.lease_us)
            self.started.add(job.id)
            order.append(job.id)

        for row in sorted(pool.promises, key=lambda row: row.order):
            if self._waits(row):
                start(pool.jobs[row.job], row.gpu_type)
        for claim in self._owed():
            if (job := self._candidate(claim)) is not None:
                start(job, claim[1])
        return order

    def _read_leases(self) -> None:
        ended = [(one.job.id, one.lease) for _, one in self._pool.ended if one.lease is not None]
        self._due = dict(sorted(ended))
        self._leases = {lease.job: lease for lease in self._pool.running()}

    def _keep(self) -> None:
        """Start the promised jobs whose time has come, and hide the GPUs of the other promises."""
        pool = self._pool
        state = PoolState(self._waits, self._leases | self._due, self._free)
        self.rows = settle(pool.promises, state)
        in_order = sorted(self.rows.values(), key=lambda row: row.order)
        for row in in_order:
            row.due_us = min(row.due_us, self._free_by(row))
        for row in in_order:
            self._start(row)
        for row in self.rows.values():
            self._hide(row)

    def _owed(self) -> list[ClaimKey]:
        """Return the claims below their deserved GPU-time that have waiting jobs, lowest first.

        With the preset "tight", leases that come due count as held, because they may be renewed.
        """
        keys = [(self._key(claim), claim) for claim, kinds in self._pool.queues.items() if kinds]
        if self._progress.options.is_tight:
            due: dict[ClaimKey, int] = {}
            for _, one in self._pool.ended:
                if one.lease is not None:
                    claim = one.lease.tenant, one.lease.gpu_type
                    due[claim] = due.get(claim, 0) + one.lease.gpus
            standings = self._progress.standings
            keys = [
                (value, claim)
                for value, claim in keys
                if standings[claim].held + due.get(claim, 0) < standings[claim].share
            ]
        return [claim for value, claim in sorted(keys) if value < 1]

    def _is_waiting(self, job: int) -> bool:
        pool = self._pool
        if job not in pool.jobs or job in self._leases or job in self._due:
            return False
        return pool.is_waiting is None or pool.is_waiting(job)

    def _waits(self, row: StartPromise) -> bool:
        """Return whether a promised job waits, and has not been changed since."""
        if not self._is_waiting(row.job):
            return False
        job = self._pool.jobs[row.job]
        return job.gpus == row.gpus and row.gpu_type in (job.gpu_types or (row.gpu_type,))

    def _free(self, gpu_type: str) -> Mapping[int, int]:
        """Return the GPUs that no lease holds, for the nodes that hold no more than they have."""
        free = self._progress.free_by_type.get(gpu_type)
        if free is None or not self._overfull:
            return {} if free is None else free.unheld.free
        rows = free.unheld.free.items()
        return {node: gpus for node, gpus in rows if node not in self._overfull}

    def _free_by(self, row: StartPromise) -> int:
        """Return when the GPUs of a promise are free, if no pinned lease is renewed before."""
        instants = [self._pool.at_us]
        for part in row.parts.values():
            leases = [self._leases[job] for job in part.pins if job not in self._due]
            instants += [self._free_from(lease) for lease in leases]
            ahead = [self.rows[job].due_us for job in part.after]
            instants += [due_us + self._term_us for due_us in ahead]
        return max(instants)

    def _free_from(self, lease: Lease) -> int:
        """Return when a lease may end at the latest, whether it is renewed until then or not."""
        least_us = self._progress.options.min_runtime_us
        return max(lease.expires_us, lease.protected_until_us, lease.started_us + least_us)

    @property
    def _term_us(self) -> int:
        return max(self._pool.lease_us, self._progress.options.min_runtime_us)

    # Part b, starts.

    def _start(self, row: StartPromise) -> None:
        """Start a promised job if its GPUs are free, or if it is due.

        When it is due, leases that still run on the GPUs that it needs end. If one of them may not
        end yet, the job starts later. If a limit refuses the job then, the promise ends.
        """
        progress, pool = self._progress, self._pool
        job, free = pool.jobs[row.job], progress.free_by_type[row.gpu_type]
        others = [other for other in self.rows.values() if other is not row]
        missing = {
            node: part.gpus - free.available.free[node] + kept_gpus(others, node, self._due)
            for node, part in row.parts.items()
        }
        victims = self._victims(row, missing)
        is_due = pool.at_us >= row.due_us
        if victims is None or (victims and not (is_due and self._may_end(victims))):
            return
        if self._is_refused(row, victims):
            if is_due:
                del self.rows[row.job]
                self._refused.add(row.job)
                self.is_open = True  # the next round may promise it GPUs again
                bequeath(row, self.rows.values(), {})
            return
        progress.nominate(job)
        progress.entries[job.id].state = PickState.PROMISED
        for lease in victims:
            progress.admission.let_go(lease)
            progress.end(lease, PreemptionRule.PROMISE, job, {"starts_us": row.due_us})
            free.clear(lease.placement)
            self._taken.add(lease.job)
        free.put(row.placement)
        for lease in victims:
            self._free_rest(lease, row, missing)
        progress.give(job, row.gpu_type, row.placement, PROMISED)
        self.started.add(job.id)
        del self.rows[row.job]
        for other in self.rows.values():
            for part in other.parts.values():
                if job.id in part.after:
                    part.pins[job.id] = part.after.pop(job.id)

    def _free_rest(self, lease: Lease, row: StartPromise, missing: dict[int, int]) -> None:
        """Give the rest of a lease that ended for a promise to the other promises that pin it.

        `missing`: by node, the GPUs of ended leases that the job still uses. GPUs that no promise
        counts stay unassigned in this round. If a limit may withdraw the job's grant, all of the
        rest does, because the lease would continue (`terms.settle_exchanges`).
        """
        free = self._progress.free_by_type[row.gpu_type]
        is_final = not self._progress.admission.may_refuse(self._pool.jobs[row.job])
        for node, gpus in lease.placement:
            others = [
                other.parts[node]
                for other in self.rows.values()
                if other is not row and node in other.parts
            ]
            pinned = sum(part.pins.get(lease.job, 0) for part in others)
            used = min(max(0, missing.get(node, 0)), gpus - pinned)
            missing[node] = missing.get(node, 0) - used
            for part in others if is_final else ():
                part.held += part.pins.pop(lease.job, 0)
            rest = gpus - used - (pinned if is_final else 0)
            free.put(((node, rest),))
            if rest:
                self._beside |= {key for key, one in self._leases.items() if gpus_on(one, node)}

    def _is_refused(self, row: StartPromise, victims: list[Lease]) -> bool:
        """Return whether a limit refuses the job, once the leases of `victims` have ended."""
        admission = self._progress.admission
        for lease in victims:
            admission.let_go(lease)
        refusal = self._refusal(self._pool.jobs[row.job], row.gpu_type)
        for lease in victims:
            admission.hold_again(lease)
        return refusal is not None

    def _victims(self, row: StartPromise, missing: Mapping[int, int]) -> list[Lease] | None:
        """Return the pinned leases that must end for the job; None if that is not enough.

        `missing`: the GPUs that the job needs in addition to the free ones, by node. A lease gives
        all of its GPUs that no other promise pins.
        """
        pins = {pin for part in row.parts.values() for pin in part.pins} - self._due.keys()
        if not pins <= self._leases.keys():
            return None  # a pinned job started in this round
        pinned = pinned_gpus(other for other in self.rows.values() if other is not row)
        gives = {
            pin: {node: gpus_on(self._leases[pin], node) - pinned.get((node, pin), 0)
                  for node in row.parts}
            for pin in sorted(pins)
        }  # fmt: skip # rows of what belongs together
        left, victims = dict(missing), list[int]()
        for pin, gpus in gives.items():
            if any(left[node] > 0 and gpus[node] > 0 for node in left):
                victims.append(pin)
                left = {node: left[node] - gpus[node] for node in left}
        if max(left.values()) > 0:
            return None
        for pin in list(victims):  # leases that later ones made unnecessary
            if all(left[node] + gives[pin][node] <= 0 for node in left):
                victims.remove(pin)
                left = {node: left[node] + gives[pin][node] for node in left}
        return [self._leases[pin] for pin in victims]

    def _may_end(self, leases: list[Lease]) -> bool:
        """Return whether the round may end these leases, and has not ended one of them yet."""
        at_us, least_us = self._pool.at_us, self._progress.options.min_runtime_us
        return all(
            lease.may_be_preempted(at_us)
            and lease.started_us + least_us <= at_us
            and lease.job in self._pool.jobs
            and lease.job not in self._taken
            for lease in leases
        )

    # Part c, hidden GPUs.

    def _hide(self, row: StartPromise) -> None:
        free = self._progress.free_by_type[row.gpu_type]
        for node, part in row.parts.items():
            if part.held:
                free.hide(node, part.held)
            for job, gpus in part.pins.items():
                if job in self._due:
                    free.hide(node, gpus, of_ended=gpus)

    def show(self, lease: Lease) -> None:
        """Show the hidden GPUs of a due lease, because it has its turn."""
        self._change_hidden(lease, is_hidden=False)

    def take_back(self, lease: Lease) -> None:
        """Hide GPUs of a due lease that is not renewed. The promises hold them from now on."""
        self._change_hidden(lease, is_hidden=True)

    def _change_hidden(self, lease: Lease, *, is_hidden: bool) -> None:
        free = self._progress.free_by_type[lease.gpu_type]
        for row in self.rows.values():
            for node, part in row.parts.items():
                gpus = part.pins.get(lease.job, 0)
                if not gpus:
                    continue
                if is_hidden:
                    free.hide(node, gpus)
                    part.held += part.pins.pop(lease.job)
                else:
                    free.hide(node, -gpus, of_ended=-gpus)

    # Part d, new promises.

    def _make_one(self, claim: ClaimKey) -> None:
        """Start or promise the candidate of a tenant: of its waiting jobs, the longest waiting."""
        progress, pool = self._progress, self._pool
        tenant, gpu_type = claim
        free = progress.free_by_type.get(gpu_type)
        job = self._candidate(claim) if free is not None else None
        if job is None or free is None:
            return
        promised = sum(
            row.gpus
            for row in self.rows.values()
            if row.gpu_type == gpu_type and pool.jobs[row.job].tenant == tenant
        )
        if promised + job.gpus > max(progress.standings[claim].quota, job.gpus):
            return
        placement = free.place(job.gpus)
        if placement is not None:
            progress.nominate(job)
            progress.entries[job.id].state = PickState.PROMISED
            progress.give(job, gpu_type, placement, PROMISED)
            self.started.add(job.id)
            return
        leases = [*self._leases.values(), *self._due.values()]
        last = self.started | owed_as_much(claim, leases, self._key)
        place = best_place(job.gpus, self._sources(free), last)
        self.is_open = True  # the tenant's next job may follow, or the place is free again
        if place is not None:
            row = StartPromise(job.id, gpu_type, job.gpus, place.due_us, pool.at_us, place.parts)
            self.rows[job.id] = row
            self._hide(row)

    def _candidate(self, claim: ClaimKey) -> Job | None:
        """Return the job that waited longest of those that could start, or None."""
        pool, at_us = self._pool, self._pool.at_us
        for since_us, job_id in pool.longest_waiting(claim):
            known = self.rows.keys() | self.started | self._refused
            if job_id in known or not self._is_waiting(job_id):
                continue
            if since_us + pool.round_us > at_us:
                self.is_open = True  # it was not waiting before this round
                return None
            job = pool.jobs[job_id]
            profile = pool.profiles.get(job.profile)
            is_able = profile is None or profile.speed_milli(claim[1])
            # GPUs that their owners keep would refuse a borrower when the promise is due.
            admission = self._progress.admission
            is_able = is_able and (admission.is_own(job, claim[1]) or not admission.keeps(claim[1]))
            if is_able and self._refusal(job, claim[1]) is None:
                return job
        return None

    def _sources(self, free: FreeCapacity) -> dict[int, NodeSources]:
        """Return the GPUs of each node by the time from which they are available."""
        pool = self._pool
        sources = {
            node: NodeSources(pool.gpus.get(node, 0), [], []) for node in free.available.free
        }
        left = {
            node: gpus for node, gpus in free.available.free.items() if node not in self._overfull
        }
        pinned = pinned_gpus(self.rows.values())
        for job, lease in [*self._due.items(), *self._leases.items()]:
            is_due = job in self._due
            until_us = max(self._free_from(lease), pool.at_us)
            for node, gpus in lease.placement if job not in self._taken else ():
                count = gpus - pinned.get((node, job), 0)
                if is_due:
                    count = min(count, left.get(node, 0))
                    left[node] = left.get(node, 0) - count
                if count > 0 and node in sources:
                    sources[node].own.append((until_us, count, job))
        for node, gpus in left.items():
            if gpus and node in sources:
                sources[node].own.append((pool.at_us, gpus, 0))
        self._add_started(sources, pinned)
        add_promised(sources, self.rows.values(), self._term_us)
        for node_sources in sources.values():
            node_sources.own.sort()
            node_sources.promised.sort()
        return sources

    def _add_started(
        self, sources: dict[int, NodeSources], pinned: Mapping[tuple[int, int], int]
    ) -> None:
        """Add the GPUs of jobs that these rules started, from the end of their lease."""
        until_us = self._pool.at_us + self._term_us
        for job in sorted(self.started):
            row = self._progress.entries[job].row
            for node, gpus in row.placement if isinstance(row, Grant) else ():
                count = gpus - pinned.get((node, job), 0)
                if count and node in sources:
                    sources[node].own.append((until_us, count, job))
