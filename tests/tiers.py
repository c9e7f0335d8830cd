"""Which tests each command runs; all marks of it are here. A plugin.

`make test` runs every test that no row below gives away, `make test-fast` those of them that need
no server, `make test-rest` what `make test` leaves out, `make lint` the architecture, `make soak`
what is marked `soak`. Paths on the command line are obeyed:
`make test ARGS=tests/simulation/test_loop.py` runs all of that file.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from zlib import crc32

import pytest

# A test, and the number of a value of each of some parameters.
Combination = tuple[object, ...]

TIERS = ("test", "fast", "rest", "all")
LINT = "tests/architecture/"
# A test in here that wants no server is fast.
FAST = ("tests/papers/", "tests/unit/")
# Files in there that start processes or environments, or simulate for seconds.
NOT_FAST = (
    "tests/unit/client/test_install.py",
    "tests/unit/client/test_lease.py",
    "tests/unit/portal/test_checks.py",
)
# The policies that a site would run; cases of others are left to `make test-rest`.
SITE_POLICIES = frozenset(
    ("evenshare", "ltgf", "oef", "gandiva_fair", "unisched", "market", "drf", "fifo")
)

_MARKETS = (
    "tests/integration/test_market_histories.py::TestAnyHistory"
    "::test_of_offers_and_credit_is_what_a_plain_model_says"
)
_OFFERS = (
    "tests/integration/test_offer_histories.py::TestAnyHistory::test_lends_what_a_plain_model_lends"
)

# Left to `make test-rest`: node ids that begin so.
REST_BROWSER: tuple[str, ...] = (
    # Of kinds of pages that the stories and the test with axe come to as well.
    "tests/browser/test_api_docs.py",
    "tests/browser/test_certificate_pages.py::TestACertificate::test_says_by_word",
    "tests/browser/test_console_errors.py",
    "tests/browser/test_pools_pages.py::TestTheNodeMap",
    "tests/browser/test_pools_pages.py::TestThePages",
    "tests/browser/test_preemptions.py",
    "tests/browser/test_verify_pages.py",
    *(
        f"tests/browser/test_{name}"
        for name in (
            "accessible.py",
            "certificate_pages.py::TestACertificate::test_leads",
            "charts.py::TestEveryChart::test_is_drawn",
            "dashboard.py",
            "job_usage.py",
            "operator.py::TestAnOperator::test_drains",
            "submit.py::TestTheLog",
            "what_if.py::TestAnOperator::test_asks",
            "charts.py::TestADownload::test_as_a_table",
            "charts.py::TestADownload::test_is_a_picture",
            "charts.py::TestADownload::test_says_in_its_title",
            "charts.py::TestAPageWithoutAChart",
            "charts.py::TestAReader::test_has_the_theme",
            "charts.py::TestAReader::test_points_at",
            "charts.py::TestAReader::test_reads_by_keyboard",
            "charts.py::TestAReader::test_switches",
            "charts.py::TestEveryChart::test_inserts",
            "charts.py::TestEveryChart::test_leaves",
            "offers.py::TestAManager::test_sees",
            "operator.py::TestAnOperator::test_edits_the_grid",
            "operator.py::TestAnOperator::test_gives_up",
            "operator.py::TestAnOperator::test_has_pages",
            "operator.py::TestAnOperator::test_is_told",
            "operator.py::TestAnOperator::test_keeps_the_focus",
            "operator.py::TestAnOperator::test_lists",
            "operator.py::TestAnOperator::test_moves_the_focus",
            "operator.py::TestAnOperator::test_sees",
            "operator.py::TestATenant",
            "submit.py::TestBothSides",
            "submit.py::TestOnAPhone",
            "submit.py::TestTheForm::test_shows_progress",
            "what_if.py::TestAChoice",
            "what_if.py::TestAnOperator::test_cancels",
            "what_if.py::TestAnOperator::test_is_told",
        )
    ),
)

REST_FUNCTIONAL: tuple[str, ...] = (
    "tests/functional/test_canaries.py::TestEveryAddress::test_with_what_is_the_others",
    "tests/functional/test_cli.py::TestTheFirstSubmission::test_is_preempted_with_notice",
    # A tenant's manager stays: an operator's forms are five times as many.
    "tests/functional/test_extreme_inputs.py::TestTheForms::test_of_every_page_never_fail[0-otto]",
    "tests/functional/test_canaries.py::TestEveryAddress::test_shows_its_own_and_nothing_of_the_other[pseudonyms]",
    "tests/functional/test_canaries.py::TestEveryAddress::test_shows_its_own_and_nothing_of_the_other[full]",
)

REST_INTEGRATION: tuple[str, ...] = (
    "tests/integration/test_mixed_pool.py::TestASwitchOfThePolicy",
    "tests/integration/test_learning_curves.py::TestARound::test_of_a_loss_is_the_same",
    # Histories under one policy, a part of the histories, and two pools of the demo tell as much.
    f"{_MARKETS}[fifo]",
    f"{_MARKETS}[ltgf]",
    *(f"{_OFFERS}[{part}]" for part in (1, 2, 3)),
    "tests/integration/test_metering_live.py::TestTheDemo::test_keeps_its_books_over_hours_of",
    "tests/integration/test_state_migration.py::TestPoolsOfBefore",
)

REST_SLURM: tuple[str, ...] = (
    "tests/integration/test_run_slurm.py::TestADaemonOfTheCluster",
    "tests/integration/test_run_slurm.py::TestAJobOfThePool",
    "tests/integration/test_run_slurm.py::TestTheEnd",
    "tests/integration/test_slurm_calls.py::TestAStop",
    "tests/integration/test_slurm_check.py::TestAClusterThatIsNot",
    "tests/integration/test_slurm_check_pool.py",
    "tests/integration/test_slurm_cluster.py::TestACluster::test_runs_beside_another",
    "tests/integration/test_slurm_cluster.py::TestAKilledController",
    "tests/integration/test_slurm_cluster.py::TestALostNode",
    "tests/integration/test_slurm_cluster.py::TestAStart::test_beside",
    "tests/integration/test_slurm_cluster.py::TestAStart::test_in_too_deep_a_folder_may",
    "tests/integration/test_slurm_cluster.py::TestTheEnd::test_comes",
    "tests/integration/test_slurm_cluster.py::TestTheEnd::test_leaves_none_when",
    "tests/integration/test_slurm_cluster.py::TestTheEnd::test_may_be_followed",
    "tests/integration/test_slurm_executor.py::TestAJobOfSomebodyElse",
    "tests/integration/test_slurm_executor.py::TestAJobThatSlurmEnds",
    "tests/integration/test_slurm_executor.py::TestAKilledController::test_changes",
    "tests/integration/test_slurm_executor.py::TestALaunch::test_that_a_drained",
    "tests/integration/test_slurm_executor.py::TestALaunch::test_that_is_refused_late",
    "tests/integration/test_slurm_executor.py::TestALostNode::test_that_comes_back",
    "tests/integration/test_slurm_executor.py::TestAStop::test_kills",
    "tests/integration/test_slurm_executor.py::TestAnEnd::test_of_a_gang",
    "tests/integration/test_slurm_executor.py::TestAStop::test_lets_every_node_checkpoint[0",
    "tests/integration/test_slurm_executor.py::TestAStop::test_lets_every_node_checkpoint[99-stopped-gpus0",
    "tests/integration/test_slurm_executor.py::TestAStop::test_lets_every_node_checkpoint[99-stopped-gpus2",
    "tests/integration/test_slurm_executor.py::TestATimeLimit",
    "tests/integration/test_slurm_executor.py::TestWhatAJobDoesToItsFolder",
    "tests/integration/test_slurm_executor.py::TestWhatAJobSees",
    "tests/integration/test_slurm_executor_contract.py",
    "tests/integration/test_slurm_gang_runtime.py::TestAGangThatIsPreempted",
    "tests/integration/test_slurm_gang_runtime.py::TestANodeThatIsKilled",
    "tests/integration/test_slurm_gang_runtime.py::TestARankOfAnOlderLease",
    "tests/integration/test_slurm_gang_runtime.py::TestAnUnevenGang::test_on_one_node",
    "tests/integration/test_slurm_nodes.py::TestANodeThatIsGone",
    "tests/integration/test_slurm_nodes.py::TestANodeThatSlurmDrains::test_is_still",
    "tests/integration/test_slurm_nodes.py::TestTheSlurmAccountOfAJob",
    "tests/integration/test_slurm_restd.py::TestASlurmrestd",
    "tests/integration/test_slurm_restd.py::TestTheNodes",
    "tests/integration/test_slurm_restd.py::TestTheQueue::test_comes_by_tcp",
    "tests/integration/test_slurm_restd_pool.py::TestALaunch::test_goes_by",
    "tests/integration/test_slurm_restd_pool.py::TestALaunch::test_has_nothing",
    "tests/integration/test_slurm_restd_pool.py::TestALaunch::test_needs_no_tool",
    "tests/integration/test_slurm_restd_pool.py::TestALaunch::test_of_a_gang_is_on_its_nodes_with_their_gpus[gpus0",
    "tests/integration/test_slurm_restd_pool.py::TestALaunch::test_that_slurm_refuses",
    "tests/integration/test_slurm_restd_pool.py::TestTheCheck",
    "tests/integration/test_slurm_rounds.py::TestEveryFaultPoint",
    "tests/integration/test_slurm_rounds.py::TestJobsOfThreeTenants::test_end_once_and_are_charged_once[evenshare",
    "tests/integration/test_slurm_rounds.py::TestJobsOfThreeTenants::test_end_once_and_are_charged_once[oef",
    "tests/integration/test_slurm_shadow.py::TestAPool::test_brings",
    "tests/integration/test_slurm_shadow.py::TestAWatchOfABusyPartition::test_names",
    "tests/integration/test_slurm_shadow.py::TestAWatchOfABusyPartition::test_tells",
    "tests/integration/test_slurm_shadow.py::TestGangsOfManyKinds",
    "tests/integration/test_slurm_starting.py",
    "tests/integration/test_slurm_usage.py",
    "tests/integration/test_slurm_users.py::TestAJob::test_cannot",
    "tests/integration/test_slurm_users.py::TestAJob::test_checkpoints",
    "tests/integration/test_slurm_users.py::TestAJobThat",
    "tests/integration/test_slurm_users.py::TestWhat",
    "tests/integration/test_slurm_users_hostile.py",
    "tests/integration/test_slurm_users_settings.py",
)

REST_TREES: tuple[str, ...] = (
    "tests/integration/test_local_executor_tree.py::TestTheEndOfThePortal::test_by_ctrl_c",
    "tests/integration/test_backup_restore.py::TestABackup",
    "tests/integration/test_backup_restore.py::TestARestoreIsRefused",
    "tests/integration/test_backup_restore.py::TestTheDrill",
    "tests/integration/test_fake_executor.py::TestTheFakeExecutor::test_a_lease_that_is_left_out",
    "tests/integration/test_fake_executor.py::TestTheFakeExecutor::test_an_engine",
    "tests/integration/test_fake_executor.py::TestTheFakeExecutor::test_every_pair",
    "tests/integration/test_fake_executor.py::TestTheFakeExecutor::test_launches_that_go_wrong",
    "tests/integration/test_fake_executor.py::TestTheFakeExecutor::test_listings",
    "tests/integration/test_fake_executor.py::TestTheFakeExecutor::test_many",
    "tests/integration/test_fake_executor.py::TestTheFakeExecutor::test_stops",
    "tests/integration/test_fake_executor.py::TestTheFakeExecutor::test_twice",
    "tests/integration/test_local_evaluations.py::TestAJobThatWritesNonsense",
    "tests/integration/test_local_executor_backoff.py",
    "tests/integration/test_local_executor_contract.py::TestTheLocalExecutor::test_a_lease_that_is_left_out",
    "tests/integration/test_local_executor_contract.py::TestTheLocalExecutor::test_an_engine",
    "tests/integration/test_local_executor_contract.py::TestTheLocalExecutor::test_every_pair",
    "tests/integration/test_local_executor_contract.py::TestTheLocalExecutor::test_launches_that_go_wrong",
    "tests/integration/test_local_executor_contract.py::TestTheLocalExecutor::test_listings",
    "tests/integration/test_local_executor_contract.py::TestTheLocalExecutor::test_many",
    "tests/integration/test_local_executor_contract.py::TestTheLocalExecutor::test_stops",
    "tests/integration/test_local_executor_contract.py::TestTheLocalExecutor::test_twice",
    "tests/integration/test_local_executor_rounds.py::TestTwoTenants",
    "tests/integration/test_local_executor_tree.py::TestTheEndOfThePortal::test_by_kill_9_of_everything",
    "tests/integration/test_local_iterations.py::TestAJobThatWritesNonsense",
    "tests/integration/test_local_iterations.py::TestATraining::test_that_yields",
    "tests/integration/test_production.py::TestAnUnsafeProcess::test_does_not_start[beat",
    "tests/integration/test_production.py::TestAnUnsafeProcess::test_does_not_start[default",
    "tests/integration/test_production.py::TestAnUnsafeProcess::test_does_not_start[rounds",
    "tests/integration/test_profiling_local.py",
    "tests/integration/test_supervisor.py::TestStopping",
)

_LIVE = "tests/simulation/test_live_equals_simulated.py::"
_FORWARD = "tests/simulation/test_fast_forward.py::TestEachRound::test_decides_what_a_snapshot_of_"
REST_SIMULATION: tuple[str, ...] = (
    # The second nine seeds of three policies.
    *(f"{_FORWARD}everything_decides[{policy}-9]" for policy in ("evenshare", "ltgf", "market")),
    # `test_where_little_happens` stays.
    "tests/simulation/test_skipped_rounds.py::TestSkippingRounds::test_under_churn_and_limits",
    # An hour of the pool's clock; twenty minutes of it are in `make test`.
    f"{_LIVE}TestASeededHour::test_gives_the_same_leases_terms_and_charges[60-",
    f"{_LIVE}TestASeededHourOfCpusAndMemory::test_gives_the_same_leases_terms_and_charges[60-",
    f"{_LIVE}TestASeededHourWithPreemption::test_gives_the_same_leases_terms_and_charges[60-",
    f"{_LIVE}TestASeededHourOnThreeTypes::test_gives_the_same_leases_terms_and_charges[60-",
)

REST_PAPERS: tuple[str, ...] = (
    "tests/papers/test_gandiva_fair.py::TestManyNodes::test_5_4",
    "tests/papers/test_unisched_selector.py::TestTheOracle::test_plan_literal_compact_and_bound_come_in_this_order[0]",
    "tests/papers/test_unisched_selector.py::TestTheOracle::test_plan_literal_compact_and_bound_come_in_this_order[4]",
)

REST_UNIT: tuple[str, ...] = (
    "tests/unit/core/test_wheel.py",
    "tests/unit/test_benchmarks.py",
    "tests/unit/client/test_gang.py::TestAGangThatIsPreempted::test_at_its_last_step",
    "tests/unit/client/test_gang.py::TestAGangThatIsPreempted::test_of_which_one_never",
    "tests/unit/client/test_gang.py::TestAGangThatIsPreempted::test_reports_by_rank_0",
    "tests/unit/client/test_gang.py::TestAGangThatIsPreempted::test_takes_the_signal",
    "tests/unit/client/test_gang.py::TestAGangThatIsPreempted::test_whose_step_is_longer",
    "tests/unit/client/test_gang.py::TestARankThatIsKilled::test_at_the_beginning_of_a_lease_loses_nothing[whole",
    "tests/unit/client/test_gang.py::TestARankThatIsKilled::test_at_the_end_of_a_lease_leaves_no_mix[complete-1",
    "tests/unit/client/test_gang.py::TestARankThatIsKilled::test_at_the_end_of_a_lease_leaves_no_mix[half",
    "tests/unit/client/test_gang.py::TestARankThatIsKilled::test_at_the_end_of_a_lease_leaves_no_mix[not",
    "tests/unit/client/test_gang.py::TestARankThatIsKilled::test_at_the_end_of_a_lease_leaves_no_mix[pos",
    "tests/unit/client/test_gang.py::TestARankThatIsKilled::test_at_the_end_of_a_lease_leaves_no_mix[ren",
    "tests/unit/client/test_gang.py::TestARankThatIsKilled::test_at_the_end_of_a_lease_leaves_no_mix[written-0",
    "tests/unit/client/test_gang.py::TestARankThatIsKilled::test_without_a_signal",
    "tests/unit/client/test_gang.py::TestASet::test_is_handed_over_as_a_whole[1-2",
    "tests/unit/client/test_gang.py::TestASet::test_is_handed_over_as_a_whole[2-",
    "tests/unit/client/test_install.py::TestTheExtraVerify",
    "tests/unit/scheduling/test_shim_usage.py::TestAnNvidiaSmiThatHangs",
    "tests/unit/scheduling/test_shim_usage.py::TestGpusOfAProgram::test_are_given_up_after_some_wrong_answers[echo",
    "tests/unit/scheduling/test_shim_usage.py::TestGpusOfAProgram::test_are_given_up_after_some_wrong_answers[head",
    "tests/unit/scheduling/test_shim_usage.py::TestGpusOfAProgram::test_are_given_up_after_some_wrong_answers[yes",
    "tests/unit/scheduling/test_shim_usage.py::TestGpusOfAProgram::test_are_not_asked_for_where_it_has_none[N",
    "tests/unit/scheduling/test_shim_usage.py::TestGpusOfAProgram::test_are_not_asked_for_where_it_has_none[]",
)

REST = (
    *(*REST_BROWSER, *REST_FUNCTIONAL, *REST_INTEGRATION, *REST_SLURM, *REST_TREES),
    *(*REST_SIMULATION, *REST_PAPERS, *REST_UNIT),
)

# Of these tests with many parameters `make test` runs so many cases that every combination of so
# many parameters' values occurs: 1 each value, 2 each pair. `make test-rest` runs the other cases.
_SKIPPED = "tests/simulation/test_skipped_rounds.py::TestRenewalsWithoutTrying::"
SAMPLED: dict[str, int] = {
    f"{_SKIPPED}test_they_are_as_if_all_were_tried": 1,
    f"{_SKIPPED}test_nor_does_ltgf_differ": 1,
    "tests/simulation/test_fast_forward.py::TestAWholeRun::test_passes_over_rounds_only": 1,
    "tests/integration/test_fault_matrix.py": 1,
    "tests/integration/test_preemption_faults.py": 1,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--tier`."""
    parser.addoption("--tier", choices=TIERS, default="all", help="which tests (tests/tiers.py)")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """A command line that names tests runs them, whatever tier they are of."""
    if config.args_source is config.ArgsSource.ARGS and not hasattr(config, "workerinput"):
        config.option.tier = "all"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is of another tier."""
    tier = config.getoption("tier")
    if tier == "all":
        return
    rest = left_to_rest(items)
    split: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        split[belongs(item, tier, rest)].append(item)
    config.hook.pytest_deselected(items=split[False])
    items[:] = split[True]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file of which a tier has no test."""
    tier = config.getoption("tier")
    if tier == "all" or collection_path.suffix != ".py":
        return None
    path = collection_path.relative_to(config.rootpath).as_posix()
    is_other = path.startswith(LINT) or (tier != "rest" and path in REST)
    return True if is_other or (tier == "fast" and not path.startswith(FAST)) else None


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what is fast."""
    if item.nodeid.startswith(FAST) and not item.nodeid.startswith(NOT_FAST) and not served(item):
        item.add_marker("fast")


def served(item: pytest.Item) -> bool:
    """Whether a test asks for a server, by a fixture or by pytest-django's mark."""
    names = getattr(item, "fixturenames", ())
    return "services" in names or item.get_closest_marker("django_db") is not None


