"""The market: Astraea-online in live rounds. Jobs borrow GPUs that are worth their price to them.

Source: N. Wang et al., "Online Scheduling of Distributed Machine Learning Jobs for Incentivizing
Sharing in Multi-Tenant Systems", IEEE TC 2022, algorithms 1 to 3 with `interval = fixed`.

| paper | here | unit |
|---|---|---|
| f, utility | `Snapshot.utilities`, or a bid: maximum price or `default_bid` | micro-credits |
| q_w^u, workers of user u | the tenant's quota of a GPU type | GPUs |
| D_w, workers of a job, from start to end | its gang | GPUs |
| d, duration in slots | the estimate on that type in lease lengths; 1 if unknown | slots |
| h(t), allocated workers | GPUs in use by slot, expected ends included | GPUs |
| eta_w(h), (8) | `thetas.price_curve`, of each GPU type | micro-credits per GPU-hour |
| theta_w | `thetas.price_settings`: 1 + value / base x `theta_factor`, of 30 days | thousandths |
| own-quota phase, shared phase | `picks.MarketPicks.give_own`, `plan_all` | |
| A_maxIrev: largest f - cost, admitted iff above 0 | `search.Search.best` | |
| interval tau_l | `interval_s` | s |

A round renews leases within quota and starts jobs within quota. It renews a borrowed lease if a
GPU-hour is worth the posted price to the job and no owner took the GPUs. A batch plans all jobs
that still wait, in the order (submission, id). A plan is the start and GPU type with the largest
gain within the horizon.

Departures, each with its test in tests/papers/test_market.py, the reasons in docs/adr/0174:

- Pools are all-reduce, without parameter servers. GPUs of a type are interchangeable until a job
  starts and needs nodes.
- Own quota costs nothing, so it is given in every round, also to jobs whose value has fallen to 0.
- A borrowing job gets one lease after another, each at the price posted at the time. It is admitted
  only if the GPUs are worth the price with its own GPUs counted as used. With `borrow_limit = job`,
  one term covers the whole job, at the price without its GPUs.
- The value of a bid does not depend on the job's end. So the job takes the first start with a gain.
- f counts from the submission.

All orders end in (submitted, id).
"""

from types import MappingProxyType
from typing import Any

from evenshare_core.domain.decision import Decision, Plan, PlanKind, Skip
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.estimation.remaining import LEAST_PERCENT
from evenshare_core.fairness.certificate import Property
from evenshare_core.fairness.claims import accepted_types
from evenshare_core.fairness.job_value import ValueRule
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.policies.market.job_values import JobOnType, bid_of
from evenshare_core.policies.market.memory import MEMORY_IDS, MarketMemory
from evenshare_core.policies.market.options import MarketOptions
from evenshare_core.policies.market.picks import OWN, PAID, MarketPicks
from evenshare_core.policies.market.pool import PricedPool
from evenshare_core.policies.market.session import MarketSession
from evenshare_core.policies.options import Options, parse_options
from evenshare_core.policies.policy import Policy, PricedStart, Traits
from evenshare_core.policies.quota_promise import (
    PoolLengths,
    QuotaPromise,
    QuotaPromiseKind,
    WaitPart,
)
from evenshare_core.policies.shared import explain

ROOM_TEXT = (
    "Some node has enough GPUs that no tenant holds within its quota. The node that is free"
    " first is reserved for the job. The time starts again if an earlier owner's job takes the"
    " node or the node goes down. It also starts again if a borrowing lease there moves within"
    " its tenant's quota."
)


