"""Errors that the tests must detect: single changes of code that decides, writes and charges."""

from __future__ import annotations

from tests.mutants.estimation_mutants import ESTIMATION_MUTANTS
from tests.mutants.money_mutants import MONEY_MUTANTS
from tests.mutants.mutant import pure, stored
from tests.mutants.policy_mutants import POLICY_MUTANTS
from tests.mutants.survivors import SURVIVORS

MONEY = "core/src/evenshare_core/money/fixed_point.py"
GPU_TIME = "core/src/evenshare_core/fairness/gpu_time.py"
LTGF_TESTS = "tests/papers/test_ltgf.py"
EACH_ROUND = "tests/simulation/test_fast_forward.py::TestRounds::test_decisions_match_full_snapshot"
GUARANTEE_TESTS = "tests/unit/core/test_guarantee.py::TestBrokenGuarantee"
STARTS = "core/src/evenshare_core/fairness/promised_starts.py"
STARTS_TESTS = "tests/unit/core/test_promised_starts.py"
ROUND_TESTS = "tests/unit/core/test_decide_round.py"
ADMISSION_TESTS = "tests/unit/core/test_admission.py"
BACKOFF_TESTS = "tests/unit/core/test_backoff.py"
HANDOVER_TESTS = "tests/integration/test_handover.py"
STATES_TEST = (
    "tests/integration/test_lease_states.py::test_writer_changes_lease_as_its_state_allows"
)
CONTRACT_TESTS = "tests/integration/test_local_executor_contract.py::TestVirtualExecutor"
CANARY_TESTS = "tests/functional/test_canaries.py::TestUrls"
IDEMPOTENCY_TESTS = "tests/functional/test_idempotency.py::TestKeyScope"
FENCE_TESTS = "tests/integration/test_fence.py::TestFence"

