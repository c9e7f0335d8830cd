"""The distribution of a run over processes, and its order.

`make test` starts a process per core and one more, because many tests wait. Each process has its
own servers, databases, ports and folders (tests/plugin.py). A class runs in one process, so that
its shared fixtures are made once, and so do a file's tests outside of classes. The files below are
exceptions. Fast tests run first, because they report soonest. The longest tests follow, so that the
run need not wait for them at its end.

Runs of some files or folders start in 3 s (docs/testing.md). Only processes that run tests load
Django and the plugins of the database. Folders of fast tests have a process per core, because these
tests do not wait, and a few of their files run in one process.

xdist's own `--dist loadgroup` is not used. It adds `@group` to the name of each test, so the name
of a failed test could not be pasted into a command.
"""

from __future__ import annotations

import gc
import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import FAST

# Imports and pytest's collection of tests make many objects and little garbage. To look for garbage
# would take a sixth of the time.
gc.disable()

MOST_PROCESSES = 9
# Fast tests of at most this number of files run in this process.
FEW_FILES = 6
# The plugins of processes that run tests.
PLUGINS = ("tests.plugin", "tests.scope")
# With these options a process distributes nothing.
COLLECTING = ("collectonly", "showfixtures", "show_fixtures_per_test", "usepdb")
SETTINGS = "DJANGO_SETTINGS_MODULE"
# These files' shared fixtures are expensive: a portal with all its processes, a cluster with
# several users, a restored backup, pages checked by axe.
TOGETHER = (
    "tests/browser/test_role_stories.py",
    "tests/integration/test_backup_restore.py",
    "tests/integration/test_demo_pool.py",
    "tests/integration/test_production.py",
    "tests/integration/test_run_slurm.py",
    "tests/integration/test_slurm_pool.py",
    "tests/integration/test_slurm_users.py",
    "tests/integration/test_slurm_users_hostile.py",
    "tests/integration/test_slurm_users_settings.py",
)
# Each test of these files is long enough to be sent separately.
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
    "tests/integration/test_mixed_pool.py",
    "tests/integration/test_market_pool.py",
    "tests/simulation/test_simulator.py",
    "tests/functional/test_growth.py",
    "tests/functional/test_pseudo_locale.py",
    "tests/integration/test_market_histories.py",
)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    """Load the plugins, or in a process that only distributes tests neither Django nor fixtures."""
    if distributes(early_config.known_args_namespace):
        early_config.known_args_namespace.noconftest = True
        with no_settings():
            yield
        return
    for name in PLUGINS:
        early_config.pluginmanager.import_plugin(name)
    yield


@contextmanager
def no_settings() -> Iterator[None]:
    """Inside the block, pytest-django finds no settings. Other processes inherit the variables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTINGS, "")
        yield


def pytest_sessionstart(session: pytest.Session) -> None:
    """Turn garbage collection on in a process that collects no tests."""
    if distributes(session.config.option):
        gc.enable()


def pytest_collection_finish() -> None:
    """Turn garbage collection on, and exclude all existing objects from it."""
    gc.freeze()
    gc.enable()


def distributes(options: Namespace) -> bool:
    """Return whether a process only distributes tests to others."""
    if "PYTEST_XDIST_WORKER" in os.environ or any(getattr(options, one) for one in COLLECTING):
        return False
    number = getattr(options, "numprocesses", None)
    return bool(processes(options) if number == "auto" else number)


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
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of processes for `-n auto`."""
    return processes(config.option)


def processes(options: Namespace) -> int:
    """Return the number of processes for the paths of a command; 0 is this process only.

    The variable of pytest-xdist takes precedence.
    """
    if number := os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return int(number)
    # With `--help` the parser ends before it reads the paths.
    paths: list[str] = getattr(options, "file_or_dir", [])
    if len(paths) == 1 and ".py" in paths[0]:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    is_fast = bool(paths) and all(f"{path}/".startswith(FAST) for path in paths)
    if is_fast and sum(map(files_of, paths)) <= FEW_FILES:
        return 0
    return min((cores or 1) + (not is_fast), MOST_PROCESSES)


def files_of(path: str) -> int:
    """Return the number of test files of a path on the command line."""
    return 1 if ".py" in path else sum(1 for _ in Path(path).rglob("test_*.py"))


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
