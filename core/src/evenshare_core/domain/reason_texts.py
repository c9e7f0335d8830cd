"""The catalogue of texts for reasons, for pages, REST and the command line.

An entry's id is its table and code, such as `ENDINGS.moved`. `SupersededReason` contains its texts
itself, because bundles contain them.
"""

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
    - `next_step`: advice without numbers, because a skip's numbers are of a past round.
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
    "Its {needed} {needed:GPU was|GPUs were} free at the start of the round, but jobs ahead of it"
    " took GPUs. It did not fit into the rest."
)
RECEIVED = (
    f"{_CAME_FIRST} Tenants furthest below their fair share are served first. Over the policy's"
    " window its tenant received {received_gpu} of {deserved_gpu} GPU-hours, a ratio of"
    " {own_ratio} including this round."
)
ATTAINED = (
    "Within that, jobs that received least go first and long jobs last: it has received"
    " {attained_gpu} GPU-hours."
)
HELD = (
    f"{_CAME_FIRST} Tenants that hold less than their share are served first: its tenant holds"
    " {held} {held:GPU|GPUs} of a share of {share}."
)

_CLOSED_NODES = "Nodes that are drained, down or in maintenance do not count."

WORDINGS: dict[str, ReasonWording] = {
    Reason.LEASE_TURN: ReasonWording(
        "behind higher-priority jobs",
        # Does not say "others had received less": the remaining GPUs may have fitted a smaller job
        # of a tenant that had received more.
        "Its {needed} {needed:GPU was|GPUs were} free at the start of the round. Jobs ahead of it"
        " took free GPUs first: jobs of tenants further below their fair share, or of its own"
        " tenant. Its tenant has received {own_rho} \N{MULTIPLICATION SIGN} its fair share. The job"
        " did not fit into the rest; a smaller job may have.",
        "Its GPUs were free at the start of the round, but higher-priority jobs took them.",
        "It moves up as leases end; each round decides again.",
        "turn",
        others=(f"{RECEIVED} {ATTAINED}", RECEIVED, HELD),
        early="Its lease ended before its expiry, to make room for another job.",
    ),
    Reason.TENANT_PASSED_OVER: ReasonWording(
        "behind the first job",
        "The first job of the queue did not fit, so no job behind it started this round.",
        "",
        "It moves when the first job starts or is cancelled.",
        "turn",
    ),
    Reason.NO_FREE_GPUS: ReasonWording(
        "no free GPUs",
        # A round counts the GPUs of due leases as free, because it may renew these leases.
        "It needs {needed} {needed:GPU|GPUs} at once; {free} {free:was|were} free, or up for"
        " renewal, at the start of the round.",
        "Fewer GPUs were free than it needs.",
        "It starts when leases end; a smaller job fits sooner.",
        now="It needs {needed} {needed:GPU|GPUs} at once; {free} {free:is|are} free now.",
    ),
    Reason.FRAGMENTED: ReasonWording(
        "no node fits",
        "It needs {needed} {needed:GPU|GPUs} together. At the start of the round {free}"
        " {free:was|were} free or up for renewal, at most {largest_hole} of them on one node.",
        "Enough GPUs were free, but not together.",
        "It starts when enough GPUs of one node are free; a smaller job fits sooner.",
    ),
    Reason.CPUS_OR_MEMORY: ReasonWording(
        "no CPUs or memory",
        "It needs {resources} in addition to its GPUs. Enough GPUs were free, but not enough"
        " CPUs or memory on their nodes.",
        "Enough GPUs were free, but too few CPUs or too little memory on their nodes.",
        "It starts when a node has enough of all; with fewer CPUs or less memory it fits sooner.",
    ),
    Reason.RESERVED_FOR_GANG: ReasonWording(
        "reserved for a larger job",
        "{free} {free:GPU was|GPUs were} left; {held_back} more {held_back:is|are} reserved for"
        " a larger job that has waited too long.",
        "Free GPUs are reserved for a larger job that has waited too long.",
        "It starts after that job, or on other nodes as leases end.",
    ),
    Reason.RESERVED_QUOTA: ReasonWording(
        "quota not lent",
        "{unused} {unused:GPU was|GPUs were} free, but their owners do not lend {kept} of them.",
        "The free GPUs belong to tenants that do not lend them.",
        "It starts when its tenant's own quota or lent quota is free.",
    ),
    Reason.QUOTA_LIMIT: ReasonWording(
        "borrowing limit",
        "Of a quota of {quota} {quota:GPU|GPUs}, {own} {own:is|are} in use, and {borrowed}"
        " {borrowed:is|are} borrowed; the limit is {may_borrow}.",
        "The tenant may not borrow more.",
        "It starts when a job of the tenant ends, or with a higher limit.",
    ),
    Reason.PRICE_ABOVE_MAX: ReasonWording(
        "price above the maximum",
        "A GPU-hour costs {price} credits; the maximum of the job or its tenant is {max_price}.",
        "A borrowed GPU-hour costs more than the maximum of the job or its tenant.",
        "It starts when the price falls or own quota is free.",
        "price",
    ),
    Reason.BUDGET: ReasonWording(
        "budget",
        "A term would cost up to {needed} credits; {spendable} may be spent.",
        "The tenant's credit does not cover a term.",
        "It starts with more credit, or when own quota is free.",
        "price",
    ),
    Reason.PRICE_ABOVE_VALUE: ReasonWording(
        "price above its value",
        "The job values a GPU-hour of {gpu_type} at {value} credits; the lowest price, with its"
        " own GPUs counted, was {price}.",
        "The job values a GPU-hour below the price of borrowing it.",
        "It starts when the price falls or own quota is free, or with a higher bid or utility.",
        "price",
    ),
    Reason.PLANNED_LATER: ReasonWording(
        "scheduled for later",
        "Scheduled for {starts}, pool time, on {gpu_type}: GPUs are in use until then, or cost"
        " less then.",
        "It is scheduled for a later time: GPUs are in use until then, or cost less then.",
        "Its plan is updated regularly: it starts sooner if GPUs become free sooner, or if the"
        " price of idle GPUs falls.",
        "turn",
    ),
    Reason.PROMISED: ReasonWording(
        "start promised",
        "It starts by {starts}, pool time, at the latest: {needed} {needed:GPU|GPUs} of {gpu_type}"
        " {needed:is|are} promised to it. Jobs that still run on them get their notice then.",
        "GPUs are promised to it; its page states the latest start.",
        "It starts sooner if GPUs become free sooner.",
        "turn",
    ),
    Reason.NEXT_BATCH: ReasonWording(
        "waits for the next batch",
        "It arrived after the batch of {batch}.",
        "It arrived after the last batch.",
        "The next batch plans it; it starts sooner if own quota becomes free.",
        "turn",
    ),
    # Describes one round: `scheduling.selectors.jobs.too_large` states whether the pool can ever
    # have that many GPUs.
    Reason.TOO_LARGE: ReasonWording(
        "larger than the schedulable GPUs",
        "It needs {needed} {needed:GPU|GPUs}; {capacity} {capacity:was|were} schedulable"
        f" in this round. {_CLOSED_NODES}",
        f"It needs more GPUs than are schedulable. {_CLOSED_NODES}",
        "It starts when enough nodes are up, if the pool has enough; a smaller job fits sooner.",
    ),
    Reason.BACKING_OFF: ReasonWording(
        "backing off after losses",
        "Its process was lost soon after its start, {losses} {losses:time|times} in a row. It"
        " may start again at {until}, pool time; after {limit} such losses it fails.",
        "Its process was lost soon after its start, so its restart is delayed.",
        "Check its log: another process kills it, or it kills its own supervisor.",
    ),
    Reason.QUARANTINED: ReasonWording(
        "quarantined",
        "The policy failed with it, so it is quarantined.",
        "",
        "An operator must release it.",
    ),
    Reason.HELD_BY_TENANT: ReasonWording(
        "held",
        "Its tenant holds it.",
        "",
        "Release it, and it arrives in the queue anew.",
    ),
    Reason.HELD_BY_OPERATOR: ReasonWording(
        "held by an operator",
        "An operator holds it.",
        "",
        "Only an operator can release it.",
    ),
    Reason.HELD_IDLE: ReasonWording(
        "held after idle GPUs",
        "Its last lease was not renewed, because its GPUs were idle.",
        "",
        "Find out why it did not use its GPUs, then release it.",
    ),
    Reason.HELD_FOR_JOB: ReasonWording(
        "waits for another job",
        "Another job must end first.",
        "",
        "It arrives in the queue when that job has ended.",
    ),
    Reason.HELD_FOR_SWEEP: ReasonWording(
        "waits for its sweep",
        "As many jobs of its sweep as may run at once are under way.",
        "",
        "It arrives in the queue when one of them ends.",
    ),
    Reason.NOT_BEFORE: ReasonWording(
        "not before its time",
        "It may start at {until}, pool time, at the earliest, as its tenant wishes.",
        "It may not start yet, as its tenant wishes.",
        "It arrives in the queue at that time.",
    ),
}

