"""Test fairness sums that are changed between two rounds: refused, or reported by every check.

The application's password does not allow such changes. The owner of the database can switch its
guards off and recompute hashes and seals. Even then, the next round does not follow.
"""

# ruff: noqa: S608 - statements are made of constants

from __future__ import annotations

import zlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connections, transaction
from msgspec.structs import replace

from billing.checks import run_checks
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Service
from evenshare_core.domain.values import canonical_bytes, decode, sha256_hex
from portal.site.health import is_ready, readiness
from scheduling.engine.archive import archive_rounds
from scheduling.engine.failures import record_failure
from scheduling.engine.scrub import scrub_rounds
from scheduling.models import Round, RoundState
from scheduling.selectors.rounds.states import LeftState, MissingStateError
from tenants.scopes import site_scope
from tests.functional.pool_stage import Stage, stage
from tests.functional.test_damaged_rounds import replay
from tests.integration.archive_stage import files_in
from tests.plugin import Services
from tests.round_states import left_by
from tests.stages import Stages

STATE, ROUND, BLOB = "scheduling_roundstate", "scheduling_round", "scheduling_roundblob"


class Owner:
    """The owner of the database, with its guards switched off."""

    def __init__(self, there: Stage, session: psycopg.Connection[Any]) -> None:
        self.there, self.session = there, session
        session.execute("SET session_replication_role = replica")

    def execute(self, statement: str, *values: Any) -> None:
        """Change exactly one row."""
        assert self.session.execute(statement, values).rowcount == 1, statement

    def bend_sums(self, number: int) -> LeftState:
        """Divide the GPU-time that tenant alpha received by a hundred, after a round."""
        state = left_by(self.there.lab.pool)
        service = canonical_bytes(self.bent(state.sums()))
        self.execute(
            f"UPDATE {STATE} SET service = %s WHERE number = %s", zlib.compress(service, 1), number
        )
        return LeftState(
            state.number, state.at, state.policy, state.policy_version, service, state.memory,
            state.prices, state.entitled,
        )  # fmt: skip

    def bent(self, service: Service) -> Service:
        alpha = self.there.tenant("alpha").pk
        claims = tuple(
            replace(row, alloc_gpu_us=row.alloc_gpu_us // 100) if row.tenant == alpha else row
            for row in service.claims
        )
        assert claims != service.claims
        return replace(service, claims=claims)

    def seal(self, number: int) -> None:
        """Recompute the seal of a round's row."""
        self.execute(
            f"UPDATE {ROUND} r SET seal = scheduling_round_seal(r) WHERE number = %s", number
        )

    def rewrite(self, number: int) -> None:
        """Change the sums that a round left: its decision, its state, all hashes and the seal."""
        session = self.session
        (packed,) = session.execute(
            f"SELECT decision FROM {BLOB} WHERE number = %s", [number]
        ).fetchall()[0]
        decision = decode(zlib.decompress(bytes(packed)), Decision)
        data = canonical_bytes(replace(decision, service=self.bent(decision.service)))
        self.execute(
            f"UPDATE {BLOB} SET decision = %s WHERE number = %s", zlib.compress(data, 1), number
        )
        self.execute(
            f"UPDATE {ROUND} SET decision_sha256 = %s, state_sha256 = '' WHERE number = %s",
            sha256_hex(data), number,
        )  # fmt: skip
        self.seal(number)


@pytest.fixture
def owner(stages: Stages, services: Services) -> Iterator[Owner]:
    with stages.copy_of(stage) as copy, services.postgres.connect(copy.name) as session:
        yield Owner(copy.made, session)


def broken_checks() -> dict[str, list[str]]:
    return {result.name: result.violations for result in run_checks() if not result.ok}


def rounds_check() -> tuple[str, str]:
    (check,) = (check for check in readiness() if check.name == "rounds")
    return check.state.value, check.detail


def certificate_line(page: str, name: str) -> str:
    """Return the part of a page after the last name of a promise."""
    assert name in page, name
    return page.rpartition(name)[2][:700]


def assert_everybody_says_so(owner: Owner, number: int, why: str) -> None:
    """Check that replay, readiness, check_ledger, page and REST name the round and the reason."""
    there = owner.there
    said = replay()
    assert f"DOES NOT FOLLOW from round {number - 1}:" in said
    assert why in said
    assert "1 of 3 rounds do not follow from the previous round" in said
    (violation,) = broken_checks()["rounds_follow"]
    assert f"round {number} does not follow from round {number - 1}: {why}" in violation
    assert scrub_rounds() == 1
    state, detail = rounds_check()
    assert state == "failing"
    assert not is_ready(readiness())
    assert f"{there.pool}: round {number} does not follow from round {number - 1}" in detail
    assert why in detail
    line = certificate_line(
        there.page("operator", there.url(f"rounds/{number}/")), f"Follows from round {number - 1}"
    )
    assert why in line
    body = there.get("owner", f"/api/v1/rounds/{there.pool}/{number}").json()
    assert body["following"]["follows"] is False
    assert body["following"]["round"] == number - 1
    assert "does not follow" in there.page("operator", "/operate/")


class TestApplicationRole:
    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE {} SET service = ''",
            "DELETE FROM {}",
            "TRUNCATE {}",
            "UPDATE {} SET prices = '[]'",
        ],
    )
    def test_cannot_change_stored_sums(self, owner: Owner, statement: str) -> None:
        assert left_by(owner.there.lab.pool).number == 2
        for using, said in (("default", "permission denied"), ("owner", "append-only")):
            with (
                pytest.raises(DatabaseError, match=said),
                transaction.atomic(using=using),
                connections[using].cursor() as cursor,
            ):
                cursor.execute(statement.format(STATE))

    def test_extra_state_row_is_ignored(self, owner: Owner) -> None:
        """The role may add rows, but a second row of a round does not match the round's hash."""
        there, before = owner.there, left_by(owner.there.lab.pool)
        forged = canonical_bytes(owner.bent(before.sums()))
        RoundState.objects.create(
            day=before.at.date() - timedelta(days=400), pool=there.lab.pool, number=before.number,
            at=before.at, policy=before.policy, policy_version=before.policy_version,
            service=zlib.compress(forged, 1), memory=zlib.compress(before.memory, 1),
            prices=before.prices, entitled=before.entitled,
        )  # fmt: skip
        assert left_by(there.lab.pool) == before
        there.lab.round(after_s=10)
        assert Round.objects.latest("number").state_note == ""
        assert broken_checks() == {}