def belongs(item: pytest.Item, tier: str, rest: frozenset[str]) -> bool:
    """Whether a tier has a test. Properties are in two: in `rest` with more examples."""
    if item.nodeid.startswith(LINT):
        return False
    if tier == "rest":
        return item.nodeid in rest or is_property(item)
    is_chosen = tier == "test" or item.get_closest_marker("fast") is not None
    return is_chosen and item.nodeid not in rest


def is_property(item: pytest.Item) -> bool:
    """Whether Hypothesis draws its examples."""
    function = getattr(item, "obj", None)
    return bool(getattr(function, "is_hypothesis_test", False))


def left_to_rest(items: list[pytest.Item]) -> frozenset[str]:
    """The node ids that `make test` leaves out."""
    left = {item.nodeid for item in items if item.nodeid.startswith(REST)}
    left |= {item.nodeid for item in items if is_of_study(item) or is_later_turn(item)}
    for prefix, strength in SAMPLED.items():
        cases = [item for item in items if item.nodeid.startswith(prefix)]
        left |= {item.nodeid for item in cases} - sample(cases, strength)
    return frozenset(left)


def is_of_study(item: pytest.Item) -> bool:
    """Whether it is the case of a policy that is there for comparisons alone."""
    policy = parameters(item).get("policy")
    return isinstance(policy, str) and policy in known_policies() - SITE_POLICIES


