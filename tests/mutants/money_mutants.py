"""Changes to charges, settlements and statements that tests must detect."""

from __future__ import annotations

from tests.mutants.mutant import pure, stored

MONEY_TESTS = "tests/unit/core/test_money.py"
LATE_TESTS = "tests/unit/core/test_late_rounds.py"
EDGE_TESTS = "tests/integration/test_budget_edges.py"

MONEY_MUTANTS = (
    # Charges and their split
    pure(
        "ties_are_rounded_to_the_odd_one",
        "core/src/evenshare_core/money/fixed_point.py",
        "above_half == 0 and quotient % 2 == 1",
        "above_half == 0 and quotient % 2 == 0",
        f"{MONEY_TESTS}::TestCharge",
    ),
    pure(
        "remainder_goes_to_smallest_part",
        "core/src/evenshare_core/money/fixed_point.py",
        "key=rests.__getitem__, reverse=True",
        "key=rests.__getitem__",
        "tests/unit/core/test_revenue.py::TestSplit",
        f"{MONEY_TESTS}::TestLargestRemainder",
        "tests/papers/test_posted_price_payments.py",
    ),
    pure(
        "quota_in_use_earns_too",
        "core/src/evenshare_core/money/revenue/idle.py",
        "idle = max(gpus - self.own.get(tenant, 0), 0)",
        "idle = gpus",
        "tests/papers/test_posted_price_payments.py",
    ),
    pure(
        "integrals_change_after_json",
        "core/src/evenshare_core/money/revenue/idle.py",
        "(offset, rate, integrals.get(lender, 0) - rate * sums.now_us)",
        "(offset, rate, integrals.get(lender, 0))",
        "tests/unit/core/test_revenue.py::TestIdleSums",
    ),
    pure(
        "time_with_more_idle_quota_weighs_more",
        "core/src/evenshare_core/money/revenue/idle.py",
        "self._clock += span_us * (self._scale // total)",
        "self._clock += span_us * self._scale",
        "tests/papers/test_income_by_instant.py::TestGoldenCase",
    ),
    pure(
        "term_begins_without_carried_remainder",
        "core/src/evenshare_core/money/revenue/terms.py",
        "following.carried = closed.rest",
        "following.carried = 0",
        "tests/papers/test_income_by_instant.py::TestShortTerms",
    ),
    stored(
        "a_planned_quota_counts_before_its_round",
        "core/src/evenshare_core/domain/snapshot.py",
        "return at_us if service.claims else service.at_us",
        "return service.at_us",
        "tests/integration/test_quota_edges.py",
    ),
    # Settlements
    stored(
        "late_usage_goes_to_an_hour_that_is_settled",
        "billing/metering/lines.py",
        "return hour if cursor.settled_until is None else max(hour, cursor.settled_until)",
        "return hour",
        "tests/integration/test_metering.py::TestHour::test_late_usage_goes_to_next_hour",
    ),
    stored(
        "two_rounds_reserve_same_credit",
        "scheduling/engine/holds.py",
        "write.at, lock=True)",
        "write.at)",
        "tests/integration/test_holds.py::TestHolds::test_concurrent_holds_never_exceed_limit",
    ),
    stored(
        "each_term_of_a_round_has_all_credit",
        "scheduling/engine/holds.py",
        "sum_micro = promised.get(item.tenant, 0) + micro",
        "sum_micro = micro",
        "tests/integration/test_credit_machine.py::test_credit_matches_integer_model",
    ),
    stored(
        "reserved_credit_is_transferred",
        "billing/ledger.py",
        "if short and change[account] < settled[account]:",
        "if short < 0 and change[account] < settled[account]:",
        "tests/integration/test_credit_machine.py::test_credit_matches_integer_model",
    ),
    stored(
        "requester_approves_own_transfer",
        "billing/services/transfers.py",
        "if asked.asked_by_id == actor.user.pk:",
        "if asked.asked_by_id == 0:",
        "tests/functional/test_credit.py::TestTransfer::test_requires_approval_by_a_second_person",
    ),
    stored(
        "looser_of_limit_and_budget_applies",
        "tenants/selectors/credit.py",
        "return min(limits) if limits else None",
        "return max(limits) if limits else None",
        "tests/unit/tenants/test_credit_left.py",
    ),
    stored(
        "an_hour_is_settled_before_its_events_are_read",
        "billing/metering/settle.py",
        "and cursor.event_number >= fence.next_event - 1",
        "and cursor.event_number >= 0",
        "tests/integration/test_metering.py::TestHour::test_stays_open_while_its_event_is_unread",
    ),
    stored(
        "price_of_type_is_lost_with_its_nodes",
        "scheduling/selectors/rounds/states.py",
        'posted = {row["gpu_type"]: dict(row) for row in before}',
        'posted = {row["gpu_type"]: dict(row) for row in () if before}',
        "tests/integration/test_pool_memory.py::TestPoolMemory"
        "::test_is_kept_while_its_only_type_is_away_for_two_rounds",
    ),
    stored(
        "spend_counts_on_the_day_of_its_settlement",
        "billing/metering/settle.py",
        "(posting.tenant_id, posting.hour, micro)",
        "(posting.tenant_id, posting.effective_at, micro)",
        f"{EDGE_TESTS}::test_late_settlement_counts_in_old_period",
    ),
    stored(
        "new_period_counts_unsettled_charges_of_old_period",
        "tenants/selectors/credit.py",
        "committed_micro=to_micro(budget.reserved) - charges.unsettled_before,",
        "committed_micro=to_micro(budget.reserved),",
        f"{EDGE_TESTS}::test_unsettled_charges_do_not_reduce_next_period",
    ),
    # Late rounds
    pure(
        "time_of_late_rounds_is_charged",
        "core/src/evenshare_core/money/revenue/records.py",
        "if seen_us <= self.due_us + self.late_us:",
        "if seen_us <= self.due_us + self.late_us * 1000:",
        LATE_TESTS,
    ),
    pure(
        "late_rounds_are_the_lenders_loss",
        "core/src/evenshare_core/money/revenue/terms.py",
        "full = amount if until_us == at_us else term.charged(held_us)[0]",
        "full = amount",
        LATE_TESTS,
    ),
    stored(
        "the_borrower_pays_what_the_operator_bears",
        "billing/metering/settle.py",
        "(accounts[OPERATOR], -borrowed.borne_micro)",
        "(accounts[tenant], -borrowed.borne_micro)",
        "tests/integration/test_late_rounds.py::TestLateRound"
        "::test_charges_operator_for_time_after_expiry",
    ),
    # Files
    stored(
        "statement_file_is_cut_silently",
        "portal/common/files.py",
        "return LINES_MOST + 1",
        "return LINES_MOST",
        "tests/functional/test_csv_files.py::test_file_above_line_limit_is_rejected",
    ),
    stored(
        "csv_cells_stay_formulas",
        "core/src/evenshare_core/csv_cells.py",
        "    if _RISKY.match(text) and not _NUMBER.fullmatch(text):",
        "    if text is None:",
        "tests/functional/test_csv_files.py::test_no_cell_is_a_spreadsheet_formula",
    ),
    # Contribution statements
    pure(
        "kept_quota_counts_as_lendable",
        "core/src/evenshare_core/money/quota_use.py",
        "return idle if most is None else min(idle, most)",
        "return idle",
        "tests/unit/core/test_quota_use.py",
    ),
    pure(
        "all_borrowed_gpus_count_as_lent",
        "core/src/evenshare_core/money/quota_use.py",
        "borrowed = min(self._borrowed, of_all)",
        "borrowed = self._borrowed",
        "tests/unit/core/test_quota_use.py",
    ),
    stored(
        "income_lines_count_when_their_hour_begins",
        "billing/selectors/income.py",
        '"since_hour": since - HOUR,',
        '"since_hour": since,',
        "tests/integration/test_contribution.py",
    ),
    stored(
        "borrowing_costs_nothing_in_alpha",
        "billing/selectors/revenue.py",
        "- self.cost.get(one, 0)",
        "",
        "tests/functional/test_contribution_pages.py::TestRevenueFairness",
    ),
)
