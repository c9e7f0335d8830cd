"""Which tests each command runs; all marks of it are here. A plugin.

`make test` runs every test that no row below gives away, `make test-rest` what `make test` leaves
out, `make lint` the architecture, `make soak` what is marked `soak`. A path or `-m` on the command
line is obeyed: `make test ARGS=tests/simulation/test_loop.py` runs all of that file.
"""

from __future__ import annotations

from itertools import combinations
from zlib import crc32

import pytest

TIERS = ("test", "rest", "lint", "all")
LINT = "tests/architecture/"
# The policies that a site would run; cases of others are left to `make test-rest`.
SITE_POLICIES = frozenset(
    ("evenshare", "ltgf", "oef", "gandiva_fair", "unisched", "market", "drf", "fifo")
)

# Left to `make test-rest`: node ids that begin so.
REST_BROWSER: tuple[str, ...] = ()

REST_FUNCTIONAL: tuple[str, ...] = ()

REST_INTEGRATION: tuple[str, ...] = ()

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

REST_SIMULATION: tuple[str, ...] = ()

REST_PAPERS: tuple[str, ...] = ()

REST_UNIT: tuple[str, ...] = (
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
SAMPLED: dict[str, int] = {}


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


def belongs(item: pytest.Item, tier: str, rest: frozenset[str]) -> bool:
    """Whether a tier has a test. Properties are in two: in `rest` with more examples."""
    if item.nodeid.startswith(LINT) or tier == "lint":
        return item.nodeid.startswith(LINT) and tier == "lint"
    if tier == "test":
        return item.nodeid not in rest
    return item.nodeid in rest or is_property(item)


def is_property(item: pytest.Item) -> bool:
    """Whether Hypothesis draws its examples."""
    function = getattr(item, "obj", None)
    return bool(getattr(function, "is_hypothesis_test", False))


def left_to_rest(items: list[pytest.Item]) -> frozenset[str]:
    """The node ids that `make test` leaves out."""
    left = {item.nodeid for item in items if item.nodeid.startswith(REST) or is_of_study(item)}
    for prefix, strength in SAMPLED.items():
        cases = [item for item in items if item.nodeid.startswith(prefix)]
        left |= {item.nodeid for item in cases} - sample(cases, strength)
    return frozenset(left)


def is_of_study(item: pytest.Item) -> bool:
    """Whether it is the case of a policy that is there for comparisons alone."""
    policy = parameters(item).get("policy")
    return isinstance(policy, str) and policy in known_policies() - SITE_POLICIES


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

    They are taken in an order by hash, so that no value comes with the first of another alone.
    """
    seen: dict[str, set[tuple[tuple[str, int], ...]]] = {}
    chosen = set()
    for item in sorted(cases, key=lambda one: crc32(one.nodeid.encode())):
        call = getattr(item, "callspec", None)
        known = seen.setdefault(item.nodeid.partition("[")[0], set())
        indices = sorted(call.indices.items()) if call else []
        found = set(combinations(indices, min(strength, len(indices))))
        if found - known:
            known |= found
            chosen.add(item.nodeid)
    return chosen
