"""GENIE: the job with the least slack before its deadline goes first, without preemption.

Source: GENIE (Z. Chen et al., "Deep Learning Research and Development Platform", IEEE TPDS 2020),
as UniSched compares with it in V-A. SLO jobs with the smallest laxity have the highest priority,
each on its best placement. Best-effort jobs, which GENIE does not have, get the lowest.

| paper | here | unit |
|---|---|---|
| deadline | the first deadline that can still be met, or the last one: `laxity_us` | us |
| predicted time to finish | estimate - GPU-time received / gang | us |
| laxity | deadline - now - time to finish | us |

Expired leases are renewed before other jobs are placed, so that a job runs to its end. Jobs that do
not fit block no other job. Best-effort jobs are served in order of submission. A job whose last
deadline has passed is a best-effort job.

Departures, each with its test in tests/papers/test_baseline_deadlines.py:

- Gangs are fixed: other numbers of GPUs for a job are not tried. Its best placement is the
  consolidated one.
- Time to finish comes from the job's estimate, not from a model of its speed that is fitted
  offline. A job without an estimate is assumed to need `unknown_s`.
- If by its estimate a job can no longer meet any deadline, it comes after the jobs that can. By the
  paper's rule, it would have the smallest laxity of all (`late_first`).

All orders end in (submitted, id).
"""

from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta

from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.options import SPREAD_TEXT, Options, parse_options
from evenshare_core.policies.orders.base import OrderedPolicy
from evenshare_core.policies.policy import Private, Traits
from evenshare_core.policies.shared.deadline_jobs import laxity_us, steps_left
from evenshare_core.policies.shared.estimates import UNKNOWN_S, UnknownSeconds, left_us
from evenshare_core.policies.shared.ordered import QueuedJob, QueueRule, by_arrival

LAXITY, LATE, BEST_EFFORT = "least_laxity", "late", "best_effort"
CLASSES = (LAXITY, LATE, BEST_EFFORT)


class GenieOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    late_first: Annotated[
        bool,
        Meta(
            description="A job that cannot meet its deadline goes first, because it has the"
            " least slack. Off: it goes after jobs that can, and before best-effort jobs."
        ),
    ] = False
    unknown_s: UnknownSeconds = UNKNOWN_S
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False


class Genie(OrderedPolicy):
    name = "genie"
    version = "1"
    title = "Least laxity first"
    promise = "Jobs with the least slack before their deadline start first, other jobs after them."
    suits = "Deadlines without preemption; jobs need estimates."
    order_text = (
        "Jobs with deadlines, least slack first; then the other jobs in the order of submission."
    )
    note_texts = MappingProxyType(
        {
            LAXITY: "Of the jobs that fit, it had the least slack before its deadline.",
            LATE: "Its deadlines can no longer be met, like those of all jobs that fit.",
            BEST_EFFORT: "It has no deadline; no job with one fits.",
        }
    )
    traits = Traits(needs_estimates=True)
    also_reads = frozenset({Private.DEADLINES})
    options_type = GenieOptions

    def rule(self, snapshot: Snapshot) -> QueueRule:
        options = parse_options(GenieOptions, snapshot.options)
        at_us = snapshot.at_us
        by_job = steps_left(snapshot.deadlines, at_us)

        def key(one: QueuedJob) -> tuple[int, int]:
            """Return the index of the job's class in `CLASSES`, and its laxity."""
            steps = by_job.get(one.job.id)
            if steps is None:
                return CLASSES.index(BEST_EFFORT), 0
            left = left_us(one.job, one.sums, at_us, options.unknown_s)
            laxity = laxity_us(steps, at_us, left)
            is_late = laxity < 0 and not options.late_first
            return CLASSES.index(LATE if is_late else LAXITY), laxity

        def order(one: QueuedJob) -> tuple[Any, ...]:
            return (*key(one), *by_arrival(one))

        return QueueRule(
            order=order,
            spread=options.spread,
            note=lambda one: CLASSES[key(one)[0]],
        )


POLICY = Genie()
