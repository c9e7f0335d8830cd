"""Compare the table of all policies in the documents with the policies."""

from __future__ import annotations

import re
from pathlib import Path

from evenshare_core.policies.quota_promise import PoolLengths, QuotaPromiseKind
from evenshare_core.policies.registry import POLICIES, quota_promise

TABLE = Path(__file__).resolve().parents[2] / "docs" / "policies" / "README.md"
ROW = re.compile(
    r"^\| \[`(\w+)`\]\((\w+\.md)\) \|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|$"
)
HEAD = "| policy | goes first | quota | preempts | needs | when to choose it | cost of a decision |"
COST = re.compile(r"\d+\.\dx, \d+\.\dx")
QUOTA = {
    QuotaPromiseKind.GUARANTEED: "guaranteed",
    QuotaPromiseKind.RESERVED: "reserved",
    QuotaPromiseKind.LONG_TERM: "long term",
    QuotaPromiseKind.WEIGHT: "weight",
    QuotaPromiseKind.NOT_GUARANTEED: "none",
}


def rows() -> dict[str, list[str]]:
    """Return each policy's cells: page, order, quota, preemption, needs, when to use it, cost."""
    found = [ROW.match(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]
    return {row[1]: [cell.strip() for cell in row.groups()[1:]] for row in found if row}


def expected(name: str) -> tuple[str, str, str]:
    traits = POLICIES[name].traits
    needs = (("estimates", traits.needs_estimates), ("speeds by type", traits.needs_profiles))
    preempts = "expiry" if traits.preempts else "never"
    return (
        QUOTA[quota_promise(name, {}, PoolLengths(0, 0)).kind],
        "notice" if traits.preempts_running else preempts,
        ", ".join(text for text, is_needed in needs if is_needed),
    )


class TestPolicyTable:
    def test_lists_every_policy(self) -> None:
        assert sorted(rows()) == sorted(POLICIES)

    def test_properties_match_policies(self) -> None:
        written = {name: tuple(cells[2:5]) for name, cells in rows().items()}
        assert written == {name: expected(name) for name in written}

    def test_has_order_and_advice_and_links_to_page(self) -> None:
        for name, (page, order, *_, when, _cost) in rows().items():
            assert order
            assert when
            assert name in (TABLE.parent / page).read_text(encoding="utf-8").lower()

    def test_shows_decision_cost_relative_to_fifo(self) -> None:
        assert HEAD in TABLE.read_text(encoding="utf-8").splitlines()
        costs = {name: cells[-1] for name, cells in rows().items()}
        assert costs["fifo"] == "1.0x, 1.0x"
        assert {name for name, cost in costs.items() if not COST.fullmatch(cost)} == set()
