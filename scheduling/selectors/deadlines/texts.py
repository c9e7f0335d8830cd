"""Answers to deadlines in plain language, for pages and for the dry run."""

from __future__ import annotations

from evenshare_core.domain.reason_texts import CAUSES, LIMITS, NONE_WOULD_DO


def limit_text(limit: str) -> str:
    """Return what is in the way of a deadline, as a half sentence."""
    return LIMITS[limit] if limit else "no plan meets it"


def none_text(limit: str) -> str:
    """Return why a refusal names no earliest deadline, as a sentence."""
    return NONE_WOULD_DO.get(limit, "No feasible deadline is known.")


def cause_text(cause: str) -> str:
    """Return what moved a plan; a policy's own sentence as it is."""
    return CAUSES.get(cause, cause)


def unanswered_text(policy: str) -> str:
    """Return what a policy says that answers no deadlines."""
    return f"Policy {policy} does not plan for deadlines; the deadline is only recorded."


def chance_text(chance_milli: int | None) -> str:
    """Return how likely an end in time is; rounded down, so that 100 % is certain."""
    if chance_milli is None:
        return "confidence unknown"
    return f"{chance_milli // 10} % likely, by the error of its estimate"