class TestIntactRounds:
    def test_every_check_reports_that_rounds_follow(self, owner: Owner) -> None:
        there = owner.there
        there.lab.round(after_s=10)
        assert "3 of 3 rounds gave the same bytes" in replay()
        assert broken_checks() == {}
        assert scrub_rounds() == 0
        assert rounds_check()[0] == "ok"
        page = there.page("neighbour", there.url("rounds/3/"))
        assert "prices and leases of round 2" in certificate_line(page, "Follows from round 2")
        first = there.page("neighbour", there.url("rounds/1/"))
        assert "the pool&#x27;s first round" in certificate_line(first, "First round")
        body = there.get("owner", f"/api/v1/rounds/{there.pool}/3").json()
        assert body["following"] == {"round": 2, "follows": True, "why": []}


class TestSumsAlteredByOwner:
    def test_are_detected_before_next_round(self, owner: Owner) -> None:
        there = owner.there
        owner.bend_sums(2)
        assert "its state differs from the saved state" in replay()
        assert "its state differs from the saved state" in broken_checks()["rounds_follow"][0]
        assert scrub_rounds() == 1
        assert rounds_check() == ("warning", f"{there.pool}: 1 stored round is damaged")
        body = there.get("owner", f"/api/v1/rounds/{there.pool}/2").json()
        assert [row["part"] for row in body["damages"]] == ["state"]
        assert body["decision"] is not None
        assert "Damaged" in there.page("owner", there.url("rounds/2/"))

    def test_are_replaced_from_the_stored_decision(self, owner: Owner) -> None:
        there, whole = owner.there, left_by(owner.there.lab.pool)
        owner.bend_sums(2)
        left = left_by(there.lab.pool)
        note = "the state that round 2 left does not match its hash"
        assert left.note == f"{note}: it was taken from the decision"
        assert replace_note(left) == whole
        there.lab.round(after_s=10)
        row = Round.objects.latest("number")
        assert row.state_note == left.note
        # Every check reports the damage at once, although the new round follows from the one
        # before.
        assert rounds_check() == ("warning", f"{there.pool}: 1 stored round is damaged")
        assert "3 of 3 rounds" not in replay()
        assert "do not follow" not in replay()
        assert any(note in text for text in broken_checks()["rounds_follow"])
        there.lab.round(after_s=10)
        assert Round.objects.latest("number").state_note == ""

    def test_with_matching_hash_and_seal_break_the_chain(self, owner: Owner) -> None:
        bent = owner.bend_sums(2)
        owner.execute(f"UPDATE {ROUND} SET state_sha256 = %s WHERE number = 2", bent.sha256())
        owner.seal(2)
        assert "2 of 2 rounds gave the same bytes" in replay()
        owner.there.lab.round(after_s=10)
        assert Round.objects.latest("number").state_note == ""
        alpha = owner.there.tenant("alpha").pk
        why = f"The sums of tenant {alpha} for v100 are not those that round 2 left: alloc_gpu_us"
        assert_everybody_says_so(owner, 3, why)

    def test_hide_figures_of_other_tenants(self, owner: Owner) -> None:
        bent = owner.bend_sums(2)
        owner.execute(f"UPDATE {ROUND} SET state_sha256 = %s WHERE number = 2", bent.sha256())
        owner.seal(2)
        there = owner.there
        there.lab.round(after_s=10)
        body = there.get("neighbour", f"/api/v1/rounds/{there.pool}/3").json()
        assert body["following"]["why"] == ["It does not; operators can see the cause."]
        page = there.page("neighbour", there.url("rounds/3/"))
        assert "alloc_gpu_us" not in page
        assert "operators can see the cause" in certificate_line(page, "Follows from round 2")


