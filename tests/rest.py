"""The tests that `make test` leaves to `make test-rest`, as read by tests/tiers.py.

Whole files if similar ones stay or they show a detail; otherwise single tests, of which cheaper or
simpler variants stay.
"""

from __future__ import annotations

# By folder, names of files without `test_` and `.py`.
FILES = {
    "browser": """
        accessible api_docs certificate_pages charts console_errors dashboard job_usage operator
        pools_pages preemptions rounds_pages verify_pages
    """,
    "functional": """
        api_contribution api_income api_nasty api_odd_names api_operate_fields api_prices api_races
        archived_rounds bent_chain bundle_canaries chain_alerts cli_statement counterfactual_pages
        deadline_lists dry_run_pages end_lease executor_alerts executor_options extreme_inputs
        feature_checks fragments income_page job_answers_pages job_estimate_pages job_phases
        first_job growth job_usage late_rounds links long_queues losses
        measured_speeds_pages metric_pages metrics odd_rows odd_states offers overclaims
        overload packing plurals polls pool_links pool_throughput posted_price_page
        preemption_pages price_board price_file profiles_pages profiling_pages queue_places
        quota_promises refusals rest_corpus round_answers settings_page simulations_pages
        start_pages toy_policy trades two_clocks verify_pages
    """,
    "integration": """
        archive deadline_preview deadlines_pool forecast_turns forecasts game_day hostile_files
        import_trace
        income_factors interventions job_answers job_deadlines job_estimates learning_curves
        local_evaluations local_executor_backoff local_executor_limits local_executor_rounds
        local_iterations local_usage market_histories market_prospects measured_speeds offers
        operate operate_quotas policy_comparison postgres_identity price_forecasts profiles
        profiling profiling_local retention sealing settings_impact simulations slurm_check_pool
        slurm_executor_contract slurm_starting slurm_usage slurm_users_hostile
        slurm_users_settings sync_quota unreadable
    """,
    "papers": """
        market_optimum
    """,
    "simulation": """
        export_pool live_market live_surcharges live_trades metrics policy_chaos simulate_command
        simulate_inputs simulator_figures start_estimates term_lengths tune_lease
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
    "browser/test_feature_checks.py": ("TestAnOpenPage",),
    "browser/test_offers.py": ("TestAManager::test_sees",),
    "browser/test_submit.py": (
        "TestBothSides",
        "TestByKeyboard",
        "TestOnAPhone",
        "TestTheForm::test_shows_progress",
        "TestTheLog",
    ),
    "browser/test_what_if.py": (
        "TestAChoice",
        "TestAnOperator::test_asks",
        "TestAnOperator::test_cancels",
        "TestAnOperator::test_is_told",
    ),
    "functional/test_canaries.py": (
        "TestEveryAddress::test_shows_its_own_and_nothing_of_the_other[full]",
        "TestEveryAddress::test_shows_its_own_and_nothing_of_the_other[pseudonyms]",
        "TestEveryAddress::test_with_what_is_the_others",
    ),
    "functional/test_cli.py": ("TestTheFirstSubmission::test_is_preempted_with_notice",),
    "functional/test_verify_live.py": (
        "TestATenant::test_agrees",
        "TestATenant::test_tells",
        "TestATenant::test_verifies_a_log",
        "TestTheOwner",
    ),
    "integration/test_backup_restore.py": (
        "TestABackup",
        "TestARestoreIsRefused",
        "TestTheDrill",
    ),
    "integration/test_executor_clock.py": (
        "test_books_and_slots_hold_whatever_it_says[-1--1",
        "test_books_and_slots_hold_whatever_it_says[-1000000000000",
        "test_books_and_slots_hold_whatever_it_says[-7200-7200",
        "test_books_and_slots_hold_whatever_it_says[1-1",
        "test_books_and_slots_hold_whatever_it_says[7200",
    ),
    "integration/test_fake_executor.py": (
        "TestTheFakeExecutor::test_a_lease_that_is_left_out",
        "TestTheFakeExecutor::test_an_engine",
        "TestTheFakeExecutor::test_every_pair",
        "TestTheFakeExecutor::test_launches_that_go_wrong",
        "TestTheFakeExecutor::test_listings",
        "TestTheFakeExecutor::test_many",
        "TestTheFakeExecutor::test_stops",
        "TestTheFakeExecutor::test_twice",
    ),
    "integration/test_local_executor_contract.py": (
        "TestTheLocalExecutor::test_a_lease_that_is_left_out",
        "TestTheLocalExecutor::test_an_engine",
        "TestTheLocalExecutor::test_every_pair",
        "TestTheLocalExecutor::test_launches_that_go_wrong",
        "TestTheLocalExecutor::test_listings",
        "TestTheLocalExecutor::test_many",
        "TestTheLocalExecutor::test_stops",
        "TestTheLocalExecutor::test_twice",
    ),
    "integration/test_local_executor_hostile.py": (
        "test_whatever_it_makes_of_a_file_others_run_on_and_nothing_leaks[device",
        "test_whatever_it_makes_of_a_file_others_run_on_and_nothing_leaks[file",
        "test_whatever_it_makes_of_a_file_others_run_on_and_nothing_leaks[folder",
        "test_whatever_it_makes_of_a_file_others_run_on_and_nothing_leaks[huge",
        "test_whatever_it_makes_of_a_file_others_run_on_and_nothing_leaks[loop",
        "test_whatever_it_makes_of_a_file_others_run_on_and_nothing_leaks[nothing",
    ),
    "integration/test_local_executor_tree.py": (
        "TestTheEndOfThePortal::test_by_ctrl_c",
        "TestTheEndOfThePortal::test_by_kill_9_of_everything",
    ),
    "integration/test_metering_live.py": ("TestTheDemo::test_keeps_its_books_over_hours_of",),
    "integration/test_mixed_pool.py": (
        "TestASwitchOfThePolicy",
        "TestMeasuring",
    ),
    "integration/test_offer_histories.py": (
        "TestAnyHistory::test_lends_what_a_plain_model_lends[1]",
    ),
    "integration/test_pool_memory.py": ("TestWhatAPoolRemembers::test_survives",),
    "integration/test_production.py": (
        "TestAnUnsafeProcess::test_does_not_start[beat",
        "TestAnUnsafeProcess::test_does_not_start[default",
        "TestAnUnsafeProcess::test_does_not_start[rounds",
    ),
    "integration/test_run_slurm.py": (
        "TestADaemonOfTheCluster",
        "TestAJobOfThePool",
        "TestTheEnd",
    ),
    "integration/test_slurm_calls.py": ("TestAStop",),
    "integration/test_slurm_check.py": ("TestAClusterThatIsNot",),
    "integration/test_slurm_cluster.py": (
        "TestACluster::test_runs_beside_another",
        "TestAKilledController",
        "TestALostNode",
        "TestAStart::test_beside",
        "TestAStart::test_in_too_deep_a_folder_may",
        "TestTheEnd::test_comes",
        "TestTheEnd::test_leaves_none_when",
        "TestTheEnd::test_may_be_followed",
    ),
    "integration/test_slurm_executor.py": (
        "TestAJobOfSomebodyElse",
        "TestAJobThatSlurmEnds",
        "TestAKilledController::test_changes",
        "TestALaunch::test_that_a_drained",
        "TestALaunch::test_that_is_refused_late",
        "TestALostNode::test_that_comes_back",
        "TestAStop::test_kills",
        "TestAStop::test_lets_every_node_checkpoint[gpus1",
        "TestAStop::test_lets_every_node_checkpoint[gpus2",
        "TestAStop::test_lets_every_node_checkpoint[gpus3",
        "TestATimeLimit",
        "TestAnEnd::test_of_a_gang",
        "TestWhatAJobDoesToItsFolder",
        "TestWhatAJobSees",
    ),
    "integration/test_slurm_gang_runtime.py": (
        "TestAGangThatIsPreempted",
        "TestANodeThatIsKilled",
        "TestARankOfAnOlderLease",
        "TestAnUnevenGang::test_on_one_node",
    ),
    "integration/test_slurm_nodes.py": (
        "TestANodeThatIsGone",
        "TestANodeThatSlurmDrains::test_is_still",
        "TestTheSlurmAccountOfAJob",
    ),
    "integration/test_slurm_restd.py": (
        "TestASlurmrestd",
        "TestTheNodes",
        "TestTheQueue::test_comes_by_tcp",
    ),
    "integration/test_slurm_restd_pool.py": (
        "TestALaunch::test_goes_by",
        "TestALaunch::test_has_nothing",
        "TestALaunch::test_needs_no_tool",
        "TestALaunch::test_of_a_gang_is_on_its_nodes_with_their_gpus[gpus0",
        "TestALaunch::test_that_slurm_refuses",
        "TestTheCheck",
    ),
    "integration/test_slurm_rounds.py": (
        "TestEveryFaultPoint",
        "TestJobsOfThreeTenants::test_end_once_and_are_charged_once[evenshare",
        "TestJobsOfThreeTenants::test_end_once_and_are_charged_once[oef",
    ),
    "integration/test_slurm_shadow.py": (
        "TestAPool::test_brings",
        "TestAWatchOfABusyPartition::test_names",
        "TestAWatchOfABusyPartition::test_tells",
        "TestGangsOfManyKinds",
    ),
    "integration/test_slurm_users.py": (
        "TestAJob::test_cannot",
        "TestAJob::test_checkpoints",
        "TestAJobThat",
        "TestWhat",
    ),
    "integration/test_supervisor.py": ("TestAWorkerThatStandsStill", "TestStopping"),
    "mutants/test_mutants.py": ("test_what_is_named",),
    "papers/test_gandiva_fair.py": (
        "TestManyNodes::test_5_4",
        "TestTrades::test_5_5",
    ),
    "papers/test_unisched_curves.py": ("TestDurationsAtHalfOfTheTraining",),
    "papers/test_unisched_estimator.py": ("TestGavelsThroughputs",),
    "papers/test_unisched_selector.py": (
        "TestTheOracle::test_plan_literal_compact_and_bound_come_in_this_order[0]",
        "TestTheOracle::test_plan_literal_compact_and_bound_come_in_this_order[4]",
    ),
    "simulation/test_fast_forward.py": (
        "TestAWholeRun::test_passes_over",
        "TestEachRound::test_decides_what_a_snapshot_of_everything_decides[fifo-0",
        "TestEachRound::test_decides_what_a_snapshot_of_everything_decides[ltgf-9]",
        "TestEachRound::test_decides_what_a_snapshot_of_everything_decides[market-0",
    ),
    "simulation/test_large_gangs.py": (
        "TestLargeGangs::test_are_served_alike_where_rounds_are_skipped[options2",
        "TestLargeGangs::test_are_served_alike_where_rounds_are_skipped[options3",
        "TestLargeGangs::test_are_served_alike_where_rounds_are_skipped[options4",
        "TestLargeGangs::test_are_served_alike_where_rounds_are_skipped[options5",
        "TestLargeGangs::test_are_served_by_kept_queues",
    ),
    "simulation/test_live_equals_simulated.py": (
        "TestASeededHour::test_gives_the_same_leases_terms_and_charges[20-fifo",
        "TestASeededHour::test_gives_the_same_leases_terms_and_charges[60-",
        "TestASeededHourOfCpusAndMemory::test_gives_the_same_leases_terms_and_charges[20-12",
        "TestASeededHourOnThreeTypes::test_gives_the_same_leases_terms_and_charges[20-fifo",
        "TestASeededHourOnThreeTypes::test_gives_the_same_leases_terms_and_charges[20-ltgf",
        "TestASeededHourWithPreemption::test_gives_the_same_leases_terms_and_charges[20-60",
        "TestASeededHourWithPreemption::test_gives_the_same_leases_terms_and_charges[20-900",
    ),
    "simulation/test_loop.py": (
        "test_histories[1",
        "test_histories[2",
        "test_histories[3",
        "test_histories[4",
    ),
    "simulation/test_skipped_rounds.py": (
        "TestRenewalsWithoutTrying",
        "TestSkippingRounds::test_under_churn_and_limits",
    ),
    "simulation/test_surcharges.py": ("TestKeptRounds",),
    "unit/client/test_gang.py": (
        "TestAGangThatIsPreempted::test_at_its_last_step",
        "TestAGangThatIsPreempted::test_of_which_one_never",
        "TestAGangThatIsPreempted::test_reports_by_rank_0",
        "TestAGangThatIsPreempted::test_takes_the_signal",
        "TestAGangThatIsPreempted::test_whose_step_is_longer",
        "TestARankThatIsKilled::test_at_the_beginning_of_a_lease_loses_nothing[whole",
        "TestARankThatIsKilled::test_at_the_end_of_a_lease_leaves_no_mix[complete-1",
        "TestARankThatIsKilled::test_at_the_end_of_a_lease_leaves_no_mix[half",
        "TestARankThatIsKilled::test_at_the_end_of_a_lease_leaves_no_mix[not",
        "TestARankThatIsKilled::test_at_the_end_of_a_lease_leaves_no_mix[pos",
        "TestARankThatIsKilled::test_at_the_end_of_a_lease_leaves_no_mix[ren",
        "TestARankThatIsKilled::test_at_the_end_of_a_lease_leaves_no_mix[written-0",
        "TestARankThatIsKilled::test_without_a_signal",
        "TestASet::test_is_handed_over_as_a_whole[1-2",
        "TestASet::test_is_handed_over_as_a_whole[2-",
    ),
    "unit/client/test_install.py": ("TestTheExtraVerify",),
    "unit/client/test_lease.py": ("TestAJobThatIsPreempted::test_loses_nothing_in_two",),
    "unit/portal/test_site_imports.py": ("TestASite::test_imports",),
    "unit/scheduling/test_shim_usage.py": (
        "TestAnNvidiaSmiThatHangs",
        "TestGpusOfAProgram::test_are_given_up",
        "TestGpusOfAProgram::test_are_not_asked_for_where_it_has_none[N",
        "TestGpusOfAProgram::test_are_not_asked_for_where_it_has_none[]",
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
