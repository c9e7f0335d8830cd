"""Evenshare: promised starts for tenants below their fair share, short jobs first, preemption.

Source: none; this is the product's own policy. Its parts are published:

- the deficit of LTGF (Z. Ye et al., IEEE TPDS 2021);
- least attained service (J. Gu et al., Tiresias, NSDI 2019);
- the finish-time order of estimates (K. Mahajan et al., Themis, NSDI 2020);
- preemption and defragmentation only if they are worth it.

Rules, by number:

1. *Tenants.* key = (A + granted this round) / (F + 300 s x min(D, Q)). A and F are the GPU-time
   received and deserved, decayed exponentially over the window (`memory`). D is the demand, Q the
   quota. While some tenant's key is below 1, the tenant with the lowest key is served. After that,
   the jobs of all tenants are served in a single order, by rule 2.
2. *Jobs.* Without estimates: least attained GPU-time first, halved for a renewing job. Jobs that
   attained 2,700 GPU-s are *long* and come after the others: least (attained - FairTime) / d first,
   minus one lease for a renewing job. With estimates: least (d E - FairTime) / min(d, FairShare)
   first, where E = done + max(estimate - done, 5 % of it). Renewals have a bonus of 90 s. With
   deadlines: least d max(estimate - done, 5 % of it) first. Jobs that would end after their last
   deadline come last.
3. *Placement.* A renewed lease keeps its GPUs. Other jobs get the best fit among unheld GPUs, then
   among those of ending leases. If a gang of d GPUs does not fit, the round places no gang of d or
   more GPUs, except renewals.
4. *Promised starts.* The longest waiting job of a tenant whose key is below 1 gets GPUs, or the
   promise of GPUs at a time (`promised_starts`).
5. *Preemption that pays.* For a job that never ran, leases that have run for the minimum runtime
   are ended on one node, the one with the fewest victims. Victims belong to its own tenant, or to
   tenants that keep min(D, Q), and hold at most twice its GPUs. Without estimates, a victim has
   attained more than 2,700 GPU-s. With estimates, it still needs more than 2 x (the job's estimate
   + 60 s).
6. *Defragmentation.* If enough GPUs for a gang are free but no node has room, jobs of at most 2
   GPUs move to other nodes. The node that needs the fewest moves is cleared.

In the first edition (version 4, or with the option `promises` off), two rules replace rule 4:

- *Guarantee.* If the job keeps its tenant within quota and A < 0.95 F, leases end on one node as in
  rule 5, of tenants that keep min(D, Q). For a gang larger than a node, several nodes are cleared.
- *Gangs that overtake.* If such a gang is not owed GPUs, leases of long jobs on one node are ended
  for it. By rule 2, these jobs would come after the gang if their leases ended now. They belong to
  its tenant, or to tenants that keep min(D, Q). Nodes are chosen one by one: the node that gives
  the gang most GPUs, then the one with the fewest ending leases.

With the preset "tight", tenants are served first while the GPUs that they hold are fewer than
min(D, Q), the lowest ratio first. Rule 5 and gangs that overtake are off, and the guarantee holds
whatever was received before. Leases are protected for at most 60 s.

| symbol | here | unit |
|---|---|---|
| A, F | `TenantStanding.received`, `.deserved` | GPU-us |
| D, Q | `ClaimService.demand`, `.quota`; min(D, Q) is `TenantStanding.share` | GPUs |
| granted | `TenantStanding.granted_us`: GPUs x lease length | GPU-us |
| d | `Job.gpus` | GPUs |
| FairTime, FairShare | (14), (13) of LTGF, `fairness.gpu_time` | GPU-us, GPUs |

All sums and candidates are per GPU type. A job that accepts several types is tried on each,
starting with the type that it claims, and holds GPUs of one type.

All orders end in (submitted_us, id).
"""

