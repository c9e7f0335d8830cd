"""A tenant's credit as its own page says it."""

from __future__ import annotations

from typing import Any

from billing.selectors.credit import CreditState
from portal.common.credit_text import budget_text, left_credits, run_out_text


def credit_context(state: CreditState | None) -> dict[str, Any]:
    """Return what the page says of an account; two queries where a budget holds."""
    if state is None:
        return {"state": None, "left": None, "budget": None, "run_out": ""}
    use = state.left.period
    return {
        "state": state,
        "left": left_credits(state),
        "budget": budget_text(use) if use else None,
        "run_out": run_out_text(state),
    }