# Texts for a job that is too large, depending on the GPUs that its pool has but cannot schedule
# now.
LARGER_THAN_POOL = ReasonWording(
    "larger than the pool",
    "It needs {needed} {needed:GPU|GPUs}; the pool has {capacity}.",
    "It needs more GPUs than the pool has.",
    "It can never start: submit it with fewer GPUs.",
    now="It needs {needed} {needed:GPU|GPUs} of one type; the most available to it are"
    " {capacity} of {gpu_type}.",
)
UNSCHEDULABLE = ReasonWording(
    "larger than the schedulable GPUs now",
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
    EndReason.PROFILED.value: "the profiling run reached its time limit",
    EndReason.NODE_LOST.value: "its node was lost",
    EndReason.DRAINED.value: "its node was drained, down or in maintenance",
    EndReason.PRICE_ABOVE_MAX.value: "the price rose above the job's maximum",
    EndReason.PRICE_ABOVE_VALUE.value: "another term cost more than its value to the job",
    EndReason.BUDGET.value: "the tenant's credit did not cover another term",
    EndReason.LOST.value: "its process was lost: its supervisor or its node failed, or its"
    " cluster no longer listed it",
    EndReason.QUARANTINED.value: "the job was quarantined",
    EndReason.IDLE.value: "not renewed, because it was idle",
}


