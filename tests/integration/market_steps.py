"""The steps of `test_market_histories`, with their frequency and parameters."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from evenshare_core.domain.entitlements import Mode

WHO = st.sampled_from(["north", "east", "south"])
LENDER = st.sampled_from(["north", "north", "east"])
AMOUNTS = st.sampled_from([1, 7_000, 90_000, 400_000, 2_000_000])
LIMITS = st.sampled_from([None, None, 0, 60_000, 500_000, 3_000_000])
MODES = st.sampled_from([*Mode, Mode.LEND_AND_BORROW, Mode.LEND_AND_BORROW])
GPU_LIMITS = st.sampled_from([None, None, 0, 1, 3])
FLOORS = st.sampled_from([0, 200_000, 414_214, 900_000])

QUOTAS = {"north": 4, "east": 2, "south": 1}
# Situations that the histories must reach, taken together.
MET = {
    *("settings", "bounds", "offers", "revocations", "highest prices", "jobs", "rounds", "loans"),
    *("deliveries", "allowances", "gifts", "gifts refused", "limits", "budgets"),
    *("corrections", "corrections refused"),
}
BOOKS = """
SELECT a.tenant_id, a.balance, coalesce(b.spendable, 0), coalesce(b.reserved, 0),
       coalesce(b.overrun, 0)
FROM billing_account a JOIN billing_book k ON k.id = a.book_id
LEFT JOIN tenants_budget b ON b.tenant_id = a.tenant_id AND b.book = k.slug
WHERE k.id = %s
"""
# Each step with its frequency in 100 steps, and its parameters.
TABLE: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    # Hypothesis shrinks to the first step, so it must be cheap.
    "limit": (6, {"who": WHO, "limit": LIMITS}),
    "allow": (8, {"who": WHO, "micro": AMOUNTS}),
    "play": (13, {"seconds_": st.sampled_from([10, 60, 300, 900, 900, 2700])}),
    "set_own": (
        4,
        {"who": LENDER, "mode": MODES, "limit": GPU_LIMITS, "by_offer": st.booleans()},
    ),
    "set_bounds": (
        6,
        {
            "who": LENDER,
            "mode": st.sampled_from([Mode.LEND, Mode.LEND_AND_BORROW]),
            "limit": GPU_LIMITS,
        },
    ),
    "offer": (
        9,
        {
            "who": LENDER,
            "gpus": st.integers(1, 2),
            "floor": FLOORS,
            "lasts_s": st.sampled_from([None, 1800]),
        },
    ),
    "revoke": (8, {"which": st.integers(0, 50)}),
    "highest_price": (3, {"who": WHO, "price": st.sampled_from([None, None, 300_000, 800_000])}),
    "submit": (
        14,
        {
            "who": WHO,
            "gpus": st.integers(1, 3),
            "lasts_s": st.sampled_from([45, 400, 2500, 9000]),
        },
    ),
    "deliver": (6, {"times": st.integers(1, 3)}),
    "give": (8, {"who": WHO, "to": WHO, "micro": AMOUNTS}),
    "budget": (6, {"who": WHO, "micro": LIMITS, "is_block": st.booleans()}),
    "correct": (8, {"which": st.integers(0, 50), "percent": st.sampled_from([-60, 30, 100, 101])}),
}
STEP = st.sampled_from([name for name, (often, _) in TABLE.items() for _ in range(often)]).flatmap(
    lambda name: st.tuples(st.just(name), st.fixed_dictionaries(TABLE[name][1]))
)
