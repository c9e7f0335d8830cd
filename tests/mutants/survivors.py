"""Changes that once survived the whole suite, each with the test that now detects it."""

from __future__ import annotations

from tests.mutants.mutant import pure, stored

CLEARING = "core/src/evenshare_core/policies/market/clearing.py"
TRADING = "core/src/evenshare_core/policies/gandiva_fair/trading.py"
TRADING_TESTS = "tests/papers/test_gandiva_fair_trading.py"
RATE_TEST = (
    "tests/functional/test_rate.py::TestBucket::test_cost_above_capacity_requires_full_bucket"
)
BREAK_TESTS = "tests/unit/scheduling/test_public_breaks.py"
FATE_TEST = (
    "tests/integration/test_forecasts.py::TestForecastOutcome"
    "::test_is_first_start_after_round_of_forecast"
)

SURVIVORS = (
    pure(
        "a_node_kept_for_one_owner_is_free_for_the_next",
        CLEARING,
        "gpus + self._kept[node_id]",
        "gpus",
        "tests/unit/core/test_clearing_nodes.py",
    ),
    pure(
        "seller_loses_rounding_of_trade",
        TRADING,
        "        sold += 1",
        "        pass",
        f"{TRADING_TESTS}::TestTwoTenants::test_fractional_trade_leaves_seller_no_worse_off",
    ),
    pure(
        "losing_trade_is_not_undone",
        TRADING,
        "if trader.throughput(gpus) < trader.throughput(trader.quota):",
        "if trader.throughput(gpus) < 0:",
        f"{TRADING_TESTS}::TestUndo::test_undoes_trade_below_worth_of_quota",
    ),
    stored(
        "cost_is_limited_to_bucket_size",
        "tenants/rate.py",
        "extract(epoch FROM clock_timestamp() - b.at)::float8)) - %(cost)s::float8,",
        "extract(epoch FROM clock_timestamp() - b.at)::float8))"
        " - least(%(cost)s::float8, %(full)s::float8),",
        RATE_TEST,
    ),
    stored(
        "request_above_bucket_size_is_refused_for_ever",
        "tenants/rate.py",
        "    >= least(%(cost)s::float8, %(full)s::float8)",
        "    >= %(cost)s::float8",
        RATE_TEST,
    ),
    stored(
        "every_round_breaks_in_pools_of_own_rows",
        "scheduling/engine/seal.py",
        "if not broken or visibility != Pool.Visibility.OWN:",
        "if visibility != Pool.Visibility.OWN:",
        f"{BREAK_TESTS}::test_consistent_round_has_no_breaks",
    ),
    stored(
        "break_names_other_tenants_in_pools_of_own_rows",
        "scheduling/engine/seal.py",
        "if not broken or visibility != Pool.Visibility.OWN:",
        "if not broken or visibility:",
        f"{BREAK_TESTS}::test_break_is_summarized_if_pool_hides_tenants",
    ),
    stored(
        "start_before_forecast_counts_as_predicted",
        "scheduling/services/forecasts.py",
        "l.job_id = one.job_id AND l.granted_round > f.round",
        "l.job_id = one.job_id",
        FATE_TEST,
    ),
    stored(
        "a_start_is_hidden_from_its_forecast",
        "scheduling/services/forecasts.py",
        "SELECT one.id, min(l.started_at) AS started_at",
        "SELECT one.id, max(l.started_at) AS started_at",
        FATE_TEST,
    ),
    stored(
        "a_cancelled_job_that_started_is_hidden_from_forecasts",
        "scheduling/services/start_history.py",
        ".exclude(state=JobRow.State.CANCELLED, first_started_at=None)",
        ".exclude(state=JobRow.State.CANCELLED)",
        "tests/integration/test_forecasts.py::TestHistory",
    ),
)
