"""A tenant's credit on its page."""

from typing import Any

from billing.selectors.credit import CreditRow
from portal.common.credit_text import account_context, run_out_text


def credit_context(state: CreditRow | None) -> dict[str, Any]:
    """Return the data of an account; two queries if a budget applies."""
    if state is None:
        return {"state": None, "left": None, "budget": None, "run_out": ""}
    return {**account_context(state), "run_out": run_out_text(state)}