def is_later_turn(item: pytest.Item) -> bool:
    """Whether it is not the first turn of a long loop (tests/functional/turns.py)."""
    turn = parameters(item).get("turn", 0)
    return isinstance(turn, int) and turn > 0


def known_policies() -> frozenset[str]:
    """The names of all policies of the registry."""
    from evenshare_core.policies.registry import POLICIES

    return frozenset(POLICIES)


def parameters(item: pytest.Item) -> dict[str, object]:
    """The arguments that `parametrize` gives a test."""
    call = getattr(item, "callspec", None)
    return dict(call.params) if call else {}


def sample(cases: list[pytest.Item], strength: int) -> set[str]:
    """The node ids of few cases in which every combination of `strength` values occurs.

    Those with most new combinations come first; of these the order is by hash, so that no value
    comes with the first of another alone.
    """
    cases = sorted(cases, key=lambda one: crc32(one.nodeid.encode()))
    combinations_of = {item.nodeid: combined([item], strength) for item in cases}
    seen: set[Combination] = set()
    chosen = set()
    for new in range(max(map(len, combinations_of.values()), default=0), 0, -1):
        for name, found in combinations_of.items():
            if len(found - seen) == new:
                seen |= found
                chosen.add(name)
    return chosen


def combined(cases: list[pytest.Item], strength: int) -> set[Combination]:
    """The combinations of so many parameters' values that occur in cases, by test."""
    found: set[Combination] = set()
    for item in cases:
        # Of two `parametrize` pytest's own indices number the cases, not the values.
        values = sorted((key, repr(value)) for key, value in parameters(item).items())
        name = item.nodeid.partition("[")[0]
        of_case = combinations(values, min(strength, len(values)))
        found |= {(name, *combination) for combination in of_case}
    return found