MUTANTS = (
    *POLICY_MUTANTS,
    *MONEY_MUTANTS,
    *ESTIMATION_MUTANTS,
    *SURVIVORS,
    # Fairness
    pure(
        "tenant_without_deserved_time_is_owed_nothing",
        "core/src/evenshare_core/fairness/guarantee.py",
        "return not deserved or 100 * received < OWED_PERCENT * deserved",
        "return 100 * received < OWED_PERCENT * deserved",
        f"{GUARANTEE_TESTS}::test_is_violated_for_tenant_without_deserved_time",
    ),
    pure(
        "a_promised_job_that_does_not_start_is_certified",
        STARTS,
        "return self._at_us < later.due_us or self._must_wait(later)",
        "return True",
        f"{STARTS_TESTS}::TestBrokenPromise::test_due_job_not_started",
    ),
    pure(
        "a_promise_that_moved_is_certified",
        STARTS,
        "if later is None or later.due_us > row.due_us:",
        "if later is None:",
        f"{STARTS_TESTS}::TestBrokenPromise::test_time_moved_later",
    ),
    pure(
        "promised_gpus_given_to_others_are_certified",
        STARTS,
        "is_short = kept[part.node] >",
        "is_short = 8 <",
        f"{STARTS_TESTS}::TestBrokenPromise::test_held_gpu_given_away",
    ),
    pure(
        "pinned_jobs_keep_their_ids_in_disclosed_rounds",
        "core/src/evenshare_core/policies/evenshare/promises.py",
        "(IdKind.NODE, None, _BY_JOB, _BY_JOB)",
        "(IdKind.NODE, None, None, _BY_JOB)",
        "tests/unit/core/test_promises_disclosed.py::TestDisclosedPromises",
    ),
    pure(
        "demand_counts_as_received",
        GPU_TIME,
        "self.alloc_gpu_us += self.held * span_us",
        "self.alloc_gpu_us += self.demand * span_us",
        f"{LTGF_TESTS}::TestGoldenCase1",
    ),
    pure(
        "deserved_ignores_demand",
        GPU_TIME,
        "share = min(self.demand, self.quota)  # (8)",
        "share = self.quota",
        f"{LTGF_TESTS}::TestGoldenCases",
    ),
    pure(
        "rho_after_uses_quota",
        "core/src/evenshare_core/policies/base.py",
        "fair_after = fair + share * lease_us",
        "fair_after = fair + claim.quota * lease_us",
        f"{ROUND_TESTS}::TestSharesAndPrices",
    ),
    pure(
        "change_may_be_later_than_round",
        "scheduling/engine/changes.py",
        "clock_us = min(max(instant_us, clock_us), at_us)",
        "clock_us = max(instant_us, clock_us)",
        "tests/unit/scheduling/test_changes.py",
    ),
    # The order of picks, and the placement of gangs
    pure(
        "p90_is_p80",
        "core/src/evenshare_core/simulation/starts.py",
        "ceil(0.9 * (runs + 1))",
        "ceil(0.8 * (runs + 1))",
        "tests/unit/core/test_starts.py::TestNoEstimate",
    ),
    pure(
        "placed_on_the_emptiest_node",
        "core/src/evenshare_core/placement/consolidated.py",
        "for count in range(gpus, self.size + 1):",
        "for count in range(self.size, gpus - 1, -1):",
        "tests/unit/core/test_consolidated.py::TestFind::test_returns_expected_placement",
    ),
    # Own and borrowed GPUs, limits, prices
    pure(
        "the_worst_case_is_rounded_down",
        MONEY,
        "return -(-gpus * price_micro * lease_us // HOUR_US)",
        "return gpus * price_micro * lease_us // HOUR_US",
        ADMISSION_TESTS,
    ),
    pure(
        "an_empty_pool_has_a_price",
        "core/src/evenshare_core/money/pricing.py",
        "CONTEXT.subtract(power, Decimal(1))",
        "power",
        "tests/unit/core/test_posted_prices.py",
        "tests/papers/test_posted_price_payments.py",
    ),
    pure(
        "jobs_below_price_count_as_queued",
        "core/src/evenshare_core/policies/shared/prices.py",
        "job.max_price_micro < price_micro",
        "job.max_price_micro < 0",
        "tests/unit/core/test_surcharges.py::TestGpusQueuedForBorrowing",
    ),
    pure(
        "free_quota_counts_as_queued_for_borrowing",
        "core/src/evenshare_core/policies/shared/prices.py",
        "wanted = max(0, gpus - max(0, row.gpus - own))",
        "wanted = gpus",
        "tests/unit/core/test_surcharges.py::TestGpusQueuedForBorrowing",
    ),
    pure(
        "a_surcharge_jumps_to_its_target",
        "core/src/evenshare_core/money/pricing.py",
        "change = max(-step_micro, min(step_micro, target_micro - before_micro))",
        "change = target_micro - before_micro",
        "tests/unit/core/test_surcharges.py::TestStep",
    ),
    pure(
        "rounds_are_skipped_while_price_moves",
        "core/src/evenshare_core/simulation/fast_forward.py",
        "or is_priced_anew or is_moving",
        "or is_priced_anew",
        "tests/simulation/test_surcharges.py::TestSkippedRounds",
    ),
    # State of the simulator between rounds
    pure(
        "classes_are_rounded_once_for_all_skipped_rounds",
        "core/src/evenshare_core/simulation/lazy_accounting.py",
        "if weighted >= demand * weights:",
        "if weighted >= demand:",
        f"{EACH_ROUND}[ltgf-0]",
        f"{EACH_ROUND}[ltgf-9]",
    ),
    pure(
        "kept_gpus_are_held_back_for_ever",
        "core/src/evenshare_core/simulation/occupancy.py",
        "self._touched.update(one.held_back)",
        "pass",
        f"{EACH_ROUND}[ltgf-0]",
        f"{EACH_ROUND}[ltgf-9]",
    ),
    # The single writer of a pool
    stored(
        "later_token_locks_fence",
        "scheduling/engine/fence.py",
        "if fence.token != token:",
        "if fence.token < token:",
        f"{FENCE_TESTS}::test_locks_for_current_token_only",
    ),
    stored(
        "a_held_pool_is_taken",
        "scheduling/engine/fence.py",
        "AND (until < clock_timestamp() OR holder = ''",
        "AND (TRUE OR holder = ''",
        f"{FENCE_TESTS}::test_is_held_by_one_holder_until_released",
    ),
    stored(
        "quotas_are_recorded_each_round",
        "scheduling/engine/apply.py",
        "if before.get(gpu_type) != now[gpu_type]:",
        "if gpu_type:",
        "tests/integration/test_rounds.py::TestRound::test_records_quotas_once_and_after_changes",
    ),
    stored(
        "a_stopping_job_is_granted",
        "scheduling/engine/grants.py",
        "(state = 'stopping' AND id = ANY(%s))",
        "(state = 'stopping' OR id = ANY(%s))",
        f"{HANDOVER_TESTS}::TestStoppingJob",
    ),
    stored(
        "reports_are_not_sorted_by_time",
        "scheduling/engine/observe.py",
        "for report in sorted(held, key=_moment):",
        "for report in held:",
        f"{HANDOVER_TESTS}::TestReportsOfOneCall",
    ),
    stored(
        "a_moved_job_waits_again",
        "scheduling/engine/observe.py",
        "elif successor is None:",
        "else:",
        f"{HANDOVER_TESTS}::TestMove",
    ),
    stored(
        "pool_time_moves_back_with_wall_clock",
        "scheduling/engine/clock.py",
        "if gap < timedelta(0) or (gap > GAP and clock.scale > 1):",
        "if gap > GAP and clock.scale > 1:",
        "tests/integration/test_clock.py::TestClock::test_never_goes_back_with_wall_clock",
    ),
    # Running jobs and their records
    stored(
        "a_stopping_lease_is_renewed",
        "scheduling/engine/apply.py",
        "AND l.state IN ('waiting', 'launching', 'running')\n        RETURNING l.id, l.term\n",
        "\n        RETURNING l.id, l.term\n",
        f"{STATES_TEST}[renewal-stopping]",
    ),
    stored(
        "late_launch_replaces_running_lease",
        "scheduling/engine/executors/virtual.py",
        "AND work.last_number < asked.number",
        "AND work.token <> asked.token",
        f"{CONTRACT_TESTS}::test_late_launch_of_old_lease_changes_nothing",
    ),
    stored(
        "orphans_keep_running",
        "scheduling/engine/reconcile.py",
        "if one.state in RUNS and one.token not in live",
        "if one.state in RUNS and one.token in ()",
        f"{CONTRACT_TESTS}::test_settles_every_pair_of_record_and_process",
    ),
    stored(
        "an_executors_clock_is_trusted",
        "scheduling/engine/observe.py",
        "started_us = max(min(report.started_us, self._now_us), ordered_us)",
        "started_us = report.started_us",
        "tests/integration/test_executor_clock.py"
        "::test_books_and_slots_hold_for_any_reported_time[-7200--7200]",
    ),
    stored(
        "a_log_follows_a_link",
        "scheduling/engine/executors/local_files.py",
        "_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
        "_FILE = os.O_RDONLY | os.O_NONBLOCK",
        "tests/integration/test_local_executor_hostile.py"
        "::TestSwappedFile::test_link_leaks_nothing_of_its_target[out.log]",
    ),
    # Stored rounds, and lost jobs
    stored(
        "a_damaged_round_is_not_noted",
        "scheduling/engine/scrub.py",
        "    damages = damages_of(row)\n    if damages:\n        yield",
        "    damages = damages_of(row)\n    if damages and row.pk is None:\n        yield",
        "tests/functional/test_damaged_rounds.py::TestDamagedRound"
        "::test_is_found_by_background_scrub",
    ),
    pure(
        "lost_job_is_candidate_at_once",
        "core/src/evenshare_core/policies/base.py",
        "candidates = with_places(without_backoffs(ready))\n    answer",
        "candidates = with_places(ready)\n    answer",
        f"{BACKOFF_TESTS}::TestRound",
    ),
    pure(
        "a_lost_job_waits_no_longer_than_before",
        "core/src/evenshare_core/domain/backoff.py",
        "return 0 if held_us >= STEADY_US else losses + 1",
        "return 0 if held_us >= STEADY_US else 1",
        f"{BACKOFF_TESTS}::TestBackoffRule",
    ),
    pure(
        "a_simulation_lets_a_lost_job_start_at_once",
        "core/src/evenshare_core/simulation/present.py",
        "if job.id in barred:",
        "if job.id in ():",
        f"{BACKOFF_TESTS}::TestSimulation",
    ),
    # People
    stored(
        "idempotency_key_ignores_body",
        "tenants/idempotency.py",
        "if known.digest != request.digest:",
        "if known.digest is None:",
        "tests/functional/test_api_services.py::TestIdempotencyKey::test_rejects_different_body",
    ),
    stored(
        "tenant_page_is_shown_to_all",
        "portal/common/access.py",
        "if tenant is None or not may_in_tenant(access(request), action, tenant.pk):",
        "if tenant is None:",
        "tests/functional/test_jobs.py::TestVisibility",
    ),
    # Access to the data of other tenants
    stored(
        "usage_is_listed_for_all",
        "billing/api/usage.py",
        "UsageLine.objects.filter(tenant=tenant, **self._asked())",
        "UsageLine.objects.filter(**self._asked())",
        f"{CANARY_TESTS}::test_show_own_values_and_nothing_of_the_other_tenant[own-0]",
    ),
    stored(
        "transfer_is_shown_to_uninvolved_tenants",
        "billing/selectors/accounts.py",
        "return Account.objects.filter(tenant_id=tenant_id)",
        "return Account.objects.all()",
        f"{CANARY_TESTS}::test_objects_of_the_other_tenant_look_missing",
    ),
    stored(
        "idempotency_key_is_shared_by_tenants",
        "tenants/idempotency.py",
        "return cls(tenant.pk, user.pk,",
        'return cls(Tenant.objects.order_by("id")[0].pk, user.pk,',
        f"{IDEMPOTENCY_TESTS}::test_consists_of_tenant_user_route_and_key",
    ),
    stored(
        "idempotency_key_is_shared_by_urls",
        "tenants/idempotency.py",
        "user.pk, route, key, digest)",
        'user.pk, "", key, digest)',
        f"{IDEMPOTENCY_TESTS}::test_consists_of_tenant_user_route_and_key",
    ),
    stored(
        "console_accepts_forms_of_other_sites",
        "portal/operate/views/console.py",
        'return require_http_methods(["GET", "HEAD", "POST"])(_let_in(view))',
        'letting = require_http_methods(["GET", "HEAD", "POST"])(_let_in(view))\n'
        '    letting.__dict__["csrf_exempt"] = True\n'
        "    return letting",
        "tests/functional/test_csrf.py::TestUnsafeRequests::test_are_rejected_from_other_origins",
    ),
)
