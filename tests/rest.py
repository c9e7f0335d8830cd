"""The tests that `make test` leaves to `make test-rest`, as read by tests/tiers.py.

Whole files if similar ones stay or they show a detail; otherwise single tests, of which cheaper or
simpler variants stay.
"""

from __future__ import annotations

# By folder, names of files without `test_` and `.py`.
FILES = {
    "browser": """
        accessible api_docs certificate_pages charts console_errors dashboard job_curves
        job_list job_usage long_texts operator pools_pages preemptions rounds_pages sweeps
        verify_pages
    """,
    "functional": """
        api_contribution api_income api_nasty api_odd_names api_operate_fields api_prices
        api_races archived_rounds bent_chain bundle_canaries chain_alerts cli_late_starts
        cli_quota cli_reads cli_statement cli_sweeps compare_jobs counterfactual_pages
        deadline_lists dry_run_pages end_lease executor_alerts executor_options
        extreme_inputs feature_checks first_job fragments growth income_page
        job_answers_pages job_curves job_estimate_pages job_files job_list_page job_phases
        job_tags job_usage late_rounds links long_queues losses measured_speeds_pages
        metric_pages metrics notifications odd_rows offers overclaims overload packing
        plurals polls pool_links pool_throughput posted_price_page preemption_pages
        price_board price_file profiles_pages profiling_pages queue_places quota_promises
        quota_use refusals rest_corpus round_answers settings_page simulations_pages
        start_pages submit_groups submit_yaml sweep_pages toy_policy trades two_clocks
        verify_pages zones
    """,
    "integration": """
        archive deadline_preview deadlines_pool forecast_turns forecasts game_day hostile_files
        import_trace income_factors interventions job_answers job_deadlines job_estimates
        learning_curves local_evaluations local_executor_backoff local_executor_limits
        local_executor_rounds local_executor_tree local_iterations local_usage market_histories
        market_prospects measured_speeds offers operate operate_quotas policy_comparison
        postgres_identity price_forecasts profiles profiling profiling_local retention sealing
        session_proxy settings_impact simulations slurm_check_pool slurm_executor_contract
        slurm_sessions slurm_starting slurm_usage slurm_users_hostile slurm_users_settings
        sync_quota unreadable
    """,
    "papers": """
        market_optimum
    """,
    "simulation": """
        export_pool live_market live_surcharges live_trades metrics policy_chaos
        simulate_command simulate_inputs simulator_figures start_estimates term_lengths
        tune_lease
    """,
    "unit": """
        benchmarks reproduce_papers reproduce_unisched
    """,
    "unit/core": """
        wheel
    """,
}
# By file, prefixes of the names of classes and tests.
TESTS = {
    "functional/test_replays.py": (
        "TestOperator",
        "TestOddRows",
        "TestTenant::test_sees_it",
        "TestTenant::test_unfinished",
    ),
    "functional/test_job_queue.py": ("TestPage", "TestPeople::test_rule_is_shown"),
    "integration/test_job_holds.py": ("TestPriorities::test_order",),
    "browser/test_feature_checks.py": ("TestAccess", "TestOpenPage"),
    "browser/test_offers.py": ("TestManager::test_page_fits_window_and_is_accessible",),
    "browser/test_submit.py": (
        "TestFormAndYaml",
        "TestKeyboard",
        "TestLog",
        "TestPhone",
        "TestSubmission::test_running_job_shows_progress",
    ),
    "browser/test_what_if.py": (
        "TestEarlyChoice",
        "TestSimulation::test_failure_explains_cause",
        "TestSimulation::test_is_cancelled_by_keyboard",
        "TestSimulation::test_is_requested_watched_and_read",
    ),
    "functional/test_canaries.py": (
        "TestUrls::test_objects_of_the_other_tenant_look_missing",
        *(
            f"TestUrls::test_show_own_values_and_nothing_of_the_other_tenant[{case}"
            for case in ("own-1", "pseudonyms", "full")
        ),
    ),
    "functional/test_cli.py": (
        "TestJobCommands::test_job_preempted_with_notice_produces_same_output",
    ),
    "functional/test_csrf.py": tuple(
        f"TestUnsafeRequests::test_are_rejected_from_other_origins[{turn}]" for turn in (1, 2, 3)
    ),
    "functional/test_example_policy.py": (
        "TestLiveRound::test_is_verified_by_tenant_with_the_package",
    ),
    "functional/test_matrix.py": (
        *(
            f"TestAccess::test_limits_changes_by_finance_and_auditors[{case}"
            for case in ("auditor", "finance-1", "finance-2", "finance-3")
        ),
        *(
            f"TestAccess::test_every_role_receives_the_status_of_the_table[{turn}]"
            for turn in (1, 2, 3)
        ),
    ),
    "functional/test_missing_policy.py": ("TestUrls",),
    "functional/test_pseudo_locale.py": ("TestOddStates",),
    "functional/test_quota_requests.py": (
        "TestQuotaRequest::test_can_be_approved_with_another_number",
        "TestQuotaRequest::test_is_open_again",
        "TestQuotaRequest::test_only_one",
        "TestQuotaRequest::test_refuses",
    ),
    "functional/test_row_security.py": ("TestUrls::test_answer_the_same_without_row_security[1]",),
    "functional/test_sdk.py": (
        "TestSdk::test_documented_examples_run",
        "TestSdk::test_lists_by_cursors_and_reads_jobs",
        "TestSdk::test_raises_errors_by_class",
    ),
    "functional/test_verify_live.py": (
        "TestDatabaseOwner",
        "TestTenant::test_heads_of_two_tenants_agree",
        "TestTenant::test_reports_result_to_portal_unless_disabled",
        "TestTenant::test_verifies_after_the_log_has_grown",
    ),
    "integration/test_backup_restore.py": (
        "TestBackup",
        "TestRestoreDrill",
        "TestRestoreRefusal",
    ),
    "integration/test_executor_clock.py": (
        "test_books_and_slots_hold_for_any_reported_time[-1--1",
        "test_books_and_slots_hold_for_any_reported_time[-1000000000000",
        "test_books_and_slots_hold_for_any_reported_time[-7200-7200",
        "test_books_and_slots_hold_for_any_reported_time[1-1",
        "test_books_and_slots_hold_for_any_reported_time[7200",
    ),
    "integration/test_fake_executor.py": (
        "TestFakeExecutor::test_breaker_skips_unreachable_engine",
        "TestFakeExecutor::test_failing_launches",
        "TestFakeExecutor::test_failing_listings",
        "TestFakeExecutor::test_mass_disappearance",
        "TestFakeExecutor::test_operator_can_accept_mass_loss",
        "TestFakeExecutor::test_reconcile_is_idempotent",
        "TestFakeExecutor::test_settles_every_pair_of_record_and_process",
        "TestFakeExecutor::test_failing_stops",
        "TestFakeExecutor::test_unlisted_lease_is_lost_after_silence",
    ),
    "integration/test_outbox_gather.py": (
        "TestBudgets",
        "TestDigest",
        "TestGathering::test_reports_changed_answers_to_deadlines",
        "TestGathering::test_says_nothing_of_events_before_the_subscription_or_while_paused",
        "TestGathering::test_takes_the_same_few_queries_for_a_thousand_events",
    ),
    "integration/test_outbox_send.py": (
        "TestSending::test_continues_after_a_batch",
        "TestSending::test_deletes_old_messages_that_are_not_due",
        "TestSending::test_sends_a_digest_as_one_mail",
        "TestSending::test_sends_only_its_question_to_an_unconfirmed_address",
        "TestSending::test_switches_a_receiver_off_that_is_gone",
        "TestSending::test_treats_an_unexpected_error_as_a_failed_attempt",
    ),
    "integration/test_late_start_statements.py": ("test_credit_of_cancelled_job_is_proven",),
    "integration/test_late_starts.py": (
        "TestCredit::test_belongs_to_hour_of_round_that_found_it",
        "TestCredit::test_is_part_of_statement",
        "TestCredit::test_is_rounded_to_a_micro_credit",
        "TestCredit::test_start_in_time_earns_nothing",
        "TestExcuse::test_job_cancelled_in_time_earns_nothing",
        "TestRate::test_applies_from_next_promise",
        "TestRate::test_is_that_of_round_that_promised",
        "TestSettlement::test_missing_credit_is_reported",
        "TestSettlement::test_planted_credit_is_reported",
        "TestSettlement::test_repeated_posts_nothing_new",
    ),
    "integration/test_local_executor_contract.py": (
        "TestLocalExecutor::test_breaker_skips_unreachable_engine",
        "TestLocalExecutor::test_failing_launches",
        "TestLocalExecutor::test_failing_listings",
        "TestLocalExecutor::test_mass_disappearance",
        "TestLocalExecutor::test_operator_can_accept_mass_loss",
        "TestLocalExecutor::test_reconcile_is_idempotent",
        "TestLocalExecutor::test_settles_every_pair_of_record_and_process",
        "TestLocalExecutor::test_failing_stops",
        "TestLocalExecutor::test_unlisted_lease_is_lost_after_silence",
    ),
    "integration/test_local_executor_hostile.py": (
        "test_manipulated_files_leak_nothing_and_harm_no_other_job[device",
        "test_manipulated_files_leak_nothing_and_harm_no_other_job[file",
        "test_manipulated_files_leak_nothing_and_harm_no_other_job[folder",
        "test_manipulated_files_leak_nothing_and_harm_no_other_job[huge",
        "test_manipulated_files_leak_nothing_and_harm_no_other_job[loop",
        "test_manipulated_files_leak_nothing_and_harm_no_other_job[nothing",
    ),
    "integration/test_metering_live.py": ("TestDemo::test_keeps_sound_books_over_hours_of_rounds",),
    "integration/test_mixed_pool.py": (
        "TestMeasuring",
        "TestPolicySwitch",
    ),
    "integration/test_offer_histories.py": (
        "TestOfferHistories::test_lent_amounts_match_plain_model[1]",
    ),
    "integration/test_pool_memory.py": (
        "TestPoolMemory::test_survives_random_sequences_of_changes",
    ),
    "integration/test_production.py": (
        "TestUnsafeProcess::test_refuses_to_start[beat",
        "TestUnsafeProcess::test_refuses_to_start[default",
        "TestUnsafeProcess::test_refuses_to_start[rounds",
    ),
    "integration/test_run_slurm.py": (
        "TestClusterDaemon",
        "TestJobOfPool",
        "TestShutdown",
    ),
    "integration/test_slurm_calls.py": ("TestStop",),
    "integration/test_slurm_check.py": ("TestInvalidCluster",),
    "integration/test_slurm_cluster.py": (
        "TestCluster::test_runs_next_to_other_cluster",
        "TestClusterEnd::test_cluster_ends_if_its_starter_is_killed",
        "TestClusterEnd::test_leaves_no_process_without_controller",
        "TestClusterEnd::test_next_start_marks_old_jobs_as_cancelled",
        "TestClusterStart::test_rejects_folder_of_running_cluster_and_ends_nothing",
        "TestClusterStart::test_too_long_path_works_with_separate_socket_folder",
        "TestKilledController",
        "TestLostNode",
    ),
    "integration/test_slurm_executor.py": (
        "TestForeignJob",
        "TestJobCancelledBySlurm",
        "TestJobEnvironment",
        "TestKilledController::test_changes_nothing_while_it_is_away",
        "TestLaunch::test_late_refusal_leaves_running_job_unchanged",
        "TestLaunch::test_waits_for_drained_partition",
        "TestLostNode::test_returning_node_ends_its_old_job",
        "TestManipulatedFolder",
        "TestProgramEnd::test_gang_ends_with_exit_code_of_failed_rank",
        "TestStop::test_kills_stubborn_job_after_grace",
        "TestStop::test_lets_every_node_checkpoint[gpus1",
        "TestStop::test_lets_every_node_checkpoint[gpus2",
        "TestStop::test_lets_every_node_checkpoint[gpus3",
        "TestTimeLimit",
    ),
    "integration/test_slurm_gang_runtime.py": (
        "TestKilledNode",
        "TestPreemptedGang",
        "TestRankOfOlderLease",
        "TestUnevenGang::test_single_node_job_has_same_variables",
    ),
    "integration/test_slurm_nodes.py": (
        "TestMissingNode",
        "TestNodeDrainedBySlurm::test_stays_drained_after_drain_and_resume_in_portal",
        "TestSlurmAccount",
    ),
    "integration/test_slurm_restd.py": (
        "TestNodes",
        "TestQueue::test_is_available_over_tcp",
        "TestSlurmrestd",
    ),
    "integration/test_slurm_restd_pool.py": (
        "TestCheck",
        "TestLaunch::test_gang_runs_on_its_nodes_with_their_gpus[gpus0",
        "TestLaunch::test_job_refused_by_slurm_ends_with_reason",
        "TestLaunch::test_needs_no_slurm_tool",
        "TestLaunch::test_only_submits_option_uses_tools_for_other_calls",
        "TestLaunch::test_passes_nothing_of_portal_environment",
    ),
    "integration/test_slurm_rounds.py": (
        "TestEveryFaultPoint",
        "TestJobsOfThreeTenants::test_end_once_and_are_charged_once[evenshare",
        "TestJobsOfThreeTenants::test_end_once_and_are_charged_once[oef",
    ),
    "integration/test_slurm_shadow.py": (
        "TestBusyPartition::test_report_names_every_job_and_changes_none",
        "TestBusyPartition::test_shows_what_would_be_decided_now",
        "TestMixedGangs",
        "TestPool::test_supplies_cluster_policy_and_lengths",
    ),
    "integration/test_slurm_users.py": (
        "TestForgedFiles",
        "TestJob::test_cannot_read_job_of_other_tenant",
        "TestJob::test_cannot_redirect_writes_of_portal",
        "TestJob::test_checkpoints_and_resumes",
        "TestJobWithForgedEnd",
        "TestJobWithForgedToken",
    ),
    "integration/test_supervisor.py": (
        "TestHangingWorker",
        "TestStopping",
    ),
    "integration/test_reported_runs.py": ("TestTraining::test_hostile",),
    "mutants/test_mutants.py": ("test_named_tests_pass_on_unchanged_code",),
    "papers/test_gandiva_fair.py": (
        "TestManyNodes::test_section_5_4_shares_on_three_gpu_types",
        "TestTrades::test_section_5_5_gains_end_with_undo_on_departure",
    ),
    "papers/test_unisched_curves.py": ("TestDurationErrorAtHalfTraining",),
    "papers/test_unisched_estimator.py": ("TestGavelThroughputs",),
    "papers/test_unisched_selector.py": (
        "TestOptimum::test_plan_oracle_compact_and_bound_are_ordered[0]",
        "TestOptimum::test_plan_oracle_compact_and_bound_are_ordered[4]",
    ),
    "simulation/test_fast_forward.py": (
        "TestRounds::test_decisions_match_full_snapshot[fifo-0",
        "TestRounds::test_decisions_match_full_snapshot[ltgf-9]",
        "TestRounds::test_decisions_match_full_snapshot[market-0",
        "TestWholeRun::test_skips_rounds_only_if_work_conserving",
    ),
    "simulation/test_large_gangs.py": (
        "TestLargeGangs::test_kept_queues_match_snapshots",
        "TestLargeGangs::test_skipped_rounds_keep_books[options2",
        "TestLargeGangs::test_skipped_rounds_keep_books[options3",
        "TestLargeGangs::test_skipped_rounds_keep_books[options4",
        "TestLargeGangs::test_skipped_rounds_keep_books[options5",
    ),
    "simulation/test_live_equals_simulated.py": (
        "TestSeededHour::test_leases_terms_and_charges_match_live_pool[20-fifo",
        "TestSeededHour::test_leases_terms_and_charges_match_live_pool[60-",
        "TestSeededHourOnThreeTypes::test_leases_terms_and_charges_match_live_pool[20-fifo",
        "TestSeededHourOnThreeTypes::test_leases_terms_and_charges_match_live_pool[20-ltgf",
        "TestSeededHourWithCpusAndMemory::test_leases_terms_and_charges_match_live_pool[20-12",
        "TestSeededHourWithPreemption::test_leases_terms_and_charges_match_live_pool[20-900",
    ),
    "simulation/test_loop.py": (
        "test_survives_seeded_histories[1",
        "test_survives_seeded_histories[2",
        "test_survives_seeded_histories[3",
        "test_survives_seeded_histories[4",
    ),
    "simulation/test_skipped_rounds.py": (
        "TestRenewalOnlyRounds",
        "TestSkippedRounds::test_change_nothing_under_churn_and_limits",
    ),
    "simulation/test_surcharges.py": ("TestKeptRounds",),
    "simulation/test_sweep_turns.py": ("TestSweeps::test_keep_their_limits_in_more_histories",),
    "unit/client/test_gang.py": (
        "TestCheckpointSet::test_is_readable_as_whole_by_other_number_of_ranks[1-2",
        "TestCheckpointSet::test_is_readable_as_whole_by_other_number_of_ranks[2-",
        "TestKilledRank::test_at_end_of_lease_leaves_consistent_set[complete-1",
        "TestKilledRank::test_at_end_of_lease_leaves_consistent_set[half",
        "TestKilledRank::test_at_end_of_lease_leaves_consistent_set[not",
        "TestKilledRank::test_at_end_of_lease_leaves_consistent_set[pos",
        "TestKilledRank::test_at_end_of_lease_leaves_consistent_set[ren",
        "TestKilledRank::test_at_end_of_lease_leaves_consistent_set[written-0",
        "TestKilledRank::test_at_start_of_lease_loses_nothing[whole",
        "TestKilledRank::test_without_signal_leaves_last_written_set",
        "TestPreemptedGang::test_at_last_step_finishes_normally",
        "TestPreemptedGang::test_reports_progress_only_from_rank_0",
        "TestPreemptedGang::test_signal_to_one_rank_stops_all",
        "TestPreemptedGang::test_with_step_longer_than_grace_keeps_previous_step",
        "TestPreemptedGang::test_with_stuck_rank_keeps_previous_checkpoint_set",
    ),
    "unit/client/test_install.py": ("TestVerifyExtra",),
    "unit/client/test_job_metrics.py": ("TestTraining::test_continues",),
    "unit/client/test_lease.py": (
        "TestPreemptedJob::test_example_loses_nothing_in_two_preemptions",
    ),
    "unit/portal/test_site_imports.py": ("TestSite::test_imports_only_locked_packages",),
    "unit/scheduling/test_shim_usage.py": (
        "TestHangingNvidiaSmi",
        "TestProgramGpus::test_are_not_queried_if_job_has_none[N",
        "TestProgramGpus::test_are_not_queried_if_job_has_none[]",
        "TestProgramGpus::test_queries_stop_after_three_failures",
    ),
}
REST = (
    *(
        f"tests/{folder}/test_{name}.py"
        for folder, names in FILES.items()
        for name in names.split()
    ),
    *(f"tests/{path}::{name}" for path, names in TESTS.items() for name in names),
)