class Market(Policy):
    name = "market"
    version = "2"  # version 2: the node that will be clear first is kept for an owner (ADR 0174)
    title = "Posted-price market"
    promise = "Quotas are free; other GPUs go to the jobs that value them most."
    suits = "Tenants that declare the value of their jobs and lend idle quota for credits."
    order_text = (
        "Jobs within their tenant's quota first; then jobs that gain from borrowing at the posted"
        " price. Each group is in the order of submission."
    )
    quota_text = (
        "A quota costs nothing. Idle quota is borrowed lease by lease: borrowed GPUs are not"
        " renewed while their owner has a job for them. The owner waits at most a lease length"
        " for the first free node, if some node has enough GPUs that no owner holds."
    )
    quota_kind = QuotaPromiseKind.GUARANTEED
    note_texts = MappingProxyType(
        {
            OWN: "It runs within its tenant's quota, which costs nothing.",
            PAID: "It runs on borrowed GPUs: it values them at their price or more.",
        }
    )
    traits = Traits(
        needs_estimates=True,
        preempts=True,
        clears_prices=True,
        owners_first=True,
        reads_arrivals=True,
    )
    memory_ids = MEMORY_IDS
    options_type = MarketOptions
    promised = frozenset({Property.QUOTA_GUARANTEE, Property.INDIVIDUAL_RATIONALITY})

    def decide(self, snapshot: Snapshot) -> Decision:
        options = parse_options(MarketOptions, snapshot.options)
        memory = MarketMemory.of(snapshot, options)
        pool = PricedPool.of(snapshot, options)
        settings = memory.settings(pool, snapshot.jobs)
        picks = MarketPicks(pool, options, memory, settings)
        left = picks.run(waiting_in_order(snapshot, {lease.job for lease in snapshot.leases}))
        return Decision(
            at_us=snapshot.at_us,
            grants=tuple(picks.grants),
            renewals=tuple(picks.renewals),
            ends=picks.ends({node.id: node.gpus for node in snapshot.nodes}),
            skips=tuple(_Waits(snapshot, memory, picks).skips(left)),
            memory=memory.data((job.id for job in left), planned=picks.has_planned),
            lengths=tuple(picks.lengths),
            prices=settings,
            plans=memory.published(),
        )

    def quota_promise(
        self,
        options: Options,  # noqa: ARG002 - it is the same with all
        lengths: PoolLengths,
    ) -> QuotaPromise:
        """Return the guarantee: borrowed leases are not renewed if an owner needs the GPUs."""
        parts = (
            WaitPart("leases of the jobs that borrow", lengths.lease_us),
            WaitPart("until the next round", lengths.round_us),
            WaitPart("their notice", lengths.notice_us),
        )
        return QuotaPromise(self.quota_kind, self.quota_text, parts, (explain.FITS_TEXT, ROOM_TEXT))

    def value_rule(self, options: Options) -> ValueRule:
        """Return the rule that a job without a declared value bids `default_bid` x base rate."""
        assert isinstance(options, MarketOptions)  # noqa: S101 - the registry parsed them
        return ValueRule(options.default_bid_milli, LEAST_PERCENT)

    def session(self, options: dict[str, Any]) -> MarketSession:
        """Return a session that keeps memory, order and prices between rounds."""
        return MarketSession(parse_options(MarketOptions, options))

    def value_and_price(self, options: Options, start: PricedStart) -> tuple[int, int]:
        """Return value and price. The price counts the job's GPUs, unless it has one long term."""
        assert isinstance(options, MarketOptions)  # noqa: S101 - the registry parsed them
        job = Job(0, 0, start.gpus, 0, max_price_micro=start.max_price_micro)
        utility = start.utility or bid_of(job, start.base_micro, options)
        value_micro = JobOnType(job, "", start.lease_us, 0, utility).hourly_micro()
        if options.borrow_limit == "job":
            return value_micro, start.price_micro
        return value_micro, max(start.price_micro, start.after_micro)

    def queue_order(self, snapshot: Snapshot) -> tuple[int, ...]:
        """Return the jobs of ended leases, by the lease's start, then waiting jobs by arrival."""
        running = {lease.job for lease in snapshot.leases if not lease.ends_by(snapshot.at_us)}
        jobs = {job.id for job in snapshot.jobs}
        due = [row for row in snapshot.leases if row.job not in running and row.job in jobs]
        first = [row.job for row in sorted(due, key=lambda row: (row.started_us, row.id))]
        rest = waiting_in_order(snapshot, running | set(first))
        return (*first, *(job.id for job in rest))


