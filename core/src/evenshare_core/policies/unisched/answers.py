"""Answers to jobs with deadlines, and the check whether an answer differs from the last one."""

import math
from collections.abc import Iterable

from evenshare_core.deadlines.admission import AdmissionAnswer
from evenshare_core.deadlines.plans import JobLeases
from evenshare_core.domain.deadlines import (
    Deadline,
    DeadlineAnswer,
    DeadlineLimit,
    DeadlineState,
    PlanCause,
    PlannedLease,
)
from evenshare_core.estimation.durations import interruption_variance
from evenshare_core.policies.unisched.demands import DeadlineDemand, phi_of, whole_leases
from evenshare_core.policies.unisched.memory import KeptAnswer
from evenshare_core.policies.unisched.pool import DeadlinePool
from evenshare_core.policies.unisched.rounds import SolvedRound, TypePlan
from evenshare_core.units import ONE_MILLI

STEP_MILLI = 10  # chances are rounded down to a multiple of this
MOST_BLOCKED = 100  # the maximum number of blocked leases in an answer


def missed(pool: DeadlinePool, deadlines: Iterable[Deadline]) -> list[DeadlineAnswer]:
    """Answer the jobs whose last deadline has passed, once per job."""
    rows = []
    for row in deadlines:
        known = pool.memory.answers.get(row.id)
        if row.id not in pool.jobs or (known and known.state is DeadlineState.MISSED):
            continue
        if row.steps[-1].by_us <= pool.at_us:
            until = known.until_us if known else 0
            pool.memory.answers[row.id] = KeptAnswer(DeadlineState.MISSED, until_us=until)
            rows.append(DeadlineAnswer(row.id, pool.jobs[row.id].tenant, DeadlineState.MISSED))
    return rows


