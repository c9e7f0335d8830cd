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

REST_SLURM: tuple[str, ...] = ()

REST_TREES: tuple[str, ...] = ()

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

REST_PAPERS: tuple[str, ...] = ()

REST_UNIT: tuple[str, ...] = ()

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
    seen: dict[str, set[tuple[tuple[str, str], ...]]] = {}
    chosen = set()
    for item in sorted(cases, key=lambda one: crc32(one.nodeid.encode())):
        known = seen.setdefault(item.nodeid.partition("[")[0], set())
        # By their texts: the indices of a callspec count cases, not values.
        values = sorted((name, repr(value)) for name, value in parameters(item).items())
        found = set(combinations(values, min(strength, len(values))))
        if found - known:
            known |= found
            chosen.add(item.nodeid)
    return chosen
