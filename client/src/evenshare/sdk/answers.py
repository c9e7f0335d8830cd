"""REST answers and requests as types, written by `make fields`.

Their fields are described in the portal's /api/v1/docs. Money is text with six decimals; times are
RFC 3339.
"""

# ruff: noqa: E501, UP013 - one line for each field; class syntax would evaluate types in Python 3.9

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing import Any, Literal

DeadlineRow = TypedDict(
    "DeadlineRow",
    {
        "standing": "Literal['unanswered', 'planned', 'refused', 'missed', 'met', 'ended']",
        "by": "str",
        "points": "str",
        "spare_s": "float | None",
        "answer": "GivenAnswer | None",
    },
)
DryRunAnswer = TypedDict(
    "DryRunAnswer",
    {
        "feasible": "bool",
        "reason_code": "str",
        "detail": "str",
        "price": "str",
        "price_after": "str",
        "own": "int",
        "borrowed": "int",
        "currency": "str",
        "note": "str",
        "deadline_answer": "PreviewRow | None",
        "next_round": "NextRoundRow | None",
    },
)
EtaBand = TypedDict(
    "EtaBand",
    {
        "p50": "str | None",
        "p90": "str | None",
        "reason": "str",
    },
)
GivenAnswer = TypedDict(
    "GivenAnswer",
    {
        "state": "Literal['planned', 'refused', 'missed']",
        "round": "int",
        "at": "str",
        "by": "str | None",
        "points": "str",
        "gpu_type": "str",
        "gpus": "int",
        "one_node": "bool",
        "leases": "list[PlannedLeaseRow]",
        "chance": "float | None",
        "limit": "Literal['length', 'quota', 'capacity', 'size', 'budget'] | Literal['']",
        "blocked": "list[PlannedLeaseRow]",
        "earliest": "str | None",
        "cause": "str",
        "moved_s": "float | None",
    },
)
JobActionRow = TypedDict(
    "JobActionRow",
    {
        "id": "str",
        "outcome": "Literal['done', 'unchanged', 'refused']",
        "detail": "str",
        "name": "str",
    },
)
JobActionsDone = TypedDict(
    "JobActionsDone",
    {
        "results": "list[JobActionRow]",
    },
)
JobEstimateRow = TypedDict(
    "JobEstimateRow",
    {
        "seconds": "float",
        "error_percent": "float",
        "source": "Literal['measured', 'fitted', 'history', 'declared', 'cap']",
        "basis": "int",
        "overhead_seconds": "float",
    },
)
JobReason = TypedDict(
    "JobReason",
    {
        "state": "Literal['pending', 'running', 'stopping', 'succeeded', 'failed', 'cancelled']",
        "phase": "Literal['pending', 'starting', 'running', 'stopping', 'succeeded', 'failed', 'cancelled']",
        "reason_code": "str",
        "words": "str",
        "next_step": "str",
        "numbers": "dict[str, Any]",
        "round": "int | None",
        "as_of": "str | None",
        "overclaims": "list[SpeedCompared]",
        "deadline_answer": "DeadlineRow | None",
        "plan": "PlanRow | None",
        "preempted": "PreemptionRow | None",
        "made_way": "list[PreemptionRow]",
        "needs": "list[NeedRow]",
    },
)
JobRefRow = TypedDict(
    "JobRefRow",
    {
        "id": "str",
        "name": "str",
    },
)
JobRow = TypedDict(
    "JobRow",
    {
        "id": "str",
        "name": "str",
        "tenant": "str",
        "pool": "str",
        "state": "Literal['pending', 'running', 'stopping', 'succeeded', 'failed', 'cancelled']",
        "phase": "Literal['pending', 'starting', 'running', 'stopping', 'succeeded', 'failed', 'cancelled']",
        "gpus": "int",
        "gpu_types": "list[str]",
        "profile": "str | None",
        "submitted_at": "str",
        "eligible_at": "str | None",
        "started_at": "str | None",
        "ended_at": "str | None",
        "exit_code": "int | None",
        "reason_code": "str",
        "holds": "list[str]",
        "starts_by": "str | None",
        "queue": "QueuePlace | None",
        "estimate": "JobEstimateRow | None",
        "stop_estimate": "StopEstimateRow | None",
        "losses": "int",
        "profiling_s": "int",
        "backoff_until": "str | None",
        "lease": "LeaseRow | None",
        "progress": "dict[str, Any] | None",
        "charge": "str",
        "url": "str",
        "deadline_answer": "DeadlineRow | None",
        "deadline_left_s": "int | None",
        "sweep": "SweepPlace | None",
        "utility": "dict[str, str]",
        "cpus": "int",
        "memory_mb": "int",
        "job_class": "Literal['best_effort', 'strict_slo', 'soft_slo']",
        "deadline": "str",
        "deadline_steps": "list[str]",
        "estimate_s": "int | None",
        "iterations": "int | None",
        "stop_when": "str",
        "tags": "list[str]",
        "priority": "int",
        "not_before": "str",
        "comment": "str",
    },
)
JobSubmission = TypedDict(
    "JobSubmission",
    {
        "pool": "str",
        "gpus": "int",
        "command": "list[str] | None",
        "name": "str | None",
        "tenant": "str | None",
        "profile": "str | None",
        "gpu_types": "list[str] | None",
        "max_price": "str | None",
        "utility": "dict[str, str] | None",
        "cpus": "int | None",
        "memory_mb": "int | None",
        "environment": "dict[str, str] | None",
        "weight": "int | None",
        "duration_s": "int | None",
        "job_class": "Literal['best_effort', 'strict_slo', 'soft_slo'] | None",
        "deadline": "str | None",
        "deadline_steps": "list[str] | None",
        "estimate_s": "int | None",
        "iterations": "int | None",
        "stop_when": "str | None",
        "tags": "list[str] | None",
        "priority": "int | None",
        "not_before": "str | None",
        "held": "Any | None",
        "comment": "str | None",
        "after_ok": "list[str] | None",
        "after_any": "list[str] | None",
        "session": "Literal['notebook', 'shell'] | Literal[''] | None",
        "session_idle_s": "int | None",
        "session_s": "int | None",
        "session_shared": "Any | None",
        "yaml": "str",
    },
    total=False,
)
JobUsageAnswer = TypedDict(
    "JobUsageAnswer",
    {
        "reported": "bool",
        "leases": "list[LeaseUsageRow]",
        "points": "list[UsageFigures]",
        "earlier_leases": "bool",
        "gpus_idle_since": "str | None",
        "gpus_idle_warned_at": "str | None",
        "gpu_sampled_us": "int",
        "gpu_idle_us": "int",
    },
)
LeaseRow = TypedDict(
    "LeaseRow",
    {
        "number": "int",
        "expires_at": "str",
        "length_s": "float",
        "protected_until": "str | None",
        "nodes": "list[str]",
        "own": "int",
        "borrowed": "int",
        "price": "str",
    },
)
LeaseUsageRow = TypedDict(
    "LeaseUsageRow",
    {
        "lease": "int",
        "started_at": "str",
        "ended_at": "str | None",
        "gpu_type": "str",
        "gpus": "int",
        "gpus_reporting": "int",
        "nodes": "int",
        "nodes_reporting": "int",
        "cpus": "int",
        "gpu_state": "Literal['ok', 'failed', 'asked', 'absent', 'none']",
        "gpu_total_bytes": "int | None",
        "usage": "UsageFigures | None",
        "refused": "list[str]",
    },
)
LogText = TypedDict(
    "LogText",
    {
        "lease": "int | None",
        "offset": "int",
        "next_offset": "int",
        "total": "int",
        "text": "str",
        "complete": "bool",
    },
)
NeedRow = TypedDict(
    "NeedRow",
    {
        "id": "str",
        "name": "str",
        "condition": "Literal['after_ok', 'after_any']",
        "state": "Literal['pending', 'running', 'stopping', 'succeeded', 'failed', 'cancelled']",
        "is_met": "bool",
        "is_broken": "bool",
    },
)
NextRoundRow = TypedDict(
    "NextRoundRow",
    {
        "round": "int",
        "at": "str",
        "starts": "bool",
        "reason_code": "str",
        "preempted": "PreemptedForIt",
        "eta": "EtaBand",
        "words": "str",
    },
)
NodeRow = TypedDict(
    "NodeRow",
    {
        "name": "str",
        "gpus": "int",
        "held": "int",
        "state": "str",
    },
)
PlanRow = TypedDict(
    "PlanRow",
    {
        "kind": "Literal['own', 'borrowed', 'refused']",
        "round": "int",
        "at": "str",
        "gpu_type": "str",
        "gpus": "int",
        "borrowed": "int",
        "starts_at": "str | None",
        "ends_at": "str | None",
        "price": "str",
        "cost": "str",
        "value": "str",
        "gain": "str",
        "needed": "str",
        "lowest": "str",
    },
)
PlannedLeaseRow = TypedDict(
    "PlannedLeaseRow",
    {
        "starts_at": "str",
        "ends_at": "str",
    },
)
PoolRow = TypedDict(
    "PoolRow",
    {
        "name": "str",
        "policy": "str",
        "book": "str",
        "round_s": "int",
        "lease_s": "int",
        "nodes": "int",
        "gpus": "int",
        "now": "str",
        "scale": "int",
        "paused": "bool",
        "round": "int | None",
        "round_at": "str | None",
        "quota_promise": "QuotaPromiseRow | None",
    },
)
PoolWhole = TypedDict(
    "PoolWhole",
    {
        "name": "str",
        "policy": "str",
        "book": "str",
        "round_s": "int",
        "lease_s": "int",
        "nodes": "int",
        "gpus": "int",
        "now": "str",
        "scale": "int",
        "paused": "bool",
        "round": "int | None",
        "round_at": "str | None",
        "quota_promise": "QuotaPromiseRow | None",
        "types": "list[TypeRow]",
    },
)
PreemptedForIt = TypedDict(
    "PreemptedForIt",
    {
        "leases": "int",
        "own_leases": "int",
        "other_tenants": "int",
        "moved": "int",
        "notice_s": "int",
    },
)
PreemptionRow = TypedDict(
    "PreemptionRow",
    {
        "at": "str",
        "round": "int",
        "rule": "str",
        "words": "str",
        "moved": "bool",
        "gpus": "int",
        "gpu_type": "str",
        "tenant": "TenantRef | None",
        "job": "JobRefRow | None",
        "for_tenant": "TenantRef | None",
        "for_job": "JobRefRow | None",
        "numbers": "dict[str, Any]",
        "notice_s": "int",
        "released_at": "str | None",
        "unused": "bool",
    },
)
PreviewRow = TypedDict(
    "PreviewRow",
    {
        "round": "int | None",
        "answer": "GivenAnswer | None",
        "text": "str",
    },
)
PriceRow = TypedDict(
    "PriceRow",
    {
        "pool": "str",
        "gpu_type": "str",
        "price": "str",
        "currency": "str",
        "used": "int",
        "capacity": "int",
        "base": "str",
        "theta": "str",
        "queued": "int | None",
        "surcharge": "str | None",
        "surcharge_step": "str | None",
        "surcharge_cap": "str | None",
        "valid_from_round": "int",
        "posted_at": "str",
    },
)
QueuePlace = TypedDict(
    "QueuePlace",
    {
        "round": "int | None",
        "position": "int | None",
        "tenant_position": "int | None",
        "order": "str",
        "start": "StartRow | None",
    },
)
QueueRow = TypedDict(
    "QueueRow",
    {
        "position": "int | None",
        "tenant_position": "int | None",
        "tenant": "TenantRef | None",
        "id": "str | None",
        "name": "str | None",
        "reason_code": "str | None",
        "gpus": "int",
        "submitted_at": "str",
    },
)
QuotaAskRequest = TypedDict(
    "QuotaAskRequest",
    {
        "tenant": "str | None",
        "pool": "str",
        "gpu_type": "str",
        "gpus": "int",
        "until": "str | None",
        "reason": "str",
    },
    total=False,
)
QuotaChangeRow = TypedDict(
    "QuotaChangeRow",
    {
        "id": "str",
        "tenant": "str",
        "pool": "str",
        "gpu_type": "str",
        "gpus": "int",
        "quota": "int",
        "until": "str | None",
        "reason": "str",
        "state": "Literal['open', 'approved', 'declined', 'withdrawn']",
        "asked_by": "str",
        "asked_at": "str",
        "approved_gpus": "int | None",
        "decided_by": "str",
        "decided_at": "str | None",
        "answer": "str",
    },
)
QuotaPromiseRow = TypedDict(
    "QuotaPromiseRow",
    {
        "kind": "Literal['guaranteed', 'reserved', 'long_term', 'weight', 'not_guaranteed']",
        "within_s": "int | None",
        "parts": "list[WaitPartRow]",
        "text": "str",
        "conditions": "list[str]",
    },
)
QuotaUseRow = TypedDict(
    "QuotaUseRow",
    {
        "tenant": "str",
        "pool": "str",
        "gpu_type": "str",
        "gpus": "int",
        "own": "int",
        "traded": "int",
        "idle": "int",
        "borrowed": "int",
    },
)
SpeedCompared = TypedDict(
    "SpeedCompared",
    {
        "gpu_type": "str",
        "declared": "str",
        "measured": "str",
        "excess": "str",
        "tolerance": "str",
        "overclaim": "bool",
    },
)
StartRow = TypedDict(
    "StartRow",
    {
        "round": "int",
        "as_of": "str",
        "p50": "str | None",
        "p90": "str | None",
        "simulated_until": "str",
        "reason": "Literal['never_fits', 'backing_off', 'too_little_known', 'too_much_work', 'price_above_max', 'beyond', 'refuted'] | Literal['']",
        "why": "str",
    },
)
StopEstimateRow = TypedDict(
    "StopEstimateRow",
    {
        "iterations": "int",
        "low": "int",
        "high": "int",
        "error_percent": "float",
        "source": "Literal['measured', 'fitted', 'cap']",
        "note": "str",
        "evaluations": "int",
        "iteration": "int",
    },
)
SubscriptionMade = TypedDict(
    "SubscriptionMade",
    {
        "id": "str",
        "tenant": "str",
        "channel": "Literal['mail', 'webhook', 'slack', 'ntfy']",
        "address": "str",
        "kinds": "list[str]",
        "jobs": "Literal['mine', 'all']",
        "pool": "str | None",
        "tag": "str",
        "digest_hour": "int | None",
        "zone": "str",
        "state": "Literal['unconfirmed', 'active', 'paused', 'failed']",
        "note": "str",
        "failures": "int",
        "failing_since": "str | None",
        "created_at": "str",
        "secret": "str",
    },
)
SubscriptionRequest = TypedDict(
    "SubscriptionRequest",
    {
        "tenant": "str",
        "channel": "Literal['mail', 'webhook', 'slack', 'ntfy'] | None",
        "address": "str | None",
        "kinds": "list[str] | None",
        "jobs": "Literal['mine', 'all'] | None",
        "pool": "str | None",
        "tag": "str | None",
        "digest_hour": "int | None",
        "zone": "str | None",
    },
    total=False,
)
SubscriptionRow = TypedDict(
    "SubscriptionRow",
    {
        "id": "str",
        "tenant": "str",
        "channel": "Literal['mail', 'webhook', 'slack', 'ntfy']",
        "address": "str",
        "kinds": "list[str]",
        "jobs": "Literal['mine', 'all']",
        "pool": "str | None",
        "tag": "str",
        "digest_hour": "int | None",
        "zone": "str",
        "state": "Literal['unconfirmed', 'active', 'paused', 'failed']",
        "note": "str",
        "failures": "int",
        "failing_since": "str | None",
        "created_at": "str",
    },
)
SweepCounts = TypedDict(
    "SweepCounts",
    {
        "held": "int",
        "pending": "int",
        "running": "int",
        "succeeded": "int",
        "failed": "int",
        "cancelled": "int",
    },
)
SweepJobRow = TypedDict(
    "SweepJobRow",
    {
        "id": "str",
        "name": "str",
        "sweep_index": "int",
        "parameters": "dict[str, str]",
        "state": "Literal['pending', 'running', 'stopping', 'succeeded', 'failed', 'cancelled']",
        "phase": "Literal['pending', 'starting', 'running', 'stopping', 'succeeded', 'failed', 'cancelled']",
        "held": "bool",
        "started_at": "str | None",
        "ended_at": "str | None",
        "waited_s": "float | None",
        "exit_code": "int | None",
        "url": "str",
    },
)
SweepPlace = TypedDict(
    "SweepPlace",
    {
        "id": "str",
        "index": "int",
        "parameters": "dict[str, str]",
    },
)
SweepRow = TypedDict(
    "SweepRow",
    {
        "id": "str",
        "name": "str",
        "tenant": "str",
        "pool": "str",
        "state": "Literal['running', 'pending', 'held', 'failed', 'cancelled', 'succeeded']",
        "array": "str",
        "matrix": "dict[str, list[str]]",
        "include": "list[dict[str, str]]",
        "exclude": "list[dict[str, str]]",
        "at_once": "int | None",
        "jobs": "int",
        "counts": "SweepCounts",
        "submitted_at": "str",
        "cancel_asked_at": "str | None",
        "origin": "str | None",
        "url": "str",
    },
)
SweepSubmission = TypedDict(
    "SweepSubmission",
    {
        "pool": "str",
        "gpus": "int",
        "command": "list[str] | None",
        "name": "str | None",
        "tenant": "str | None",
        "profile": "str | None",
        "gpu_types": "list[str] | None",
        "max_price": "str | None",
        "utility": "dict[str, str] | None",
        "cpus": "int | None",
        "memory_mb": "int | None",
        "environment": "dict[str, str] | None",
        "weight": "int | None",
        "duration_s": "int | None",
        "job_class": "Literal['best_effort', 'strict_slo', 'soft_slo'] | None",
        "deadline": "str | None",
        "deadline_steps": "list[str] | None",
        "estimate_s": "int | None",
        "iterations": "int | None",
        "stop_when": "str | None",
        "tags": "list[str] | None",
        "priority": "int | None",
        "not_before": "str | None",
        "held": "Any | None",
        "comment": "str | None",
        "after_ok": "list[str] | None",
        "after_any": "list[str] | None",
        "session": "Literal['notebook', 'shell'] | Literal[''] | None",
        "session_idle_s": "int | None",
        "session_s": "int | None",
        "session_shared": "Any | None",
        "array": "str | None",
        "matrix": "dict[str, list[str]] | None",
        "include": "list[dict[str, str]] | None",
        "exclude": "list[dict[str, str]] | None",
        "at_once": "int | None",
        "yaml": "str",
    },
    total=False,
)
TenantRef = TypedDict(
    "TenantRef",
    {
        "name": "str",
        "slug": "str | None",
        "you": "bool",
    },
)
TypeRow = TypedDict(
    "TypeRow",
    {
        "gpu_type": "str",
        "gpus": "int",
        "used": "int",
        "own": "int",
        "borrowed": "int",
        "idle": "int",
        "blocked": "int",
        "nodes": "list[NodeRow]",
    },
)
UsageFigures = TypedDict(
    "UsageFigures",
    {
        "lease": "int",
        "starts_at": "str",
        "ends_at": "str",
        "cores": "float",
        "cores_peak": "float",
        "memory_bytes": "int | None",
        "memory_peak_bytes": "int | None",
        "gpu_percent": "float | None",
        "gpu_lowest_percent": "float | None",
        "gpu_memory_bytes": "int | None",
        "gpu_memory_peak_bytes": "int | None",
    },
)
WaitPartRow = TypedDict(
    "WaitPartRow",
    {
        "text": "str",
        "length_s": "int",
    },
)