def waiting_in_order(snapshot: Snapshot, held: set[int]) -> list[Job]:
    """Return the jobs that are not in `held`, by arrival."""
    return sorted((job for job in snapshot.jobs if job.id not in held), key=arrival_order)


class _Waits:
    """Reasons why jobs wait after a round, grouped by tenant and reason."""

    def __init__(self, snapshot: Snapshot, memory: MarketMemory, picks: MarketPicks) -> None:
        self._snapshot, self._memory, self._picks = snapshot, memory, picks
        self._rows: dict[tuple[str, int, str], list[tuple[Job, dict[str, Any]]]] = {}
        self._queues: dict[tuple[int, tuple[str, ...]], list[Job]] = {}

    def skips(self, waiting: list[Job]) -> list[Skip]:
        """Return a row per (reason, tenant, GPU type), with the numbers of the row's first job."""
        for job in waiting:
            self._add(job)
        rows = [
            Skip(
                Reason(reason),
                tenant,
                tuple(job.id for job, _ in jobs),
                sum(job.gpus for job, _ in jobs),
                jobs[0][1],
            )
            for (reason, tenant, _), jobs in sorted(self._rows.items())
        ]
        queues = [
            explain.Queue(tenant, first, jobs, None, None, None, tuple(others))
            for (tenant, (first, *others)), jobs in sorted(self._queues.items())
        ]
        return rows + explain.skips(queues, self._picks.free_by_type, self._picks.admission)

    def _add(self, job: Job) -> None:
        picks = self._picks
        types = accepted_types(job, picks.capacity) or tuple(job.gpu_types)
        able = [name for name in types if job.gpus <= picks.capacity.get(name, 0)]
        free = [name for name in able if picks.admission.check(job, name) is None]
        if job.id in picks.outbid:
            gpu_type, value, price = picks.outbid[job.id]
            self._row(Reason.PRICE_ABOVE_VALUE, job, gpu_type, _prices(value, price))
        elif free and (plan := self._memory.plans.get(job.id)) is not None:
            if plan.kind is PlanKind.REFUSED:
                self._refused(job, plan)
            else:
                numbers = {"starts_us": plan.start_us, "borrowed": plan.borrowed}
                self._row(Reason.PLANNED_LATER, job, plan.gpu_type, numbers)
        elif free and not self._memory.is_batch and self._memory.came_since(job.submitted_us):
            self._row(Reason.NEXT_BATCH, job, free[0], {"batch_us": self._memory.batch_us})
        else:
            self._explained(job, free or able or list(types))

    def _refused(self, job: Job, plan: Plan) -> None:
        """Add a refused job.

        The reason is its maximum price if the job's value is not lower than that.
        """
        reason, most = Reason.PRICE_ABOVE_VALUE, job.max_price_micro
        numbers = _prices(plan.needed_micro, plan.lowest_micro)
        if most is not None and plan.needed_micro == most:
            reason = Reason.PRICE_ABOVE_MAX
            numbers = {"price_micro": plan.lowest_micro, "max_price_micro": most}
        self._row(reason, job, plan.gpu_type, numbers)

    def _row(self, reason: Reason, job: Job, gpu_type: str, numbers: dict[str, Any]) -> None:
        row = {"gpu_type": gpu_type, "needed": job.gpus, **numbers}
        self._rows.setdefault((reason.value, job.tenant, gpu_type), []).append((job, row))

    def _explained(self, job: Job, types: list[str]) -> None:
        """Queue a job for the reasons that all policies share: too large, a limit, or no room."""
        if not types:
            types = sorted({row.gpu_type for row in self._snapshot.service.claims}) or [""]
        free_by_type = self._picks.free_by_type
        for name in types:
            if name not in free_by_type:
                free_by_type[name] = FreeCapacity({}, {}, {})
        self._queues.setdefault((job.tenant, tuple(types)), []).append(job)


def _prices(value_micro: int, price_micro: int) -> dict[str, int]:
    return {"value_micro": value_micro, "price_micro": price_micro}


POLICY = Market()