class TestRoundRewrittenByOwner:
    def test_with_all_hashes_rewritten_is_named_by_next_round(self, owner: Owner) -> None:
        owner.there.lab.round(after_s=10)
        owner.rewrite(2)
        said = replay()
        assert "round 2: DIFFERENT" in said  # the changed sums do not lead to the stored decision
        alpha = owner.there.tenant("alpha").pk
        why = f"The sums of tenant {alpha} for v100 are not those that round 2 left: alloc_gpu_us"
        assert_everybody_says_so(owner, 3, why)

    def test_deleted_round_is_named_by_next_round(self, owner: Owner) -> None:
        owner.there.lab.round(after_s=10)
        owner.execute(f"DELETE FROM {ROUND} WHERE number = 2")
        owner.execute(f"DELETE FROM {BLOB} WHERE number = 2")
        said = replay()
        assert "DOES NOT FOLLOW from round 2:" in said
        assert "Round 2 is missing." in said
        assert (
            "round 3 does not follow from round 2: Round 2 is missing"
            in (broken_checks()["rounds_follow"][0])
        )
        scrub_rounds()
        assert "round 3 does not follow from round 2: Round 2 is missing" in rounds_check()[1]

    def test_deleted_last_round_is_noted_by_next_round(self, owner: Owner) -> None:
        owner.execute(f"DELETE FROM {ROUND} WHERE number = 2")
        owner.there.lab.round(after_s=10)
        row = Round.objects.latest("number")
        assert row.number == 3
        assert row.state_note.startswith("round 2 is missing, though another one was to follow it")


class TestMissingState:
    def test_is_restored_from_decision(self, owner: Owner) -> None:
        whole = left_by(owner.there.lab.pool)
        owner.execute(f"DELETE FROM {STATE} WHERE number = 2")
        left = left_by(owner.there.lab.pool)
        assert left.sums() == whole.sums()
        assert left.prices == whole.prices
        assert left.note == (
            "the state that round 2 left is missing: it was taken from the decision"
        )
        assert "its state is missing, although the next round starts with it" in replay()

    def test_stops_round_if_decision_is_missing_too(self, owner: Owner) -> None:
        there = owner.there
        owner.execute(f"DELETE FROM {STATE} WHERE number = 2")
        owner.execute(f"DELETE FROM {BLOB} WHERE number = 2")
        with pytest.raises(MissingStateError) as caught:
            there.lab.round(after_s=10)
        assert str(caught.value).startswith("the state that round 2 left is missing, and round 2")
        assert Round.objects.latest("number").number == 2
        record_failure(there.lab.pool.pk, caught.value)  # the task of rounds does this
        assert "1 failed in a row" in rounds_check()[1]
        assert "the state that round 2 left is missing" in there.page("operator", "/operate/")

    def test_uses_altered_state_with_note_without_decision(self, owner: Owner) -> None:
        bent = owner.bend_sums(2)
        owner.execute(f"DELETE FROM {BLOB} WHERE number = 2")
        owner.there.lab.round(after_s=10)
        row = Round.objects.latest("number")
        assert row.number == 3
        assert "does not match its hash, and round 2" in row.state_note
        assert rounds_check()[0] == "warning"
        assert bent.service


class TestHousekeeping:
    def test_keeps_state_that_next_round_starts_from(
        self, owner: Owner, settings: Any, tmp_path: Path
    ) -> None:
        """After idle weeks, the day of the pool's last state is dropped; the state is kept."""
        files_in(settings, tmp_path)
        owner.there.lab.seal()
        pool = owner.there.lab.pool
        old = left_by(pool).at.date().replace(year=2020)
        with site_scope(), connections["default"].cursor() as cursor:
            cursor.execute("SELECT evenshare_make_state_day(%s)", [old])
        moved = f"UPDATE {STATE} SET day = %s WHERE number = %s AND pool_id = %s"
        for number in (0, 1, 2):
            owner.execute(moved, old, number, pool.pk)
        whole = left_by(pool)
        assert archive_rounds(seconds=60).days == 1
        mine = RoundState.objects.filter(pool=pool)
        assert list(mine.values_list("number", flat=True)) == [2]
        assert left_by(pool) == whole
        owner.there.lab.round(after_s=10)
        assert Round.objects.latest("number").state_note == ""
        archive_rounds(seconds=60)
        assert left_by(pool).number == 3


def replace_note(state: LeftState) -> LeftState:
    return LeftState(
        state.number, state.at, state.policy, state.policy_version, state.service, state.memory,
        state.prices, state.entitled,
    )  # fmt: skip
