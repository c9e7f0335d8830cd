"""Errors in policies that the suite must detect: one change each."""

from __future__ import annotations

from tests.mutants.mutant import pure

POLICIES = "core/src/evenshare_core/policies"
EVEN_GANGS = f"{POLICIES}/evenshare/gangs.py"
SEVERAL_NODES = f"{POLICIES}/shared/several_nodes.py"
GANDIVA = f"{POLICIES}/gandiva_fair"
BASELINES = "research/src/evenshare_research/policies"
LTGF = "core/src/evenshare_core/policies/ltgf/policy.py"
LTGF_PICKS = "core/src/evenshare_core/policies/ltgf/picks.py"
ADMISSION = "core/src/evenshare_core/policies/shared/admission.py"
LTGF_TESTS = "tests/papers/test_ltgf.py"
GUARANTEE_TESTS = "tests/unit/core/test_guarantee.py::TestBrokenGuarantee"
ROUND_TESTS = "tests/unit/core/test_decide_round.py"
ADMISSION_TESTS = "tests/unit/core/test_admission.py"
OVERTAKE_TESTS = "tests/papers/test_evenshare.py::TestGangsThatOvertake"
GANG_TESTS = "tests/simulation/test_large_gangs.py::TestLargeGangs"
TURN_TESTS = "tests/papers/test_gandiva_fair.py"
GANDIVA_ROUNDS = "tests/papers/test_gandiva_fair_rounds.py"
TRADING_TESTS = "tests/papers/test_gandiva_fair_trading.py"
GANDIVA_PROPERTIES = "tests/papers/test_gandiva_fair_properties.py"
MARKET = f"{POLICIES}/market"
MARKET_TESTS = "tests/papers/test_market.py"
PROMISE_TESTS = "tests/papers/test_market_promises.py"
EVEN_PROMISES = f"{POLICIES}/evenshare/promises.py"
STARTS_TESTS = "tests/unit/core/test_promised_starts.py"
FAIRNESS = "core/src/evenshare_core/fairness"
SLOTS = "research/src/evenshare_research/market"
SLOTS_TESTS = "tests/papers/test_astraea_online.py"
ORDER_TESTS = "tests/papers/test_baseline_orders.py"

