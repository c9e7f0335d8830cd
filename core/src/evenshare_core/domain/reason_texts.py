"""The catalogue of texts for reasons, for pages, REST and the command line.

An entry's id is its table and code, as `ENDINGS.moved`. `SupersededReason` contains its texts
itself, because bundles contain them.
"""

from __future__ import annotations

from dataclasses import dataclass

from evenshare_core.domain.deadlines import DeadlineLimit, PlanCause
from evenshare_core.domain.reasons import EndReason, PreemptionRule, Reason


@dataclass(frozen=True, slots=True)
class ReasonWording:
    """The texts of a reason.

    - `text`: its name.
    - `sentence`: a format string over the skip's numbers, in which "{free:was|were}" selects the
      singular or the plural; `others` are alternatives over other numbers. The first sentence whose
      numbers are known is shown.
    - `plain`: shown if no sentence has its numbers; empty if `sentence` has no numbers.
    - `next_step`: advice, without numbers, because those of a skip are of its round.
    - `kind`: how a timeline draws the wait: turn, price or blocked.
    - `now`: the sentence for a dry run's present numbers, if it differs.
    - `early`: the sentence for a job whose lease the round ended before its expiry.
    """

    text: str
    sentence: str
    plain: str
    next_step: str
    kind: str = "blocked"
    now: str = ""
    others: tuple[str, ...] = ()
    early: str = ""


# The default policy ranks tenants by their sums (in its tight preset by the GPUs that they hold),
# then the jobs of all tenants.
_CAME_FIRST = (
    "Its {needed} {needed:GPU was|GPUs were} free when the round began, but other jobs came first,"
    " and what was left did not fit."
)
RECEIVED = (
    f"{_CAME_FIRST} Tenants that received less than they deserve are served first: over the"
    " policy's window its own received {received_gpu} of {deserved_gpu} GPU-hours, a ratio of"
    " {own_ratio} with what the round gave to it."
)
ATTAINED = (
    "Then jobs that received least go first, and long ones last: it has received {attained_gpu}"
    " GPU-hours."
)
HELD = (
    f"{_CAME_FIRST} Tenants that hold less than their share are served first: its own holds"
    " {held} {held:GPU|GPUs} of a share of {share}."
)

_CLOSED_NODES = "Nodes that are drained, down or in maintenance do not count."

