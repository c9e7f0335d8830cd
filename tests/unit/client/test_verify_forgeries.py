"""Test `evenshare round verify` on answers that withhold data or contain unknown names.

The answers are signed correctly and contain no contradiction, so they are neither wrong nor proven.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from evenshare.cli.verify import GAPS
from evenshare_core.verification.verdict import TO_DO, Gap
from tests.unit.verified_rounds import POOL, StagedPool, staged_rounds

from .conftest import ROUNDS, Run
from .portal import Answer, Portal

Answers = Callable[[list[str], dict[str, str]], Answer]


def bundles_withheld(_: StagedPool) -> Mapping[str, Any]:
    return {"bundle": (404, {"title": "No longer kept", "status": 404})}


def names_withheld(_: StagedPool) -> Mapping[str, Any]:
    return {"names": (200, {"pool": POOL, "day": "2030-03-17", "tenants": [], "names": {}})}


def unknown_policy_version(pool: StagedPool) -> Mapping[str, Any]:
    """Return answers with other decisions that claim to be of another policy version."""
    pool.seal(worse_plan(lambda document: document["snapshot"].update(policy_version="99")))
    return {}


def unknown_policy(pool: StagedPool) -> Mapping[str, Any]:
    pool.seal(changed(lambda document: document["snapshot"].update(policy="finest")), unread=True)
    return {}


def gap_of_everything(pool: StagedPool) -> Mapping[str, Any]:
    pool.rounds = staged_rounds(ROUNDS, policy="oef")

    def bend(document: dict[str, Any]) -> None:
        document["versions"]["highspy"] = "99"
        solve = document["decision"]["solve"]
        solve["fallback"] = "solved, gap 100 %"
        solve["objective"] = (solve["objective"] or 0) / 1000

    pool.seal(changed(bend))
    return {}


def grants_left_out(pool: StagedPool) -> Mapping[str, Any]:
    pool.rounds = staged_rounds(ROUNDS, left_out=lambda _: "it could not be")
    pool.seal()
    return {}


def own_rows_alone(pool: StagedPool) -> Mapping[str, Any]:
    pool.visibility = "own"
    return {}


FORGERIES: tuple[tuple[Callable[[StagedPool], Mapping[str, Any]], str], ...] = (
    (bundles_withheld, "bundle"),
    (names_withheld, "names"),
    (unknown_policy_version, "version"),
    (unknown_policy, "version"),
    (gap_of_everything, "version"),
    (grants_left_out, "superseded"),
    (own_rows_alone, "own-rows"),
)


def changed(change: Callable[[dict[str, Any]], object]) -> Callable[[int, bytes], bytes]:
    def tamper(_: int, data: bytes) -> bytes:
        document = json.loads(data)
        change(document)
        return json.dumps(document, separators=(",", ":")).encode()

    return tamper


def worse_plan(change: Callable[[dict[str, Any]], object]) -> Callable[[int, bytes], bytes]:
    """Return a change to a decision that keeps it valid, but that this version would not make.

    Its picks have other ranks.
    """

    def bend(document: dict[str, Any]) -> None:
        change(document)
        for row in (*document["decision"]["grants"], *document["decision"]["renewals"]):
            row["key"]["note"] = "another"

    return changed(bend)


def forge_answers(portal: Portal, pool: StagedPool, answers: Mapping[str, Any]) -> None:
    """Make the portal return these answers, by the path's last word, instead of the pool's."""
    portal.rounds = lambda words, query: answers.get(words[-1]) or pool.answer(words, query)
    portal.jobs = pool.jobs()


def test_command_lists_all_gaps() -> None:
    """The command has a separate list of gaps, because it also runs without the library."""
    assert tuple(gap.value for gap in Gap) == GAPS
    assert set(TO_DO) == set(Gap)


class TestStatement:
    WORDS = ("statement", "verify", "--pool", POOL, "--from", "2030-03-17", "--to", "2030-03-18")

    def test_with_all_rows_withheld_is_not_proven(self, run: Run, portal: Portal) -> None:
        whole = portal.answer

        def withheld(method: str, path: str, *others: Any) -> Answer:
            if path.rpartition("/")[2] in ("usage", "entries", "income"):
                return 200, {"results": [], "idle": [], "next": None}
            return whole(method, path, *others)

        portal.answer = withheld  # type: ignore[method-assign,assignment]  # it is this test's own
        done = run(*self.WORDS)
        assert done.code == 5, done.out + done.err
        assert (
            "NOT PROVEN: rows: 1 x: the portal gave no row of usage, income or entries" in done.out
        )
        shown = run(*self.WORDS, "--output", "json").json
        assert (shown["ok"], shown["verdict"]) == (False, "not_proven")
        assert run(*self.WORDS, "--accept", "rows").code == 0


class TestForgery:
    @pytest.mark.parametrize(("forge", "gap"), FORGERIES)
    def test_is_not_proven(
        self,
        verify_all: Any,
        portal: Portal,
        pool: StagedPool,
        forge: Callable[[StagedPool], Mapping[str, Any]],
        gap: str,
    ) -> None:
        forge_answers(portal, pool, forge(pool))
        done = verify_all()
        assert done.code == 5, done.out + done.err
        [line] = [line for line in done.out.splitlines() if line.startswith(f"NOT PROVEN: {gap}: ")]
        assert " To do: " in line
        assert " not proven" in done.out.splitlines()[-1]
        shown = verify_all("--output", "json").json
        assert (shown["ok"], shown["verdict"]) == (False, "not_proven")
        assert gap in {row["gap"] for one in shown["rounds"] for row in one["unproven"]}

    @pytest.mark.parametrize(("forge", "gap"), FORGERIES)
    def test_passes_if_gap_is_accepted(
        self,
        verify_all: Any,
        portal: Portal,
        pool: StagedPool,
        forge: Callable[[StagedPool], Mapping[str, Any]],
        gap: str,
    ) -> None:
        """Tenants accept such gaps in pools with own rows only, or with archived history."""
        forge_answers(portal, pool, forge(pool))
        done = verify_all("--accept", gap)
        assert done.code == 0, done.out + done.err
        assert f"accepted, not proven: {gap}: " in done.out