from collections.abc import Mapping
from typing import Any

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.jobs import UNHEARD
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Property
from evenshare_core.fairness.guarantee import OWED_PERCENT, Guarantee
from evenshare_core.fairness.measure import Measured
from evenshare_core.placement.consolidated import free_capacity_by_type
from evenshare_core.policies.evenshare.memory import MEMORY_IDS, DecayedSums, with_parts
from evenshare_core.policies.evenshare.options import EvenshareOptions
from evenshare_core.policies.evenshare.picks import EvenPicks
from evenshare_core.policies.evenshare.progress import (
    BACKFILLED,
    DEFRAGMENTED,
    GUARANTEE,
    LARGE_GANG,
    LEFT_OVER,
    MOVED,
    PAYS,
    PROMISED,
    RoundPool,
)
from evenshare_core.policies.evenshare.promises import read_promises
from evenshare_core.policies.evenshare.queues import (
    AttainedOrder,
    ClaimKey,
    DeadlineOrder,
    Entry,
    EstimateOrder,
    EvenCandidate,
    JobOrder,
    TenantStanding,
    Waiting,
    queue_up,
    waits_since,
)
from evenshare_core.policies.evenshare.session import IncrementalEvenshare
from evenshare_core.policies.evenshare.turns import turn_numbers
from evenshare_core.policies.evenshare.waits import wait_reasons
from evenshare_core.policies.options import Options, parse_options
from evenshare_core.policies.policy import Policy, Private, Traits
from evenshare_core.policies.promised_start import PromisedStart
from evenshare_core.policies.quota_promise import (
    PoolLengths,
    QuotaPromise,
    QuotaPromiseKind,
    WaitPart,
)
from evenshare_core.policies.shared import explain
from evenshare_core.policies.shared.admission import Admission
from evenshare_core.policies.shared.session import Session
from evenshare_core.policies.shared.terms import expired_ends

NOTES = {
    LEFT_OVER: "No tenant was owed more, so the rest went to the jobs that received least.",
    GUARANTEE: "Its tenant was owed GPUs within its quota: leases of tenants above their quota"
    " ended.",
    PAYS: "It had never run, and took GPUs of long jobs.",
    DEFRAGMENTED: "Smaller jobs moved to other nodes to make room for it on one node.",
    MOVED: "It moved to another node to make room for a larger job.",
    LARGE_GANG: "It needs several nodes, so leases of long jobs that come after it ended.",
    PROMISED: "Its tenant was owed GPU-time, and it had waited longest of the tenant's jobs.",
    BACKFILLED: "It got GPUs that are promised to another job, until that job needs them.",
}
# The conditions of the guarantee, as displayed text.
ROOM_CONDITION = (
    "On some node there are enough GPUs that are free or held by tenants above the smaller of"
    " quota and demand. In a round, one job per node gets these GPUs."
)
OWED_CONDITION = (
    f"The tenant received less than {OWED_PERCENT} % of its fair share over the window; a tenant"
    " that received more waits until leases end."
)
PROMISES_TEXT = (
    "The longest waiting job of a tenant that is owed GPU-time gets its GPUs within a lease of the"
    " jobs that make room, the time to the next rounds, and their notice. A job that stands behind"
    " older promises waits as long again for each of them."
)
# The conditions of a promise without a wait for older promises, as displayed text.
PROMISES_CONDITIONS = (
    "The tenant is below its fair share of GPU-time, or with the tight preset of GPUs.",
    "Of the tenant's waiting jobs, the job has waited longest, and at least one round.",
    "The tenant's promised jobs, with this one, fit within quota, or it has no other one.",
    "Enough GPUs for it are not promised to other jobs yet.",
    "Its nodes stay up, and no limit of its tenant refuses it.",
)
GUARANTEE_TEXT = (
    "GPUs within quota are guaranteed within the minimum runtime of the jobs that make room, the"
    " time to the next round, and their notice."
)
LONG_TERM_TEXT = (
    "A quota is a long-term target: as leases end, the tenant furthest below its fair share is"
    " served first."
)

OPTIONS_OF_4 = {"promises": False, "restart_budget_percent": 0}  # the defaults of version 4


