"""A pytest plugin that selects the tests of each command; `tests/rest.py` has the table.

`make test` runs all tests outside of the table. `make test-fast` runs those of them that need no
server. `make test-rest` runs the tests of the table, `make lint` the architecture tests, `make
soak` the tests that are marked `soak`. Paths on the command line take precedence: `make test
ARGS=tests/simulation/test_loop.py` runs all of that file.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from zlib import crc32

import pytest

from tests.rest import REST

# A test, and the values of some of its parameters.
Combination = tuple[object, ...]

TIERS = ("test", "fast", "rest", "all")
LINT = "tests/architecture/"
# Tests in these folders are fast if they need no server
FAST = ("tests/papers/", "tests/unit/")
# Files in these folders that are not fast: they start processes or environments, or simulate for
# seconds.
NOT_FAST = (
    "tests/unit/client/test_install.py",
    "tests/unit/client/test_lease.py",
    "tests/unit/portal/test_checks.py",
    "tests/unit/portal/test_site_imports.py",
)
# The policies for production sites; `make test-rest` runs the cases of the others.
SITE_POLICIES = frozenset(
    ("evenshare", "ltgf", "oef", "gandiva_fair", "unisched", "market", "drf", "fifo")
)

# `make test` runs a sample of these cases. With 1, each value of a parameter occurs, with 2 each
# pair of values. `make test-rest` runs the other cases.
SAMPLED: dict[str, int] = {
    "tests/integration/test_fault_matrix.py": 1,
    "tests/integration/test_preemption_faults.py": 1,
}
# For these tests, `make test-rest` runs a second sample, and `make soak` the remaining cases.
SOAKED = ("tests/integration/test_fault_matrix.py",)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--tier`."""
    parser.addoption("--tier", choices=TIERS, default="all", help="which tests (tests/tiers.py)")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Run tests that the command line names, whatever their tier."""
    if config.args_source is config.ArgsSource.ARGS:
        config.option.tier = "all"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other tiers."""
    for item in left_to_soak(items):
        item.add_marker("soak")
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
    """Skip files without a test of the tier."""
    tier = config.getoption("tier")
    if tier == "all" or collection_path.suffix != ".py":
        return None
    path = collection_path.relative_to(config.rootpath).as_posix()
    is_other = path.startswith(LINT) or (tier != "rest" and path in REST)
    return True if is_other or (tier == "fast" and not path.startswith(FAST)) else None


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the fast tests."""
    if item.nodeid.startswith(FAST) and not item.nodeid.startswith(NOT_FAST) and not served(item):
        item.add_marker("fast")


def served(item: pytest.Item) -> bool:
    """Return whether a test needs a server, because of a fixture or of pytest-django's mark."""
    names = getattr(item, "fixturenames", ())
    return "services" in names or item.get_closest_marker("django_db") is not None


def belongs(item: pytest.Item, tier: str, rest: frozenset[str]) -> bool:
    """Return whether a test belongs to a tier.

    Properties belong to two: `rest` draws more examples.
    """
    if item.nodeid.startswith(LINT):
        return False
    if tier == "rest":
        return item.nodeid in rest or is_property(item)
    is_chosen = tier == "test" or item.get_closest_marker("fast") is not None
    return is_chosen and item.nodeid not in rest


def is_property(item: pytest.Item) -> bool:
    """Return whether Hypothesis draws the examples of a test."""
    function = getattr(item, "obj", None)
    return bool(getattr(function, "is_hypothesis_test", False))


def left_to_rest(items: list[pytest.Item]) -> frozenset[str]:
    """Return the node ids of the tests that `make test` leaves out."""
    left = {item.nodeid for item in items if item.nodeid.startswith(REST)}
    left |= {item.nodeid for item in items if is_of_study(item) or is_later_turn(item)}
    for prefix, strength in SAMPLED.items():
        cases = [item for item in items if item.nodeid.startswith(prefix)]
        left |= {item.nodeid for item in cases} - sample(cases, strength)
    return frozenset(left)


def left_to_soak(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the cases that `make test-rest` also leaves out."""
    left = []
    for prefix in SOAKED:
        cases = [item for item in items if item.nodeid.startswith(prefix)]
        for _ in range(2):
            chosen = sample(cases, SAMPLED[prefix])
            cases = [item for item in cases if item.nodeid not in chosen]
        left += cases
    return left


def is_of_study(item: pytest.Item) -> bool:
    """Return whether the case is about a policy that exists only for comparisons."""
    policy = parameters(item).get("policy")
    return isinstance(policy, str) and policy in known_policies() - SITE_POLICIES


def is_later_turn(item: pytest.Item) -> bool:
    """Return whether the case is a later turn of a long loop (tests/functional/turns.py)."""
    turn = parameters(item).get("turn", 0)
    return isinstance(turn, int) and turn > 0


def known_policies() -> frozenset[str]:
    """Return the names of all policies in the registry."""
    from evenshare_core.policies.registry import POLICIES

    return frozenset(POLICIES)


def parameters(item: pytest.Item) -> dict[str, object]:
    """Return the arguments that `parametrize` gives a test."""
    call = getattr(item, "callspec", None)
    return dict(call.params) if call else {}


def sample(cases: list[pytest.Item], strength: int) -> set[str]:
    """Return the node ids of a few cases that cover every combination of `strength` values.

    Cases with the most new combinations come first, then the cases in the order of a hash. So each
    value is combined not only with the first values of other parameters.
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
    """Return the combinations of `strength` values that occur in the cases of each test."""
    found: set[Combination] = set()
    for item in cases:
        # With two decorators `parametrize`, pytest's own indices count the cases, not the values.
        values = sorted((key, repr(value)) for key, value in parameters(item).items())
        name = item.nodeid.partition("[")[0]
        of_case = combinations(values, min(strength, len(values)))
        found |= {(name, *combination) for combination in of_case}
    return found
