"""The distribution of a run over processes, and its order.

`make test` starts a process per core and one more, because many tests wait. Each process has its
own servers, databases, ports and folders (tests/plugin.py). A class runs in one process, so that
its shared fixtures are made once, and so do a file's tests outside of classes. The files below are
exceptions. Fast tests run first, because they report soonest. The longest tests follow, so that the
run need not wait for them at its end.

xdist's own `--dist loadgroup` is not used. It adds `@group` to the name of each test, so the name
of a failed test could not be pasted into a command.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import pytest

MOST_PROCESSES = 9
# These files' shared fixtures are expensive: a portal with all its processes, a cluster with
# several users, a restored backup, pages checked by axe.
TOGETHER = (
    "tests/browser/test_role_stories.py",
    "tests/integration/test_backup_restore.py",
    "tests/integration/test_demo_pool.py",
    "tests/integration/test_local_executor_tree.py",
    "tests/integration/test_production.py",
    "tests/integration/test_run_slurm.py",
    "tests/integration/test_slurm_pool.py",
    "tests/integration/test_slurm_users.py",
    "tests/integration/test_slurm_users_hostile.py",
    "tests/integration/test_slurm_users_settings.py",
)
# Each test of these files is long enough to be sent by itself.
APART = (
    "tests/functional/test_api_schema.py",
    "tests/functional/test_extreme_inputs.py",
    "tests/functional/test_matrix.py",
    "tests/integration/test_fault_matrix.py",
    "tests/integration/test_market_histories.py",
    "tests/integration/test_slurm_rounds.py",
    "tests/mutants/test_mutants.py",
    "tests/simulation/test_live_equals_simulated.py",
    "tests/simulation/test_loop.py",
)
FIRST = (
    "tests/integration/test_demo_pool.py",
    "tests/integration/test_run_slurm.py",
    "tests/simulation/test_live_equals_simulated.py",
    "tests/functional/test_matrix.py",
    "tests/functional/test_cli.py",
    "tests/functional/test_api_schema.py",
    "tests/browser/test_role_stories.py",
    "tests/integration/test_production.py",
    "tests/integration/test_slurm_rounds.py",
    "tests/integration/test_local_executor_tree.py",
    "tests/integration/test_mixed_pool.py",
    "tests/integration/test_market_pool.py",
    "tests/simulation/test_simulator.py",
    "tests/functional/test_growth.py",
    "tests/functional/test_odd_states.py",
    "tests/integration/test_market_histories.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by rank; tests of one rank keep their order."""
    items.sort(key=rank)


def rank(item: pytest.Item) -> int:
    """Return a test's rank: fast tests first, then the files that take longest, longest first."""
    if item.get_closest_marker("fast"):
        return -1
    path = item.nodeid.partition("::")[0]
    return FIRST.index(path) if path in FIRST else len(FIRST)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return the number of processes for `-n auto`, unless the variable of pytest-xdist sets it.

    A single file or test runs in this process, because other processes would first have to start.
    """
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    if len(config.args) == 1 and ".py" in config.args[0]:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min((cores or 1) + 1, MOST_PROCESSES)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Any:
    """Distribute by `unit`, in our own order, unless `--dist` is given."""
    if config.getoption("dist") != "load":
        return None
    config.option.loadscopereorder = False
    # Imported late, because only distributed runs need it.
    scheduling = import_module("xdist.scheduler").LoadScopeScheduling(config, log)
    scheduling._split_scope = unit
    return scheduling


def unit(nodeid: str) -> str:
    """Return the unit of a test; all tests of a unit run in the same process."""
    path = nodeid.partition("::")[0]
    if path in TOGETHER:
        return path
    return nodeid if path in APART else nodeid.partition("[")[0].rpartition("::")[0]
