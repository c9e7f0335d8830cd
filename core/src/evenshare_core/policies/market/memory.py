"""Memory of the market: its last batch, the values of past jobs, and published plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from evenshare_core.domain.decision import Plan, PlanKind
from evenshare_core.domain.ids import ById, Fields, IdKind, Row
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import PoolPrice, Snapshot
from evenshare_core.fairness.claims import accepted_types
from evenshare_core.policies.market.job_values import JobOnType, JobValues
from evenshare_core.policies.market.options import MarketOptions
from evenshare_core.policies.market.pool import PricedPool
from evenshare_core.policies.market.thetas import TopValues, price_settings

MEMORY_IDS = Fields(
    {
        "batch_us": None,
        "seen_us": None,
        "tops": None,
        "plans": ById(IdKind.JOB, Row((IdKind.TENANT,))),
    }
)
# A plan is published again if a price changes by more than 1 / MOVES_BY of it.
MOVES_BY = 10


class MarketMemory:
    """The memory of the market in a round. It may be kept between rounds.

    `plans`: the last published plans of waiting jobs. A round without waiting jobs does not change
    the memory, so these rounds may be skipped.
    """

    def __init__(self, data: Mapping[str, Any], options: MarketOptions) -> None:
        """`data`: a result of the method `data`, read back from JSON."""
        self._options = options
        self.at_us = self._slot_us = 0
        self.batch_us: int | None = data.get("batch_us")
        # the latest submission time of a job that theta includes
        self._seen_us: int | None = data.get("seen_us")
        self.tops = TopValues(data.get("tops", {}), 0)
        self.plans: dict[int, Plan] = {}
        self._rows: dict[int, tuple[Plan, list[Any]]] = {}  # plans, each with its stored form
        for job, rest in data.get("plans", {}).items():
            tenant, kind, *fields = rest
            plan = self.plans[int(job)] = Plan(int(job), tenant, PlanKind(kind), *fields)
            self._rows[int(job)] = (plan, rest)
        self.is_batch = False
        self._published: dict[int, Plan] = {}

    @classmethod
    def of(cls, snapshot: Snapshot, options: MarketOptions) -> MarketMemory:
        memory = cls(snapshot.memory, options)
        memory.begin(snapshot.at_us, snapshot.round_us, snapshot.lease_us)
        return memory

    def begin(self, at_us: int, round_us: int, lease_us: int) -> None:
        self.at_us, self._slot_us, self._published = at_us, lease_us, {}
        self.tops.forget(at_us)
        is_over = self.batch_us is None or at_us - self.batch_us >= self._options.interval_us
        # If only events trigger rounds (in some simulations), each round is a batch, because no
        # batch might follow the last event.
        self.is_batch = is_over or not round_us

    def stays_until(self) -> int:
        """Return when the next batch is due or theta forgets a day, if no job comes or goes."""
        if self.batch_us is None:
            return self.at_us
        until_us, forgets_us = self.batch_us + self._options.interval_us, self.tops.stays_until()
        return until_us if forgets_us is None else min(until_us, forgets_us)

    def came_since(self, submitted_us: int) -> bool:
        """Return whether a job was submitted after the last batch."""
        return self.batch_us is None or submitted_us > self.batch_us

    def settings(self, pool: PricedPool, jobs: Iterable[Job]) -> tuple[PoolPrice, ...]:
        """Return base and theta of the next round's prices.

        `jobs`: at least the jobs submitted since the last round. Their values are added to theta.
        """
        if self._options.theta == "history":
            types = {row.gpu_type for row in pool.prices}
            values = JobValues(pool, self._options, types)

            def on_types(job: Job) -> list[JobOnType]:
                rows = [values.of(job, name, is_whole=True) for name in accepted_types(job, types)]
                return [row for row in rows if row is not None]

            self._see(jobs, on_types)
        return price_settings(pool.prices, self.tops, self._options)

    def _see(self, jobs: Iterable[Job], options_of: Callable[[Job], Iterable[JobOnType]]) -> None:
        """Include the values of jobs submitted since the last round in theta."""
        seen_us = last_us = self._seen_us
        for job in jobs:
            if last_us is None or job.submitted_us > last_us:
                self.tops.see(options_of(job), job.submitted_us)
                seen_us = job.submitted_us if seen_us is None else max(seen_us, job.submitted_us)
        self._seen_us = seen_us

    def publish(self, plan: Plan) -> None:
        """Set a job's plan. Publish it if it differs enough from the last published plan."""
        before = self.plans.get(plan.job)
        self.plans[plan.job] = plan
        if before is None or self._is_other(before, plan):
            self._published[plan.job] = plan
        elif before.start_us >= self.at_us or plan.kind is PlanKind.REFUSED:
            self.plans[plan.job] = before  # nearly the same plan: keep the published one

    def started(self, plan: Plan) -> None:
        """Publish the plan of a job that starts now, and drop it from the memory."""
        self.plans.pop(plan.job, None)
        self._published[plan.job] = plan

    def forget(self, plan_of: int) -> None:
        """Drop the plan of a job that now waits for another reason."""
        self.plans.pop(plan_of, None)

    def published(self) -> tuple[Plan, ...]:
        """Return the plans published in this round, by job."""
        return tuple(self._published[job] for job in sorted(self._published))

    def data(self, waiting: Iterable[int], *, planned: bool) -> dict[str, Any]:
        """Return the memory at the end of a round.

        `waiting`: the jobs without a lease after the round. `planned`: whether any job was planned.
        If so, the interval until the next batch starts now.
        """
        if planned:
            self.batch_us = self.at_us
        kept = sorted(self.plans.keys() & set(waiting))
        self.plans = {job: self.plans[job] for job in kept}
        self._rows = {job: self._row(self.plans[job]) for job in kept}
        return {
            "batch_us": self.batch_us,
            "seen_us": self._seen_us,
            "tops": self.tops.data(),
            "plans": {str(job): row for job, (_, row) in self._rows.items()},
        }

    def _row(self, plan: Plan) -> tuple[Plan, list[Any]]:
        known = self._rows.get(plan.job)
        if known is not None and known[0] is plan:
            return known
        return plan, [
            plan.tenant, plan.kind.value, plan.gpu_type, plan.gpus, plan.start_us, plan.end_us,
            plan.borrowed, plan.price_micro, plan.cost_micro, plan.value_micro,
            plan.needed_micro, plan.lowest_micro,
        ]  # fmt: skip # rows of what belongs together

    def _is_other(self, before: Plan, plan: Plan) -> bool:
        if before.kind is not plan.kind or before.borrowed != plan.borrowed:
            return True
        if before.gpu_type != plan.gpu_type:
            return True
        if abs(before.start_us - plan.start_us) > self._slot_us:
            return True
        return (
            abs(before.price_micro - plan.price_micro) * MOVES_BY > before.price_micro
            or abs(before.needed_micro - plan.needed_micro) * MOVES_BY > before.needed_micro
            or abs(before.lowest_micro - plan.lowest_micro) * MOVES_BY > before.lowest_micro
        )
