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
            "accessible.py::TestEveryPage::test_of_a_viewer",
            "charts.py::TestADownload::test_as_a_table",
            "charts.py::TestADownload::test_is_a_picture",
            "charts.py::TestADownload::test_says_in_its_title",
            "charts.py::TestAPageWithoutAChart",
            "charts.py::TestAReader::test_has_the_theme",
            "charts.py::TestAReader::test_points_at",
            "charts.py::TestAReader::test_reads_by_keyboard",
            "charts.py::TestAReader::test_switches",
            "charts.py::TestEveryChart::test_inserts",
            "charts.py::TestEveryChart::test_is_drawn_without_a_complaint[390",
            "charts.py::TestEveryChart::test_leaves",
            "job_usage.py::TestAJobsUsage::test_has_nothing_serious",
            "job_usage.py::TestAJobsUsage::test_is_not_asked_for",
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
            "submit.py::TestTheLog::test_of_a_hostile_job",
            "what_if.py::TestAChoice",
            "what_if.py::TestAnOperator::test_cancels",
            "what_if.py::TestAnOperator::test_is_told",
        )
    ),
)

REST_FUNCTIONAL: tuple[str, ...] = (
    # A tenant's manager stays: an operator's forms are five times as many.
    "tests/functional/test_extreme_inputs.py::TestTheForms::test_of_every_page_never_fail[0-otto]",
    "tests/functional/test_canaries.py::TestEveryAddress::test_shows_its_own_and_nothing_of_the_other[pseudonyms]",
    "tests/functional/test_canaries.py::TestEveryAddress::test_shows_its_own_and_nothing_of_the_other[full]",
)

REST_INTEGRATION: tuple[str, ...] = ()

REST_SLURM: tuple[str, ...] = ()

REST_TREES: tuple[str, ...] = ()

REST_SIMULATION: tuple[str, ...] = ()

REST_PAPERS: tuple[str, ...] = ()

REST_UNIT: tuple[str, ...] = ()

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