POLICY_MUTANTS = (
    # Fairness
    pure(
        "only_tight_preset_guarantees_quotas",
        "core/src/evenshare_core/policies/evenshare/room.py",
        "if not (self._options.is_tight or mine.is_owed()):",
        "if not self._options.is_tight:",
        f"{GUARANTEE_TESTS}::test_policy_with_guarantee_leaves_no_job_waiting",
    ),
    # Promised starts of evenshare
    pure(
        "a_promised_time_moves_later",
        EVEN_PROMISES,
        "row.job, row.gpu_type, row.gpus, row.due_us, row.made_us,",
        "row.job, row.gpu_type, row.gpus, row.due_us + 1, row.made_us,",
        f"{STARTS_TESTS}::TestSimulatedRounds",
    ),
    pure(
        "a_second_promise_is_dropped",
        EVEN_PROMISES,
        "if pool.waits(row) and",
        "if not kept and pool.waits(row) and",
        f"{STARTS_TESTS}::TestSimulatedRounds",
    ),
    pure(
        "gpus_held_for_a_promise_are_given_to_others",
        f"{POLICIES}/evenshare/promised_starts.py",
        "free.hide(node, part.held)",
        "free.hide(node, 0)",
        f"{STARTS_TESTS}::TestSimulatedRounds",
    ),
    # The order of picks, and the placement of gangs
    pure(
        "richest_tenant_first",
        "core/src/evenshare_core/policies/ltgf/queues.py",
        "return self.alloc / self.fair, 0.0",
        "return -self.alloc / self.fair, 0.0",
        f"{LTGF_TESTS}::TestTwoPhases",
    ),
    pure(
        "picks_do_not_count_in_their_round",
        LTGF_PICKS,
        "claim.alloc += job.gpus * self.lease_us",
        "claim.alloc += 0",
        f"{LTGF_TESTS}::TestTwoPhases",
    ),
    pure(
        "queue_order_ignores_earlier_jobs",
        LTGF,
        "claim.alloc += job.gpus * snapshot.lease_us",
        "claim.alloc += 0",
        "tests/unit/core/test_queue_order.py",
    ),
    pure(
        "a_refused_renewal_keeps_its_gpus",
        LTGF_PICKS,
        "free_capacity.drop(lease.placement)",
        "free_capacity.available.has(lease.placement)",
        f"{LTGF_TESTS}::TestRefusedRenewal",
    ),
    pure(
        "nodes_are_reserved_for_gang_too_early",
        "core/src/evenshare_core/policies/shared/reservation.py",
        "if since_us < late_us and",
        "if since_us <= late_us and",
        f"{LTGF_TESTS}::TestBigGangReservation",
    ),
    # Own and borrowed GPUs, limits, prices
    pure(
        "quota_is_filled_in_pick_order",
        "core/src/evenshare_core/policies/shared/terms.py",
        "sorted(renewed, key=_by_start) if len(renewed) > 1 else renewed",
        "renewed",
        f"{ROUND_TESTS}::TestOwnAndBorrowed",
    ),
    pure(
        "quota_is_used_twice",
        ADMISSION,
        "        self.left -= own\n",
        "",
        f"{ROUND_TESTS}::TestOwnAndBorrowed",
    ),
    pure(
        "a_price_at_the_maximum_is_refused",
        ADMISSION,
        "price > job.max_price_micro",
        "price >= job.max_price_micro",
        ADMISSION_TESTS,
    ),
    # Gangs that overtake, over several nodes, under evenshare
    pure(
        "a_gang_overtakes_jobs_that_received_little",
        EVEN_GANGS,
        "if not only_long or attained >= LONG_GPU_US:",
        "if not only_long or attained >= 0:",
        f"{OVERTAKE_TESTS}::test_spares_jobs_that_received_little",
    ),
    pure(
        "gang_overtakes_jobs_ahead_of_it",
        EVEN_GANGS,
        "if node in by_node and (before is None or before < self._rank(row[1])):",
        "if node in by_node:",
        f"{OVERTAKE_TESTS}::test_long_gang_waits_until_ahead_in_order",
    ),
    pure(
        "gang_takes_deserved_gpus_of_others",
        EVEN_GANGS,
        "if before is None or tenant != one.job.tenant:",
        "if before is None:",
        f"{OVERTAKE_TESTS}::test_spares_tenants_that_would_fall_below_share",
    ),
    pure(
        "rest_of_gang_nodes_is_given_to_others",
        EVEN_GANGS,
        "if left:",
        "if not left:",
        f"{OVERTAKE_TESTS}::test_leftover_gpus_of_cleared_node_stay_idle",
    ),
    pure(
        "a_round_in_which_a_gang_overtakes_is_skipped",
        EVEN_GANGS,
        "return max(free_us, long_us)",
        "return None",
        f"{GANG_TESTS}::test_skipped_rounds_keep_books[options0-900]",
        f"{GANG_TESTS}::test_skipped_rounds_keep_books[options1-3600]",
    ),
    pure(
        "more_leases_than_needed_end_for_a_gang",
        SEVERAL_NODES,
        "key = (-part.gpus, len(part.cleared.victims), part.taken - part.gpus, node)",
        "key = (-part.gpus, 0, part.taken - part.gpus, node)",
        f"{OVERTAKE_TESTS}::test_picks_nodes_with_most_gpus_and_fewest_leases",
    ),
    pure(
        "spare_gpus_of_tenant_count_on_each_node",
        SEVERAL_NODES,
        "left_of[lease.tenant] = limit - lease.gpus",
        "left_of[lease.tenant] = limit",
        f"{OVERTAKE_TESTS}::test_spares_tenants_that_would_fall_below_share",
    ),
    # Turns, tickets, homes and trades of gandiva_fair
    pure(
        "the_last_pass_goes_first",
        f"{GANDIVA}/stride.py",
        "queue.sort()",
        "queue.sort(reverse=True)",
        f"{TURN_TESTS}::TestOneNode",
    ),
    pure(
        "a_gang_pays_for_one_gpu",
        f"{GANDIVA}/stride.py",
        "one.passes.served_gpu_us += job.gpus * self.term_us",
        "one.passes.served_gpu_us += self.term_us",
        f"{TURN_TESTS}::TestOneNode",
    ),
    pure(
        "small_jobs_of_node_pay_only_for_own_gpus",
        f"{GANDIVA}/stride.py",
        "gpus = row.gpus[node] if is_whole else gpus",
        "gpus = gpus if is_whole else gpus",
        f"{TURN_TESTS}::TestTwoNodes",
    ),
    pure(
        "pinned_quota_is_traded",
        f"{GANDIVA}/tickets.py",
        "mine[key] = max(0, mine.get(key, 0) - gpus * GPU_MICRO)",
        "mine[key] = mine.get(key, 0)",
        f"{TURN_TESTS}::TestTrades::test_keeps_quota_needed_by_pinned_jobs",
    ),
    pure(
        "unlent_quota_is_traded",
        f"{GANDIVA}/tickets.py",
        "if profile is None or tenant in keepers or",
        "if profile is None or",
        f"{TURN_TESTS}::TestTrades::test_skips_tenants_that_keep_quota",
    ),
    pure(
        "trades_ignore_second_price",
        f"{GANDIVA}/trading.py",
        "price = second if low <= second <= high else (low + high) / 2",
        "price = (low + high) / 2",
        f"{TRADING_TESTS}::TestTable3",
    ),
    pure(
        "the_oldest_trade_is_undone_first",
        f"{GANDIVA}/trading.py",
        "trade = standing.pop()",
        "trade = standing.pop(0)",
        f"{TRADING_TESTS}::TestUndo::test_undoes_newest_first_until_quota_suffices",
    ),
    pure(
        "small_jobs_are_spread_over_idle_nodes",
        f"{GANDIVA}/homes.py",
        "home = self._room.find(gpus)",
        "home = None",
        f"{GANDIVA_ROUNDS}::TestIdleGpus::test_small_jobs_share_node_before_gang_arrives",
    ),
    pure(
        "new_job_gets_turns_from_before_its_arrival",
        f"{GANDIVA}/homes.py",
        "one.passes.raise_to(least_pass_us(row, one))",
        "one.passes.raise_to(0)",
        f"{GANDIVA_ROUNDS}",
    ),
    pure(
        "stale_loads_order_nodes",
        f"{GANDIVA}/loads.py",
        "if -load == self._load[node] and self._is_shared(node):",
        "if self._is_shared(node):",
        f"{GANDIVA_PROPERTIES}::TestNodesByLoad",
    ),
    pure(
        "gpus_of_full_jobs_are_given_twice",
        f"{GANDIVA}/rates.py",
        "full += its_most",
        "full += 0",
        f"{TURN_TESTS}::TestTwoNodes",
    ),
    # Baselines
    pure(
        "allox_assumes_idle_types",
        f"{BASELINES}/allox.py",
        "= positions * time_ms + free_ms[name]",
        "= positions * time_ms",
        "tests/papers/test_allox.py::TestMatching::test_counts_remaining_time_of_running_jobs",
    ),
    pure(
        "batch_sche_plans_two_jobs_on_the_same_gpus",
        f"{BASELINES}/batch_sche.py",
        ".take(self._part(job, name), start_us, length_us)",
        ".take(0, start_us, length_us)",
        "tests/papers/test_batch_sche.py::TestBackfillPlan",
    ),
    pure(
        "drf_ranks_by_past_before_share",
        f"{POLICIES}/orders/drf.py",
        "return (not weight, share, past, tenant)",
        "return (not weight, past, share, tenant)",
        "tests/papers/test_drf.py",
    ),
    pure(
        "hived_ends_protected_spot_jobs",
        f"{BASELINES}/hived.py",
        "and lease.started_us <= began_us",
        "and lease.started_us <= snapshot.at_us",
        "tests/papers/test_hived.py::TestOwners::test_minimum_runtime_applies_to_unprotected_leases",
    ),
    pure(
        "optimus_gain_ignores_gang_size",
        f"{BASELINES}/optimus.py",
        "return Fraction(min(lease_us, left), left * one.job.gpus)",
        "return Fraction(min(lease_us, left), left)",
        f"{ORDER_TESTS}::TestOptimus",
    ),
    pure(
        "themis_forgets_how_long_a_job_waited",
        f"{BASELINES}/themis.py",
        "return Fraction(at_us - one.job.submitted_us + left, alone)",
        "return Fraction(left, alone)",
        f"{ORDER_TESTS}::TestThemis",
    ),
    pure(
        "tiresias_never_promotes",
        f"{BASELINES}/tiresias_l.py",
        "return 0 if is_promoted(one) else options.queue_of(job_received(one.sums, at_us))",
        "return options.queue_of(job_received(one.sums, at_us))",
        f"{ORDER_TESTS}::TestTiresias",
    ),
    # The market
    pure(
        "borrower_is_admitted_at_price_without_itself",
        f"{MARKET}/windows.py",
        "return np.asarray(np.maximum(before, with_itself), np.int64)",
        "return before",
        f"{MARKET_TESTS}::TestBorrower::test_bid_waits_for_first_profitable_slot",
    ),
    pure(
        "a_borrowed_lease_is_renewed_above_its_value",
        f"{MARKET}/picks.py",
        "if value < price:",
        "if value < 0:",
        f"{MARKET_TESTS}::TestRenewal::test_refuses_lease_worth_less_than_posted_price",
    ),
    pure(
        "borrowers_are_renewed_before_owners_start",
        f"{MARKET}/picks.py",
        "        left = self.give_own(waiting)\n        self.renew_borrowed()",
        "        self.renew_borrowed()\n        left = self.give_own(waiting)",
        f"{MARKET_TESTS}::TestOwnQuota::test_takes_gpus_of_expired_borrowed_lease",
    ),
    pure(
        "no_node_is_cleared_for_an_owner",
        f"{MARKET}/picks.py",
        "            free_capacity.hold_back(((node_id, job.gpus),))",
        "            pass",
        f"{MARKET_TESTS}::TestOwnQuota::test_clears_node_lease_by_lease_for_gang",
    ),
    pure(
        "the_node_with_most_gpus_free_is_kept_for_an_owner",
        f"{MARKET}/clearing.py",
        "return (end_us, -free, node_id)",
        "return (-free, end_us, node_id)",
        f"{PROMISE_TESTS}::TestQuotaGuarantee::test_reserves_node_that_clears_first",
    ),
    pure(
        "leases_that_owners_took_still_count_as_own",
        f"{MARKET}/picks.py",
        "if len(kept) < len(self._asking):",
        "if not self._asking:",
        f"{PROMISE_TESTS}::TestPartlyBorrowedLease",
    ),
    pure(
        "a_lease_on_a_lost_type_is_renewed_as_own",
        f"{MARKET}/picks.py",
        "        if is_own:\n",
        "        if is_own or one is None:\n",
        "tests/papers/test_market_rounds.py::TestUnusableGpuType",
    ),
    pure(
        "plan_ignores_maximum_price",
        f"{MARKET}/job_values.py",
        "return micro if most is None else min(micro, most)",
        "return micro",
        "tests/papers/test_market_rounds.py::TestMaxPrice",
    ),
    pure(
        "certificate_allows_price_of_twice_the_value",
        f"{FAIRNESS}/job_value.py",
        "price_micro > hourly + tolerance:",
        "price_micro > 2 * hourly + tolerance:",
        f"{PROMISE_TESTS}::TestIndividualRationality",
    ),
    pure(
        "certificate_allows_borrowers_to_delay_owner",
        f"{FAIRNESS}/owners.py",
        "after_us is None or after_us > before_us:",
        "after_us is None:",
        f"{PROMISE_TESTS}::TestQuotaGuarantee",
    ),
    pure(
        "certificate_allows_charge_for_own_quota",
        f"{FAIRNESS}/owners.py",
        "if self._own[tenant, name] < self._quotas.get((tenant, name), 0)",
        "if self._own[tenant, name] < 0",
        f"{PROMISE_TESTS}::TestQuotaGuarantee",
    ),
    pure(
        "theta_counts_values_for_ever",
        f"{MARKET}/thetas.py",
        "if day >= oldest",
        "if day >= 0",
        f"{MARKET_TESTS}::TestTheta::test_follows_highest_job_value_of_thirty_days",
    ),
    pure(
        "the_best_start_is_the_first_that_gains",
        f"{MARKET}/search.py",
        "if low > high or most(low, high) <= best_gain:",
        "if low > high or best_gain > 0:",
        f"{MARKET_TESTS}::TestBorrower::test_slowly_decaying_job_waits_for_lower_price",
    ),
    pure(
        "a_linear_utility_does_not_fall",
        "core/src/evenshare_core/domain/utilities.py",
        "round_half_even(self.rate_micro * after_us, HOUR_US)",
        "round_half_even(self.rate_micro, HOUR_US)",
        "tests/unit/core/test_utilities.py::TestUtility::test_linear_starts_at_g_and_changes_by_k_per_hour",
    ),
    pure(
        "a_session_of_the_market_sleeps_past_a_batch",
        f"{MARKET}/session.py",
        "return max(at_us, self._stays_us)",
        "return None",
        "tests/simulation/test_skipped_rounds.py::TestSkippedRounds::test_change_nothing_in_quiet_pool",
    ),
    # The market of Astraea-online, in slots
    pure(
        "a_window_has_a_slot_too_many",
        f"{SLOTS}/max_revenue.py",
        "fits = (starts >= first) & (starts + slots <= book.slots)",
        "fits = (starts >= first) & (starts + slots < book.slots)",
        f"{SLOTS_TESTS}::TestPaperErrata",
    ),
    pure(
        "servers_with_too_few_ps_are_used",
        f"{SLOTS}/max_revenue.py",
        "np.where(needs <= room, needs, _TOO_MANY)",
        "np.where(room >= 1, np.minimum(needs, room), _TOO_MANY)",
        f"{SLOTS_TESTS}::TestPaperErrata",
    ),
    pure(
        "small_servers_are_filled_last",
        f"{SLOTS}/max_revenue.py",
        'for server in np.argsort(free, kind="stable").tolist():',
        'for server in np.argsort(-free, kind="stable").tolist():',
        f"{SLOTS_TESTS}::TestFastImplementation",
    ),
    pure(
        "lent_quota_counts_as_own_use",
        f"{SLOTS}/book.py",
        "        if not schedule.borrowed:\n",
        "        if True:\n",
        "tests/papers/test_astraea_online_properties.py::TestFixedInterval",
    ),
    pure(
        "a_payment_to_oneself_is_lost",
        f"{SLOTS}/gains.py",
        "                if amount:\n",
        "                if amount and owner != schedule.tenant:\n",
        "tests/papers/test_astraea_online_properties.py::TestRunInvariants",
    ),
)
