"""What the market remembers: its last batch, what jobs were worth, and the plans it made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from evenshare_core.domain.decision import Plan, PlanKind
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.market.job_values import JobOnType
from evenshare_core.policies.market.options import MarketOptions
from evenshare_core.policies.market.thetas import TopValues

# Of a published price, how much it moves before it is published again: a tenth.
MOVES_BY = 10


class MarketMemory:
    """The memory of a round, and what becomes of it in it.

    `plans`: of jobs that wait, as they were published last. A round in which nobody waits leaves
    nothing in it: such rounds may be left out.
    """

    def __init__(self, snapshot: Snapshot, options: MarketOptions) -> None:
        data = snapshot.memory
        self._at_us, self._slot_us = snapshot.at_us, snapshot.lease_us
        self.batch_us: int | None = data.get("batch_us")
        self._seen_us: int | None = data.get("seen_us")  # the last submission that counts in theta
        self.tops = TopValues(data.get("tops", {}), snapshot.at_us)
        self.plans: dict[int, Plan] = {}
        for job, rest in data.get("plans", {}).items():
            tenant, kind, *fields = rest
            self.plans[int(job)] = Plan(int(job), tenant, PlanKind(kind), *fields)
        last_us = self.batch_us
        # Where rounds come with events alone (some simulations), each one is a batch: after the
        # last event there would be none to wait for.
        is_over = last_us is None or snapshot.at_us - last_us >= options.interval_us
        self.is_batch = is_over or not snapshot.round_us
        self._published: dict[int, Plan] = {}

    def came_since(self, submitted_us: int) -> bool:
        """Whether a job came after the last batch."""
        return self.batch_us is None or submitted_us > self.batch_us

    def see(self, jobs: Iterable[Job], options_of: Callable[[Job], Iterable[JobOnType]]) -> None:
        """Count in theta what jobs are worth that were submitted since the last round."""
        seen_us = last_us = self._seen_us
        for job in jobs:
            if last_us is None or job.submitted_us > last_us:
                self.tops.see(options_of(job), job.submitted_us)
                seen_us = job.submitted_us if seen_us is None else max(seen_us, job.submitted_us)
        self._seen_us = seen_us

    def publish(self, plan: Plan) -> None:
        """A job's plan of this round; published where it says something else than the last one."""
        before = self.plans.get(plan.job)
        self.plans[plan.job] = plan
        if before is None or self._is_other(before, plan):
            self._published[plan.job] = plan
        elif before.start_us >= self._at_us or plan.kind is PlanKind.REFUSED:
            self.plans[plan.job] = before  # what is said again stays as it was said

    def started(self, plan: Plan) -> None:
        """A job starts now: that is published always, and nothing of it is remembered."""
        self.plans.pop(plan.job, None)
        self._published[plan.job] = plan

    def forget(self, plan_of: int) -> None:
        """A job has no plan: something else keeps it waiting."""
        self.plans.pop(plan_of, None)

    def published(self) -> tuple[Plan, ...]:
        """What this round says, by job."""
        return tuple(self._published[job] for job in sorted(self._published))

    def data(self, waiting: Iterable[int], *, planned: bool) -> dict[str, Any]:
        """What is kept; `waiting`: the jobs that hold nothing after the round.

        `planned`: whether there was a job to plan; the time to the next batch begins with that.
        """
        batch_us = self._at_us if planned else self.batch_us
        rows: dict[str, Any] = {}
        for job in sorted(self.plans.keys() & set(waiting)):
            plan = self.plans[job]
            rows[str(job)] = [
                plan.tenant, plan.kind.value, plan.gpu_type, plan.gpus, plan.start_us, plan.end_us,
                plan.borrowed, plan.price_micro, plan.cost_micro, plan.value_micro,
                plan.needed_micro, plan.lowest_micro,
            ]  # fmt: skip
        kept = {"tops": self.tops.data(), "plans": rows}
        return {"batch_us": batch_us, "seen_us": self._seen_us, **kept}

    def _is_other(self, before: Plan, plan: Plan) -> bool:
        if (before.kind, before.gpu_type, before.borrowed) != (
            plan.kind, plan.gpu_type, plan.borrowed,
        ):  # fmt: skip
            return True
        if abs(before.start_us - plan.start_us) > self._slot_us:
            return True
        pairs = (
            (before.price_micro, plan.price_micro),
            (before.needed_micro, plan.needed_micro),
            (before.lowest_micro, plan.lowest_micro),
        )
        return any(abs(old - new) * MOVES_BY > old for old, new in pairs)