WORDINGS: dict[str, ReasonWording] = {
    Reason.LEASE_TURN: ReasonWording(
        "lower priority now",
        # Not "others had received less": a smaller job of a tenant with more may have fitted
        # what was left.
        "Its {needed} {needed:GPU was|GPUs were} free when the round began. Tenants that have"
        " received less of"
        " their fair share took the free GPUs first; its own has received {own_rho}"
        " \N{MULTIPLICATION SIGN} its fair share, and what was left did not fit. Smaller jobs may"
        " still have.",
        "Its GPUs were free when the round began, but jobs with a higher priority took them.",
        "It moves up as leases end; each round decides anew.",
        "turn",
        others=(f"{RECEIVED} {ATTAINED}", RECEIVED, HELD),
        early="Its lease ended before its expiry, to make room for another job.",
    ),
    Reason.TENANT_PASSED_OVER: ReasonWording(
        "behind the first job",
        "The first job of the queue did not fit, so the queue stood still this round.",
        "",
        "It moves when the first job starts or is cancelled.",
        "turn",
    ),
    Reason.NO_FREE_GPUS: ReasonWording(
        "no free GPUs",
        # A round counts the leases that were due as free: it may renew them.
        "It needs {needed} {needed:GPU|GPUs} at once; {free} {free:was|were} free, or up for"
        " renewal, when the round"
        " began.",
        "Fewer GPUs were free than it needs at once.",
        "It starts when leases end; a smaller job fits sooner.",
        now="It needs {needed} {needed:GPU|GPUs} at once; {free} {free:is|are} free now.",
    ),
    Reason.FRAGMENTED: ReasonWording(
        "no node fits",
        "It needs {needed} {needed:GPU|GPUs} side by side; when the round began, {free}"
        " {free:was|were} free or up for"
        " renewal, at most {largest_hole} of them on one node.",
        "Enough GPUs were free, but not side by side.",
        "It starts when enough of one node frees up; a smaller job fits sooner.",
    ),
    Reason.CPUS_OR_MEMORY: ReasonWording(
        "no CPUs or memory",
        "It needs {resources} beside its GPUs; enough GPUs were free, but not so much beside them.",
        "Enough GPUs were free, but too few CPUs or too little memory beside them.",
        "It starts when nodes have that free; with fewer CPUs or less memory it fits sooner.",
    ),
    Reason.RESERVED_FOR_GANG: ReasonWording(
        "kept for a larger job",
        "{free} {free:GPU was|GPUs were} left, {held_back} more {held_back:is|are} kept for a job"
        " that has waited too long.",
        "Free GPUs are kept for a larger job that has waited too long.",
        "It starts after that job, or elsewhere as leases end.",
    ),
    Reason.RESERVED_QUOTA: ReasonWording(
        "quota that is not lent",
        "{unused} {unused:GPU was|GPUs were} free, but their owners do not lend {kept} of them.",
        "The free GPUs belong to tenants that do not lend them.",
        "It starts when own quota or lent quota is free.",
    ),
    Reason.QUOTA_LIMIT: ReasonWording(
        "borrowing limit",
        "Of a quota of {quota} {quota:GPU|GPUs}, {own} {own:is|are} in use, and {borrowed}"
        " {borrowed:is|are} borrowed; at most"
        " {may_borrow} may be.",
        "The tenant may not borrow more.",
        "It starts when a job of the tenant ends, or with a higher limit.",
    ),
    Reason.PRICE_ABOVE_MAX: ReasonWording(
        "price above the maximum",
        "A GPU-hour costs {price} credits; it waits for a price of {max_price} or less, the most"
        " that the job, or its tenant, pays.",
        "A borrowed GPU-hour costs more than the job, or its tenant, pays at most.",
        "It starts when the price falls or own quota is free.",
        "price",
    ),
    Reason.BUDGET: ReasonWording(
        "budget",
        "A term would cost up to {needed} credits; {spendable} may still be spent.",
        "The tenant's credit does not cover a term of it.",
        "It starts with more credit, or when own quota is free.",
        "price",
    ),
    Reason.PRICE_ABOVE_VALUE: ReasonWording(
        "price above its value",
        "A GPU-hour of {gpu_type} is worth {value} credits to it; the lowest price that there was"
        " for it, with its own GPUs counted, was {price}.",
        "What a GPU-hour is worth to it is below the price of borrowing one.",
        "It starts when the price falls, when own quota is free, or with a higher bid or utility.",
        "price",
    ),
    Reason.PLANNED_LATER: ReasonWording(
        "starts later by its plan",
        "It is planned to start on {gpu_type} at {starts} of pool time: GPUs are in use until then,"
        " or cost less then.",
        "By its plan it starts later: GPUs are in use until then, or cost less then.",
        "It is planned anew again and again: it starts sooner when GPUs are free sooner, or fall in"
        " price where the pool sells what is idle.",
        "turn",
    ),
    Reason.NEXT_BATCH: ReasonWording(
        "waits for the next batch",
        "It came after the batch of {batch}; the next one plans it.",
        "It came after the last batch; the next one plans it.",
        "The next batch plans it; own quota that becomes free starts it before.",
        "turn",
    ),
    # For a round: `scheduling.selectors.jobs.too_large` states whether the pool can ever have as
    # many.
    Reason.TOO_LARGE: ReasonWording(
        "larger than what is schedulable",
        "It needs {needed} {needed:GPU|GPUs}; {capacity} {capacity:was|were} schedulable when the"
        f" round decided. {_CLOSED_NODES}",
        f"It needs more GPUs than are schedulable. {_CLOSED_NODES}",
        "It starts when enough nodes are up, if the pool has as many; a smaller job fits sooner.",
    ),
    Reason.BACKING_OFF: ReasonWording(
        "backing off after losses",
        "Its process was lost soon after its start, {losses} {losses:time|times} in a row. It"
        " may start again at"
        " {until} of pool time; after {limit} such losses it is failed.",
        "Its process was lost soon after its start, so it waits before it may start again.",
        "Look at its log: something ends it from outside, or it ends its own supervisor.",
    ),
    Reason.QUARANTINED: ReasonWording(
        "quarantined",
        "It made the policy fail and is quarantined.",
        "",
        "An operator looks at it.",
    ),
}