class Evenshare(Policy):
    name = "evenshare"
    version = "5"  # version 5: promised starts are the default
    earlier_versions = frozenset({"4"})
    title = "Even sharing with preemption"
    promise = (
        "A tenant below its fair share gets a promised start, usually within one lease and for"
        " gangs of any size; short jobs seldom wait."
    )
    suits = (
        "Tenants with quotas that lend what is idle, run gangs, and need to know when jobs start."
    )
    order_text = (
        "Jobs with a promised start come first. Then the tenant furthest below its fair share is"
        " served, with its job that has the least GPU-time. Long jobs come last, the furthest"
        " behind first."
    )
    quota_text = PROMISES_TEXT
    quota_kind = QuotaPromiseKind.GUARANTEED
    note_texts = NOTES
    traits = Traits(preempts=True, preempts_running=True)
    memory_ids = MEMORY_IDS
    options_type = EvenshareOptions

    def options_of(self, snapshot: Snapshot) -> EvenshareOptions:
        """Return the options of a round; by default, version 4 had no promises and no budget."""
        before = OPTIONS_OF_4 if snapshot.policy_version == "4" else {}
        return parse_options(EvenshareOptions, {**before, **snapshot.options})

    def decides_again(self, snapshot: Snapshot) -> bool:
        """Return whether a round gives the same bytes; promises of version 4 had other places."""
        has_old_places = snapshot.policy_version == "4" and self.options_of(snapshot).promises
        return super().decides_again(snapshot) and not has_old_places

    def decide(self, snapshot: Snapshot) -> Decision:
        options = self.options_of(snapshot)
        sums = DecayedSums(options.window_us)
        sums.begin(snapshot.memory, snapshot.service.claims, snapshot.at_us, snapshot.round_us)
        waiting, ended = _candidates(snapshot)
        picks = EvenPicks(_pool(snapshot, options, sums, (waiting, ended)), options)
        progress = picks.run()
        grants, renewals = progress.stay(
            [one.lease for one in ended if one.lease is not None], picks.promised.rows.values()
        )
        renewed = {renewal.lease for renewal in renewals}
        ends = expired_ends(snapshot, renewed, progress.refused)
        return Decision(
            at_us=snapshot.at_us,
            grants=tuple(grants),
            renewals=tuple(renewals),
            ends=tuple(sorted([*ends, *progress.ends], key=lambda end: end.lease)),
            skips=wait_reasons(
                [*waiting, *[(one.job, one.sums) for one in ended]], picks, snapshot
            ),
            memory=with_parts(sums.memory, picks.promised.memory(), picks.restarts()),
            preemptions=tuple(progress.preemptions),
        )

    def reads(self, options: Options) -> frozenset[Private]:
        """Return the data that the base and, with these options, rule 2 read."""
        order = options.estimates if isinstance(options, EvenshareOptions) else ""
        asked = {"given": {Private.ESTIMATE}, "deadlines": {Private.ESTIMATE, Private.DEADLINES}}
        return super().reads(options) | asked.get(order, set())

    def queue_order(self, snapshot: Snapshot) -> tuple[int, ...]:
        """Return the order of rules 1 and 2. Each tenant is charged as if every gang fitted."""
        options = self.options_of(snapshot)
        sums = DecayedSums(options.window_us)
        sums.begin(snapshot.memory, snapshot.service.claims, snapshot.at_us, snapshot.round_us)
        pool = _pool(snapshot, options, sums, _candidates(snapshot))
        return EvenPicks(pool, options).order()

    def promises(self, options: Options, measured: Measured | None = None) -> frozenset[Property]:
        """Return the base's promises, and promised starts or the guarantee if they are on."""
        promised = super().promises(options, measured)
        if not isinstance(options, EvenshareOptions):
            return promised
        if options.promises:
            return promised | {Property.PROMISED_STARTS}
        return promised | {Property.QUOTA_GUARANTEE} if options.has_guarantee else promised

    def quota_promise(self, options: Options, lengths: PoolLengths) -> QuotaPromise:
        """Return the bound of promised starts, or the guarantee, or the long-term target."""
        if isinstance(options, EvenshareOptions) and options.promises:
            return _promised_quota(lengths, options.min_runtime_us)
        if not isinstance(options, EvenshareOptions) or not options.has_guarantee:
            return QuotaPromise(QuotaPromiseKind.LONG_TERM, LONG_TERM_TEXT)
        parts = (
            WaitPart("minimum runtime of the jobs that make room", options.min_runtime_us),
            WaitPart("until the next round", lengths.round_us),
            WaitPart("their notice", lengths.notice_us),
        )
        conditions: tuple[str, ...] = (explain.FITS_TEXT, ROOM_CONDITION)
        if not options.is_tight:
            conditions = (*conditions, OWED_CONDITION)
        return QuotaPromise(self.quota_kind, GUARANTEE_TEXT, parts, conditions)

    def promised_starts(self, memory: Mapping[str, Any]) -> tuple[PromisedStart, ...]:
        """Return the promises of rule 4, in the order of their turns."""
        return tuple(
            PromisedStart(
                *(row.job, row.gpu_type, row.gpus, row.due_us, row.made_us),
                {node: part.held for node, part in row.parts.items() if part.held},
                frozenset(job for part in row.parts.values() for job in part.pins),
            )
            for row in read_promises(memory)
        )

    def turn_numbers(
        self, options: Options, lease_us: int, decision: Decision
    ) -> dict[ClaimKey, dict[str, Any]]:
        """Return the sums of rule 1 after the round, or the held GPUs with the preset "tight"."""
        assert isinstance(options, EvenshareOptions)  # noqa: S101 - narrows; of `options_type`
        return turn_numbers(options, lease_us, decision)

    def guarantee(self, options: Options, decision: Decision) -> Guarantee | None:
        """Return which tenants the guarantee owes GPUs, from the sums after the round."""
        if not isinstance(options, EvenshareOptions) or not options.has_guarantee:
            return None
        if options.is_tight:
            return Guarantee(options.min_runtime_us, None)
        sums, claims = DecayedSums(options.window_us), decision.service.claims
        sums.begin(decision.memory, claims, decision.at_us, 0)
        by_claim = {(row.tenant, row.gpu_type): sums.sums(row) for row in claims}
        return Guarantee(options.min_runtime_us, by_claim)

    def session(self, options: dict[str, Any]) -> Session | None:
        """Return queues that can be kept between rounds, or None if deadlines order the jobs."""
        chosen = parse_options(EvenshareOptions, options)
        return None if chosen.estimates == "deadlines" else IncrementalEvenshare(chosen)


