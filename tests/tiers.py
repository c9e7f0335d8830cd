"""Which tests each command runs. A plugin; `tests/rest.py` has the table.

`make test` runs every test that no row gives away, `make test-fast` those of them that need
no server, `make test-rest` what `make test` leaves out, `make lint` the architecture, `make soak`
what is marked `soak`. Paths on the command line are obeyed:
`make test ARGS=tests/simulation/test_loop.py` runs all of that file.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from zlib import crc32

import pytest

from tests.rest import REST

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
    "tests/unit/portal/test_site_imports.py",
)
# The policies that a site would run; cases of others are left to `make test-rest`.
SITE_POLICIES = frozenset(
    ("evenshare", "ltgf", "oef", "gandiva_fair", "unisched", "market", "drf", "fifo")
)

# `make test` runs a sample of these cases: 1, each value of a parameter occurs; 2, each pair of
# values. `make test-rest` runs the other cases.
SAMPLED: dict[str, int] = {
    "tests/integration/test_fault_matrix.py": 1,
    "tests/integration/test_preemption_faults.py": 1,
}
# Of these `make test-rest` runs a second sample, `make soak` the cases that are left then.
SOAKED = ("tests/integration/test_fault_matrix.py",)


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


def left_to_soak(items: list[pytest.Item]) -> list[pytest.Item]:
    """The cases that `make test-rest` leaves out, too."""
    left = []
    for prefix in SOAKED:
        cases = [item for item in items if item.nodeid.startswith(prefix)]
        for _ in range(2):
            chosen = sample(cases, SAMPLED[prefix])
            cases = [item for item in cases if item.nodeid not in chosen]
        left += cases
    return left


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
    """Return the combinations of `strength` values that occur in the cases of each test."""
    found: set[Combination] = set()
    for item in cases:
        # Of two `parametrize` pytest's own indices number the cases, not the values.
        values = sorted((key, repr(value)) for key, value in parameters(item).items())
        name = item.nodeid.partition("[")[0]
        of_case = combinations(values, min(strength, len(values)))
        found |= {(name, *combination) for combination in of_case}
    return found