# The rule by which a lease ended early: its name, and the reason with its beneficiary.
RULES: dict[str, tuple[str, str]] = {
    PreemptionRule.GUARANTEE.value: ("guarantee", "{who} was below its quota"),
    PreemptionRule.PAYS.value: ("pays", "a job of {who} gains more than this one loses"),
    PreemptionRule.DEFRAGMENT.value: (
        "defragmentation",
        "it made room on its node for a job of {who}",
    ),
    PreemptionRule.GANG.value: (
        "large gang",
        "a job of {who} that needs several nodes was ahead of this one",
    ),
    PreemptionRule.PROMISE.value: ("promise", "its GPUs were promised to a job of {who}"),
}

# The obstacle to a deadline, as half a sentence.
LIMITS: dict[str, str] = {
    DeadlineLimit.LENGTH: "it takes longer, even on an empty pool",
    DeadlineLimit.QUOTA: "its tenant's quota and borrowing limit allow fewer GPUs until then",
    DeadlineLimit.CAPACITY: "other jobs use the GPUs until then",
    DeadlineLimit.SIZE: "the pool never has enough GPUs free at once",
    DeadlineLimit.BUDGET: "other jobs of its tenant use all of its points",
}
# The cause that moved a plan.
CAUSES: dict[str, str] = {
    PlanCause.CAPACITY: "the pool has more or fewer GPUs of its type",
    PlanCause.QUOTA: "its tenant may have more or fewer GPUs",
    PlanCause.ESTIMATE: "its run time estimate changed",
    PlanCause.LATE: "it runs longer than estimated",
    PlanCause.DEMAND: "other jobs came, went or moved",
}
# The reason why a refusal names no earliest deadline.
NONE_WOULD_DO: dict[str, str] = {
    DeadlineLimit.BUDGET: "No later deadline is feasible while they do.",
    DeadlineLimit.SIZE: "No deadline is feasible on the present pool.",
    DeadlineLimit.QUOTA: "No deadline is feasible with the present quota.",
}
# The reason why a lease has no GPU utilisation.
GPU_STATES: dict[str, str] = {
    "absent": "nvidia-smi is not installed on its node",
    "failed": "nvidia-smi failed on its node and is no longer called",
    "asked": "nvidia-smi has not answered yet",
    "none": "CUDA_VISIBLE_DEVICES gave it no GPU, or only a MIG slice",
}
# Errors with values, as their templates. A page compares a stored text with them.
TOO_MANY_TYPES = "{count} job types are more than the {most} that a round measures"
NOT_SOLVED = "the solver ended with {status}"
NOT_INSTALLED = (
    "policy '{policy}' is not installed; the package {package} brings it: pip install {package}"
)
NO_POLICY = "no policy is named '{policy}'; known are {known}"
NO_OPTION = "unknown option; known are {known}"
NO_FAIR_SHARE = (
    "no job that finished had a fair share of GPUs, so no job can lose by sharing; give its"
    " tenants quotas"
)
NONE_FINISHED = (
    "no job did all its work at any of these lengths. Use more days, or check why jobs of this"
    " pool are cancelled or never start"
)
NO_UTILITY_KIND = "must be one of {kinds}"
NO_PARAMETER = "is not a parameter of a {kind} utility"
NO_PAIR = "has a part that is not name=number: {part}"
STEPS_COUNT = "must have from 1 to {most} steps"
STEP_PERCENT = "has no percent with at most {places} decimals"
STEP_POINTS = "must have more than 0 and at most {most} points"
NO_ASCENT = "has iteration {iteration} after {last}; they ascend from 1"
NO_METRIC = "has a metric at iteration {iteration} that is no number below 10^12"
WITH_VALUES = (
    *(TOO_MANY_TYPES, NOT_SOLVED, NOT_INSTALLED, NO_POLICY, NO_OPTION, NO_FAIR_SHARE),
    *(NONE_FINISHED, NO_UTILITY_KIND, NO_PARAMETER, NO_PAIR),
    *(STEPS_COUNT, STEP_PERCENT, STEP_POINTS, NO_ASCENT, NO_METRIC),
)
