"""Answers to deadlines in plain language, for pages and for the dry run."""

from __future__ import annotations

from evenshare_core.domain.deadlines import DeadlineLimit, PlanCause

_LIMITS = {
    DeadlineLimit.LENGTH: "it takes longer than that, even on a pool of its own",
    DeadlineLimit.QUOTA: "its tenant may not have so many GPUs until then",
    DeadlineLimit.CAPACITY: "others have the GPUs until then",
    DeadlineLimit.SIZE: "the pool never has so many GPUs free at once",
    DeadlineLimit.BUDGET: "other jobs of its tenant have all the points that it may ask for",
}
_CAUSES: dict[str, str] = {
    PlanCause.CAPACITY: "the pool has more or fewer GPUs of its type",
    PlanCause.QUOTA: "its tenant may have more or fewer GPUs",
    PlanCause.ESTIMATE: "its run time is estimated anew",
    PlanCause.LATE: "it runs longer than estimated",
    PlanCause.DEMAND: "other jobs came, went or moved",
}


def limit_text(limit: str) -> str:
    """Return what is in the way of a deadline, as a half sentence."""
    return _LIMITS[DeadlineLimit(limit)] if limit else "no plan meets it"


_NONE_WOULD_DO = {
    DeadlineLimit.BUDGET: "No later deadline would do while they have them.",
    DeadlineLimit.SIZE: "No deadline would do on the pool as it is.",
    DeadlineLimit.QUOTA: "No deadline would do with the quota as it is.",
}


def none_text(limit: str) -> str:
    """Return why a refusal names no earliest deadline, as a sentence."""
    known = _NONE_WOULD_DO.get(DeadlineLimit(limit)) if limit else None
    return known or "No deadline is known that would do."


def cause_text(cause: str) -> str:
    """Return what moved a plan; a policy's own sentence as it is."""
    return _CAUSES.get(cause, cause)


def unanswered_text(policy: str) -> str:
    """Return what a policy says that answers no deadlines."""
    return f"Policy {policy} answers no deadlines; the deadline is kept as a figure."


def chance_text(chance_milli: int | None) -> str:
    """Return how likely an end in time is; rounded down, so that 100 % is certain."""
    if chance_milli is None:
        return "nobody knows how likely, as no error of its estimate is known"
    return f"{chance_milli // 10} % likely, by the error of its estimate"
