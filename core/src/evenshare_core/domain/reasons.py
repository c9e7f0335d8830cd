"""Published enums: why a job waits and why a lease ended."""

from enum import StrEnum


class Reason(StrEnum):
    """The reason why a job was not granted in a round. Names are part of the API."""

    LEASE_TURN = "lease_turn"  # others were served first, and the job did not fit what was left
    # its tenant's first job did not fit (line 17 of LTGF)
    TENANT_PASSED_OVER = "tenant_passed_over"
    NO_FREE_GPUS = "no_free_gpus"  # fewer free GPUs in total than the gang needs
    FRAGMENTED = "fragmented"  # enough free GPUs, but spread so that the gang does not fit
    CPUS_OR_MEMORY = "cpus_or_memory"  # no node with enough GPUs has the CPUs and memory it needs
    RESERVED_FOR_GANG = "reserved_for_gang"  # free GPUs are kept for a gang that waits too long
    RESERVED_QUOTA = "reserved_quota"  # free GPUs belong to tenants that do not lend them
    QUOTA_LIMIT = "quota_limit"  # its tenant may not borrow, or not more
    PRICE_ABOVE_MAX = "price_above_max"  # it would borrow above its maximum price
    BUDGET = "budget"  # its tenant's spendable credit does not cover the term
    PRICE_ABOVE_VALUE = "price_above_value"  # borrowing costs more than the job is worth
    PLANNED_LATER = "planned_later"  # its plan starts later
    PROMISED = "promised"  # it starts at a promised time at the latest
    NEXT_BATCH = "next_batch"  # it arrived after the last batch; the next one plans it
    TOO_LARGE = "too_large"  # no accepted type has that many GPUs in the pool
    # its process was lost soon after its start; the wait grows with each loss
    BACKING_OFF = "backing_off"
    QUARANTINED = "quarantined"  # the job made the policy fail
    HELD_BY_TENANT = "held_by_tenant"
    HELD_BY_OPERATOR = "held_by_operator"
    HELD_IDLE = "held_idle"  # its last lease held GPUs that it did not use
    HELD_FOR_JOB = "held_for_job"  # another job must end first
    HELD_FOR_SWEEP = "held_for_sweep"  # enough jobs of its sweep are under way
    NOT_BEFORE = "not_before"  # its tenant named the earliest start


class PreemptionRule(StrEnum):
    """The rule by which a lease ended before its expiry."""

    GUARANTEE = "guarantee"  # for a tenant that holds less than its quota
    PAYS = "pays"  # the other job gains more than this one loses
    DEFRAGMENT = "defragment"  # the job moves to make room on its node for a gang
    GANG = "gang"  # the other job is larger than a node, and ranks before this one
    PROMISE = "promise"  # the GPUs were promised to the other job for this time


class EndReason(StrEnum):
    """The reason why a lease ended."""

    PREEMPTED = "preempted"  # before its expiry, with notice, for the job that a rule ranked ahead
    MOVED = "moved"  # before its expiry, with notice; its job continues on other GPUs
    NOT_RENEWED = "not_renewed"  # expired, and the round gave the GPUs to another job
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PROFILED = "profiled"  # a profiling run reached its time limit
    NODE_LOST = "node_lost"
    DRAINED = "drained"
    PRICE_ABOVE_MAX = "price_above_max"
    PRICE_ABOVE_VALUE = "price_above_value"  # another term costs more than its value
    BUDGET = "budget"
    LOST = "lost"  # the engine no longer knows the lease
    QUARANTINED = "quarantined"  # its job's row cannot be read
    IDLE = "idle"  # expired, and its GPUs or its session had been idle for too long


class SupersededReason(StrEnum):
    """The reason why a part of a decision was not applied.

    Bundles contain the texts: do not edit them.

    The first members are for grants and renewals. Members named SPARED are for leases that continue
    although the decision preempts them, and for grants to their beneficiaries.
    """

    JOB_GONE = "the job no longer waited"
    NODE_GONE = "a node was drained or lost"
    LEASE_ENDED = "the lease had ended since the snapshot"
    CREDIT = "its tenant's credit was promised elsewhere since the snapshot"
    BUDGET = "its tenant's budget of the period was used up since the snapshot"
    UNSTORABLE = "its tenant would owe more than the books can hold"
    SPARED_NO_CREDIT = (
        "the tenant of the job that it was preempted for lacks credit, so the lease goes on"
    )
    SPARED_JOB_GONE = "the job that it was preempted for no longer waited, so the lease goes on"
    SPARED_NODE_GONE = (
        "a node of the job that it was preempted for was drained or lost, so the lease goes on"
    )
