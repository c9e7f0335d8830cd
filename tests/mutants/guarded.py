"""List the fewest tests, fast first, that detect changes in the modules of `make mutate`."""

from __future__ import annotations

from dataclasses import dataclass

CORE = "core/src/evenshare_core"
ENGINE = "scheduling/engine"
ROUNDS = "tests/integration/test_rounds.py"
STATES = "tests/integration/test_lease_states.py"
HANDOVER = "tests/integration/test_handover.py"
BOOKS = "tests/integration/test_round_books.py"
MEMORY = "tests/integration/test_pool_memory.py"
METERING = "tests/integration/test_metering.py"
# The effect of rounds, ends, reports and calls on a lease in each state.
DECIDED, REPORTED, CALLED = (
    tuple(
        f"{STATES}::test_writer_changes_lease_as_its_state_allows[{writer}-{state}]"
        for writer in writers
        for state in ("waiting", "launching", "running", "stopping", "ended")
    )
    for writers in (
        ("renewal", "end"),
        ("report accepted", "report running", "report finished", "report stopped", "activation"),
        ("launch intent",),
    )
)
CALLS = "tests/integration/test_executor_calls.py"
TWINS = (
    "tests/integration/test_ledger.py::TestConcurrency"
    "::test_locked_pool_is_skipped_by_meter_and_settlement"
)
CONTRACT = "tests/integration/test_local_executor_contract.py::TestVirtualExecutor"


@dataclass(frozen=True)
class Guarded:
    """The files to change and the tests of which one must fail; `database` is set if needed."""

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]
    database: bool = True


FORMULATIONS = (
    *("baselines_lp", "lp", "oef_columns", "oef_cooperative", "oef_fast", "oef_highs"),
    *("oef_prices", "problems", "programs", "shares", "ties"),
)
GUARDED = (
    Guarded(
        "fence",
        (f"{ENGINE}/fence.py",),
        ("tests/integration/test_fence.py::TestFence",),
    ),
    Guarded(
        "apply",
        (f"{ENGINE}/apply.py", f"{ENGINE}/grants.py"),
        (
            *(*DECIDED, BOOKS, ROUNDS, HANDOVER),
            f"{MEMORY}::TestPoolMemory::test_is_kept_while_its_only_type_is_away_for_two_rounds",
        ),
    ),
    Guarded(
        "renew",
        (f"{ENGINE}/write.py", f"{CORE}/policies/shared/terms.py"),
        ("tests/unit/core/test_decide_round.py", *DECIDED, BOOKS, ROUNDS),
    ),
    Guarded(
        "settlement",
        ("billing/metering/settle.py", "billing/metering/budgets.py"),
        (METERING, TWINS),
    ),
    Guarded(
        "splits",
        (f"{CORE}/money/fixed_point.py", f"{CORE}/money/revenue/idle.py"),
        (
            "tests/unit/core/test_money.py",
            "tests/unit/core/test_revenue.py",
            "tests/papers/test_posted_price_payments.py",
            "tests/papers/test_income_by_instant.py",
        ),
        database=False,
    ),
    Guarded(
        "metering",
        (
            *("billing/metering/meter.py", "billing/metering/lines.py"),
            *("billing/metering/cursor.py", f"{CORE}/money/revenue/terms.py"),
        ),
        ("tests/unit/core/test_revenue_terms.py", METERING, TWINS),
    ),
    Guarded("reconcile", (f"{ENGINE}/reconcile.py",), (CALLS, CONTRACT)),
    Guarded(
        "observe",
        (f"{ENGINE}/observe.py",),
        (*REPORTED, CALLS, BOOKS, HANDOVER, ROUNDS, "tests/integration/test_executor_clock.py"),
    ),
    Guarded("dispatch", (f"{ENGINE}/dispatch.py",), (CALLS, *CALLED, HANDOVER, ROUNDS)),
    Guarded(
        "permissions",
        ("tenants/permissions.py",),
        ("tests/unit/tenants/test_permissions.py",),
    ),
    Guarded(
        "visibility",
        ("scheduling/selectors/visibility.py",),
        ("tests/functional/test_visibility.py",),
    ),
    Guarded(
        "idempotency",
        ("tenants/idempotency.py",),
        (
            "tests/functional/test_idempotent_replies.py",
            "tests/functional/test_api_services.py::TestIdempotencyKey",
            "tests/functional/test_idempotency.py::TestKeyScope",
        ),
    ),
    Guarded("tokens", ("tenants/tokens.py",), ("tests/functional/test_tokens.py",)),
    Guarded(
        "certificate",
        (f"{CORE}/fairness/certificate.py",),
        (
            "tests/unit/core/test_certificate_kept.py",
            "tests/unit/core/test_certificate.py",
            "tests/papers/test_certified.py",
        ),
        database=False,
    ),
    Guarded(
        "promised_starts",
        (f"{CORE}/fairness/promised_starts.py",),
        (
            "tests/unit/core/test_promised_starts.py",
            "tests/unit/core/test_promises_disclosed.py",
        ),
        database=False,
    ),
    Guarded(
        "rounding",
        (f"{CORE}/placement/rounding.py",),
        ("tests/unit/core/test_rounding.py",),
        database=False,
    ),
    Guarded(
        "formulations",
        tuple(f"{CORE}/formulations/{name}.py" for name in FORMULATIONS),
        (
            "tests/unit/core/test_shares.py",
            "tests/unit/core/test_oef_columns.py",
            "tests/unit/core/test_envy_rows.py",
            "tests/unit/core/test_ties.py",
            "tests/papers/test_oef.py",
        ),
        database=False,
    ),
)