# A job that is too large, by what its pool has in addition to the schedulable GPUs.
LARGER_THAN_POOL = ReasonWording(
    "larger than the pool",
    "It needs {needed} {needed:GPU|GPUs}; the pool has {capacity}.",
    "It needs more GPUs than the pool has.",
    "It cannot start as it is: submit it with fewer GPUs.",
    now="It needs {needed} {needed:GPU|GPUs} of one type; the most that it may use are"
    " {capacity} of {gpu_type}.",
)
UNSCHEDULABLE = ReasonWording(
    "larger than what is schedulable now",
    "It needs {needed} {needed:GPU|GPUs}; of the {gpus} of {gpu_type}, {away} {away:is|are}"
    " drained, down or in maintenance.",
    "It needs more GPUs than are schedulable now: nodes are drained, down or in maintenance.",
    "It starts when enough of them are up again; with fewer GPUs it fits sooner.",
)

# The reason why a lease ended, as the end of the sentence "The lease ended: ...".
ENDINGS: dict[str, str] = {
    EndReason.PREEMPTED.value: "preempted with notice, before its lease expired",
    EndReason.MOVED.value: "moved with notice, before its lease expired",
    EndReason.NOT_RENEWED.value: "preempted at lease end, for jobs with a higher priority",
    EndReason.FINISHED.value: "the job finished",
    EndReason.FAILED.value: "the job failed",
    EndReason.CANCELLED.value: "the job was cancelled",
    EndReason.PROFILED.value: "the profiling run had run as long as it may",
    EndReason.NODE_LOST.value: "its node was lost",
    EndReason.DRAINED.value: "its node took no leases any more: drained, down or in maintenance",
    EndReason.PRICE_ABOVE_MAX.value: "the price rose above the job's maximum",
    EndReason.PRICE_ABOVE_VALUE.value: "another term cost more than it was worth to the job",
    EndReason.BUDGET.value: "the tenant's credit did not cover another term",
    EndReason.LOST.value: "its process was lost: its supervisor or its node failed,"
    " or its cluster no longer knew it",
    EndReason.QUARANTINED.value: "the job was quarantined",
}


# The rule by which a lease ended early: its name, and the reason with its beneficiary.
RULES: dict[str, tuple[str, str]] = {
    PreemptionRule.GUARANTEE.value: ("guarantee", "{who} was below its quota"),
    PreemptionRule.PAYS.value: ("pays", "a job of {who} gains more than this one loses"),
    PreemptionRule.DEFRAGMENT.value: (
        "defragmentation",
        "it makes room on its node for a job of {who}",
    ),
    PreemptionRule.GANG.value: (
        "large gang",
        "a job of {who} that needs several nodes came before this one",
    ),
}

# The obstacle to a deadline, as a half sentence.
LIMITS: dict[str, str] = {
    DeadlineLimit.LENGTH: "it takes longer than that, even on a pool of its own",
    DeadlineLimit.QUOTA: "its tenant may not have so many GPUs until then",
    DeadlineLimit.CAPACITY: "others have the GPUs until then",
    DeadlineLimit.SIZE: "the pool never has so many GPUs free at once",
    DeadlineLimit.BUDGET: "other jobs of its tenant have all the points that it may ask for",
}
# The cause of a moved plan.
CAUSES: dict[str, str] = {
    PlanCause.CAPACITY: "the pool has more or fewer GPUs of its type",
    PlanCause.QUOTA: "its tenant may have more or fewer GPUs",
    PlanCause.ESTIMATE: "its run time is estimated anew",
    PlanCause.LATE: "it runs longer than estimated",
    PlanCause.DEMAND: "other jobs came, went or moved",
}
# The reason why a refusal has no earliest deadline.
NONE_WOULD_DO: dict[str, str] = {
    DeadlineLimit.BUDGET: "No later deadline would do while they have them.",
    DeadlineLimit.SIZE: "No deadline would do on the pool as it is.",
    DeadlineLimit.QUOTA: "No deadline would do with the quota as it is.",
}
# The reason why a lease has no GPU utilization.
GPU_STATES: dict[str, str] = {
    "absent": "nvidia-smi is not there on its node",
    "failed": "nvidia-smi failed there, and is not asked any more",
    "asked": "nvidia-smi has not answered so far",
    "none": "CUDA_VISIBLE_DEVICES gave it no GPU, or a part of one (MIG), of which nothing is told",
}