POLICY = Evenshare()


def _promised_quota(lengths: PoolLengths, least_us: int) -> QuotaPromise:
    """Return the bound of rule 4 for a job behind no older promise. `least_us`: minimum runtime."""
    parts = (
        WaitPart("a lease of the jobs that make room", max(lengths.lease_us, least_us)),
        WaitPart("until the next two rounds", 2 * lengths.round_us),
        WaitPart("their notice", lengths.notice_us),
    )
    return QuotaPromise(POLICY.quota_kind, PROMISES_TEXT, parts, PROMISES_CONDITIONS)


def _candidates(snapshot: Snapshot) -> tuple[list[Waiting], list[EvenCandidate]]:
    """Return the waiting jobs, and the jobs whose lease ended.

    Raises:
        ValueError: the sums do not contain a job.
    """
    held = {lease.job: lease for lease in snapshot.leases}
    sums = {row.job: row for row in snapshot.service.jobs}
    waiting, ended = list[Waiting](), list[EvenCandidate]()
    for job in snapshot.jobs:
        row = sums.get(job.id)
        if row is None:
            raise ValueError(UNHEARD.format(job.id))
        lease = held.get(job.id)
        if lease is None:
            waiting.append((job, row))
        elif lease.ends_by(snapshot.at_us):
            ended.append(EvenCandidate(job, row, lease))
    return waiting, ended


def _pool(
    snapshot: Snapshot,
    options: EvenshareOptions,
    sums: DecayedSums,
    candidates: tuple[list[Waiting], list[EvenCandidate]],
) -> RoundPool:
    at_us = snapshot.at_us
    waiting, ended = candidates
    claims = {(row.tenant, row.gpu_type): row for row in snapshot.service.claims}
    types = [gpu_type for _, gpu_type in claims]
    free_by_type = free_capacity_by_type(snapshot.nodes, snapshot.leases, at_us, types=types)
    running = [lease for lease in snapshot.leases if not lease.ends_by(at_us)]
    kept: dict[ClaimKey, int] = {}
    for lease in running:
        kept[lease.tenant, lease.gpu_type] = (
            kept.get((lease.tenant, lease.gpu_type), 0) + lease.gpus
        )

    def standing(key: ClaimKey) -> TenantStanding:
        row = claims.get(key)
        now = sums.sums(row) if row is not None else (0, 0)
        return TenantStanding(row, key[0], now, kept.get(key, 0))

    classes = {
        (row.tenant, row.gpu_type, row.demand, row.weight): row for row in snapshot.service.classes
    }
    order: JobOrder
    if options.estimates == "given":
        order = EstimateOrder(claims.__getitem__, classes, at_us)
    elif options.estimates == "deadlines":
        last_us = {row.id: row.steps[-1].by_us for row in snapshot.deadlines}
        order = DeadlineOrder(claims.__getitem__, classes, at_us, last_us)
    else:
        order = AttainedOrder(claims.__getitem__, classes, at_us, snapshot.lease_us)
    return RoundPool(
        at_us=at_us,
        lease_us=snapshot.lease_us,
        jobs={job.id: job for job in snapshot.jobs},
        sums={row.job: row for row in snapshot.service.jobs},
        profiles={profile.id: profile for profile in snapshot.profiles},
        gpus={node.id: node.gpus for node in snapshot.nodes},
        queues=queue_up(waiting, order),
        order=order,
        ended=[(_entry(one, order), one) for one in ended],
        standing=standing,
        running=lambda: running,
        free_by_type=free_by_type,
        admission=Admission.of(snapshot),
        round_us=snapshot.round_us,
        promises=read_promises(snapshot.memory),
        memory=snapshot.memory,
        longest_waiting=lambda claim: _longest_waiting(waiting, claim),
    )


def _longest_waiting(waiting: list[Waiting], claim: ClaimKey) -> list[tuple[int, int]]:
    """Return (since when, job) of a claim's waiting jobs, the longest waiting first."""
    rows = [(job, sums) for job, sums in waiting if (sums.tenant, sums.gpu_type) == claim]
    return sorted((waits_since(job, sums), job.id) for job, sums in rows)


def _entry(one: EvenCandidate, order: JobOrder) -> Entry:
    return (order.rank(one), one.job.submitted_us, one.job.id)