class AnswerBook:
    """The answers of one solved round."""

    def __init__(self, solved: SolvedRound) -> None:
        self._solved, self._pool = solved, solved.pool
        self._made: dict[int, DeadlineAnswer] = {}

    def run(self, deadlines: Iterable[Deadline]) -> list[DeadlineAnswer]:
        """Return and store the new answers of jobs whose last deadline has not passed."""
        said = []
        for row in deadlines:
            demand = self._solved.demands.get(row.id)
            known = self._pool.memory.answers.get(row.id)
            if demand is None or (known and known.state is DeadlineState.MISSED):
                continue
            answer = self._answer(row, demand)
            if known is None:
                said.append(answer)
            elif self._is_new(known, answer):
                said.append(_with_cause(answer, self._cause(known, demand)))
            self._remember(known, answer, demand)
        return said

    # ---- the answer to one job ----

    def _answer(self, row: Deadline, demand: DeadlineDemand) -> DeadlineAnswer:
        made = self._solved.plans.get(demand.gpu_type)
        leases = made.rows.get(row.id) if made else None
        if demand.remaining.later_us <= 0 and demand.reward_micro:
            ends = self._ends_in_lease(row, demand)
            if ends is not None:
                return ends
        if demand.selector_job is not None and leases is not None and made is not None:
            return self._planned(demand, leases)
        return self._refused(demand, made)

    def _ends_in_lease(self, row: Deadline, demand: DeadlineDemand) -> DeadlineAnswer | None:
        """Answer a job that ends within its lease. Return None if it misses all its deadlines."""
        pool, job = self._pool, demand.job
        lease = pool.kept.get(job.id)
        phi = phi_of(lease, pool.spread_milli(job.id)) if lease else ONE_MILLI
        left_us = -(-demand.remaining.left_us * ONE_MILLI // phi)
        end_us = min(pool.at_us + left_us, demand.remaining.until_us)
        step = next((one for one in row.steps if one.by_us >= end_us), None)
        if step is None:
            return None
        return DeadlineAnswer(
            job.id, job.tenant, DeadlineState.PLANNED, step.by_us,
            min(step.reward_micro, demand.reward_micro), demand.gpu_type, job.gpus,
            len(lease.placement) == 1 if lease else True,
            (PlannedLease(pool.at_us, max(end_us, pool.at_us + 1)),),
            self._chance(demand, step.by_us - end_us, 1, 1, phi),
        )  # fmt: skip # rows of what belongs together

    def _planned(self, demand: DeadlineDemand, row: JobLeases) -> DeadlineAnswer:
        job = demand.job
        dated = demand.dated[row.step]
        end_us = self._end_us(demand, row)
        leases = self._leases(demand, row, end_us)
        slack_us = dated.by_us - end_us - dated.short_us
        phi = row.option.phi_milli
        chance = self._chance(demand, slack_us, len(row.slots), dated.deadline, phi)
        return DeadlineAnswer(
            job.id, job.tenant, DeadlineState.PLANNED, dated.by_us, dated.reward_micro,
            demand.gpu_type, job.gpus, self._is_on_one_node(demand, row), leases, chance,
        )  # fmt: skip # rows of what belongs together

    def _is_on_one_node(self, demand: DeadlineDemand, row: JobLeases) -> bool:
        """Return whether the job is on one node, by its placement if its lease begins now."""
        placed = self._solved.placed.get(demand.gpu_type)
        gpus = placed.gpus.get(demand.job.id) if placed else None
        return row.option.one_node if gpus is None else len(gpus) == 1

    def _early_us(self, demand: DeadlineDemand) -> int:
        """Return how much earlier the current lease ends than a whole number of leases from now."""
        pool = self._pool
        holds_us = demand.remaining.until_us - pool.at_us
        return whole_leases(holds_us, pool.lease_us) * pool.lease_us - holds_us

    def _end_us(self, demand: DeadlineDemand, row: JobLeases) -> int:
        pool, dated = self._pool, demand.dated[row.step]
        work_us = -(-dated.work_us * ONE_MILLI // row.option.phi_milli)
        if len(row.slots) * pool.lease_us < work_us:  # the job continues after the horizon
            return dated.by_us
        last_us = work_us - (whole_leases(work_us, pool.lease_us) - 1) * pool.lease_us
        end_us = pool.at_us + row.slots[-1] * pool.lease_us + last_us
        return min(end_us - self._early_us(demand), dated.by_us)

    def _leases(
        self, demand: DeadlineDemand, row: JobLeases, end_us: int
    ) -> tuple[PlannedLease, ...]:
        pool = self._pool
        rows: list[PlannedLease] = []
        if demand.remaining.until_us > pool.at_us:
            rows.append(PlannedLease(pool.at_us, demand.remaining.until_us))
        first_us = pool.at_us - self._early_us(demand)
        for slot in row.slots:
            start = first_us + slot * pool.lease_us
            end = min(start + pool.lease_us, end_us)
            if end <= start:
                continue
            if rows and rows[-1].end_us == start:
                rows[-1] = PlannedLease(rows[-1].start_us, end)
            else:
                rows.append(PlannedLease(start, end))
        return tuple(rows)

    def _chance(
        self, demand: DeadlineDemand, slack_us: int, leases: int, until: int, phi_milli: int
    ) -> int | None:
        """Return the chance, in thousandths, that the job ends in time.

        The normally distributed errors are those of the remaining work, whose relative error does
        not depend on speed, and of the number of interruptions. The chance is rounded down, so
        100 % means that the job certainly ends in time.
        """
        row = self._pool.estimates.get(demand.job.id)
        if row is None or demand.job.estimate_us is None:
            return None
        error_us = demand.remaining.deviation_us * ONE_MILLI // phi_milli
        count = interruption_variance(leases, until)
        variance = error_us**2 + row.overhead_us**2 * count.numerator // count.denominator
        if not variance:
            return ONE_MILLI if slack_us >= 0 else 0
        share = (1 + math.erf(slack_us / math.sqrt(2 * variance))) / 2
        return int(share * ONE_MILLI / STEP_MILLI) * STEP_MILLI

    def _refused(self, demand: DeadlineDemand, made: TypePlan | None) -> DeadlineAnswer:
        pool, job = self._pool, demand.job
        limit, answer = self._limit(demand, made)
        earliest = None
        blocked: tuple[PlannedLease, ...] = ()
        if answer is not None:
            if answer.earliest is not None:
                earliest = pool.at_us + answer.earliest * pool.lease_us
            slots = [slot for slot, _ in answer.blocked[:MOST_BLOCKED]]
            starts = [pool.at_us + slot * pool.lease_us for slot in slots]
            blocked = tuple(PlannedLease(start, start + pool.lease_us) for start in starts)
        return DeadlineAnswer(
            job.id, job.tenant, DeadlineState.REFUSED, gpu_type=demand.gpu_type, gpus=job.gpus,
            limit=limit, blocked=blocked, earliest_us=earliest,
        )  # fmt: skip # rows of what belongs together

    def _limit(
        self, demand: DeadlineDemand, made: TypePlan | None
    ) -> tuple[DeadlineLimit, AdmissionAnswer | None]:
        job = demand.job
        most = self._solved.admission.most(job.tenant, demand.gpu_type)
        if made is None or job.gpus > self._pool.capacity.get(demand.gpu_type, 0):
            return DeadlineLimit.SIZE, None
        if most is not None and job.gpus > most:
            return DeadlineLimit.QUOTA, None
        if not demand.reward_micro:
            return DeadlineLimit.BUDGET, None
        answer = made.refused.get(job.id)
        if answer is not None and answer.limit is not None:
            return answer.limit, answer
        if demand.selector_job is None:
            return DeadlineLimit.LENGTH, None
        is_over = job.id in made.over_quota
        return DeadlineLimit.QUOTA if is_over else DeadlineLimit.CAPACITY, None

    # ---- new answers ----

    def _is_new(self, known: KeptAnswer, answer: DeadlineAnswer) -> bool:
        if (known.state, known.by_us, known.limit) != (answer.state, answer.by_us, answer.limit):
            return True
        return abs(_end_of(answer) - known.end_us) > self._pool.lease_us

    def _cause(self, known: KeptAnswer, demand: DeadlineDemand) -> PlanCause:
        pool = self._pool
        if known.capacity != pool.capacity.get(demand.gpu_type, 0):
            return PlanCause.CAPACITY
        if known.most != self._most(demand):
            return PlanCause.QUOTA
        if known.whole_us != demand.remaining.whole_us:
            return PlanCause.ESTIMATE
        return PlanCause.LATE if demand.remaining.is_late else PlanCause.DEMAND

    def _most(self, demand: DeadlineDemand) -> int:
        most = self._solved.admission.most(demand.job.tenant, demand.gpu_type)
        return -1 if most is None else most

    def _remember(
        self, known: KeptAnswer | None, answer: DeadlineAnswer, demand: DeadlineDemand
    ) -> None:
        """Store the answer. If the answer is not new, keep the published end."""
        end_us = _end_of(answer)
        if known is not None and not self._is_new(known, answer):
            end_us = known.end_us
        made = self._solved.plans.get(demand.gpu_type)
        row = made.rows.get(demand.job.id) if made else None
        self._pool.memory.answers[demand.job.id] = KeptAnswer(
            answer.state, answer.by_us, answer.limit, end_us,
            known.until_us if known else 0, known.lost_us if known else 0, self._pool.at_us,
            demand.remaining.whole_us, self._most(demand),
            self._pool.capacity.get(demand.gpu_type, 0),
            (*row.option.cells, int(row.option.one_node)) if row else (),
        )  # fmt: skip # rows of what belongs together


def _end_of(answer: DeadlineAnswer) -> int:
    if answer.state is not DeadlineState.PLANNED:
        return 0
    return answer.leases[-1].end_us if answer.leases else answer.by_us


def _with_cause(answer: DeadlineAnswer, cause: PlanCause) -> DeadlineAnswer:
    return DeadlineAnswer(
        answer.job, answer.tenant, answer.state, answer.by_us, answer.reward_micro,
        answer.gpu_type, answer.gpus, answer.one_node, answer.leases, answer.chance_milli,
        answer.limit, answer.blocked, answer.earliest_us, cause.value,
    )  # fmt: skip # rows of what belongs together
