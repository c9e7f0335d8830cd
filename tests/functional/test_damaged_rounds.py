# ruff: noqa: S608 - statements are made of constants
"""Test a stored round that was changed: every reader reports it, and none fails.

The bytes change as by a disk, or by an attacker who can switch the guards off.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any, NamedTuple

import psycopg
import pytest
from django.core.management import CommandError, call_command

from billing.checks import run_checks
from portal.site.health import readiness
from scheduling.engine.scrub import scrub_rounds
from scheduling.models import Job, Round
from tests.functional.pool_stage import Stage, headline, stage
from tests.functional.test_metrics import sample, scrape
from tests.functional.turns import TURNS
from tests.plugin import Services
from tests.shapeless import drop_shapes
from tests.stages import Stages

# The damaged parts of a round; another round stays intact.
NUMBER = 1
BLOB, ROW = "scheduling_roundblob", "scheduling_round"


class Harm(NamedTuple):
    """A change of stored data, the part that shows it, and the hash that results."""

    id: str
    change: str
    part: str
    has_found: bool = True


HARMS = (
    *(
        Harm(f"byte_{place}_of_{part}", f"UPDATE {BLOB} SET {part} = set_byte({part}, {at},"
             f" get_byte({part}, {at}) # 1) WHERE number = {NUMBER}", part)
        for part in ("snapshot", "decision")
        for place, at in (("first", "0"), ("fortieth", "40"), ("last", f"length({part}) - 1"))
    ),
    Harm("truncated", f"UPDATE {BLOB} SET snapshot = substr(snapshot, 1, 50) WHERE number = 1",
         "snapshot"),
    Harm("empty", f"UPDATE {BLOB} SET decision = '' WHERE number = {NUMBER}", "decision"),
    Harm("longer", f"UPDATE {BLOB} SET decision = decision || 'x' WHERE number = {NUMBER}",
         "decision"),
    Harm("another", f"UPDATE {BLOB} SET snapshot = (SELECT snapshot FROM {BLOB} WHERE number = 2"
         f" LIMIT 1) WHERE number = {NUMBER}", "snapshot"),
    Harm("missing", f"DELETE FROM {BLOB} WHERE number = {NUMBER}", "snapshot", has_found=False),
    Harm("hash", f"UPDATE {ROW} SET decision_sha256 = repeat('0', 64) WHERE number = {NUMBER}",
         "row"),
    Harm("hash_too_short", f"UPDATE {ROW} SET snapshot_sha256 = '' WHERE number = {NUMBER}", "row",
         has_found=False),
    *(
        Harm(f"{column}_{name}", f"UPDATE {ROW} SET {column} = '{value}' WHERE number = {NUMBER}",
             "row", has_found=False)
        for column in ("summary", "shares", "superseded", "certificate")
        for name, value in (("object", '{"granted": "x"}'), ("list", '[["a"], 1]'), ("text", '"x"'))
    ),
    Harm("count", f"UPDATE {ROW} SET summary = summary || '{{\"granted\": 7}}'"
         f" WHERE number = {NUMBER}", "row", has_found=False),
    Harm("fallback", f"UPDATE {ROW} SET fallback = 'none' WHERE number = {NUMBER}", "row",
         has_found=False),
)  # fmt: skip
FOREVER = tuple(harm for harm in HARMS if harm.part != "row")


class Damage:
    """A stage, and a session that ignores triggers and constraints."""

    def __init__(self, there: Stage, session: psycopg.Connection[Any]) -> None:
        self.there, self.session = there, session
        session.execute("SET session_replication_role = replica")
        drop_shapes(session)

    def do(self, harm: Harm) -> None:
        """Damage the round of the stage's pool; the other pools have none."""
        for table in (BLOB, ROW):
            self._execute(f"CREATE TEMP TABLE kept_{table} AS SELECT * FROM {table}")
        assert self._execute(harm.change).rowcount == 1, harm.id

    def undo(self) -> None:
        for table in (BLOB, ROW):
            self._execute(f"DELETE FROM {table}")
            self._execute(f"INSERT INTO {table} SELECT * FROM kept_{table}")
            self._execute(f"DROP TABLE kept_{table}")

    def _execute(self, statement: str) -> psycopg.Cursor[Any]:
        return self.session.execute(statement)


@pytest.fixture
def damage(stages: Stages, services: Services) -> Iterator[Damage]:
    with stages.copy_of(stage) as copy, services.postgres.connect(copy.name) as session:
        yield Damage(copy.made, session)


def replay() -> str:
    """Return the output and the status of the command for all rounds."""
    said = StringIO()
    try:
        call_command("replay_round", all=True, stdout=said)
    except CommandError as error:
        return f"{said.getvalue()}{error}"
    return said.getvalue()


def check_ledger() -> list[str]:
    return [violation for result in run_checks() for violation in result.violations]


class TestDamagedRound:
    @pytest.mark.parametrize("turn", range(TURNS))
    def test_is_reported_by_every_view_without_errors(self, damage: Damage, turn: int) -> None:
        there = damage.there
        assert "2 of 2 rounds gave the same bytes" in replay()
        for harm in HARMS[turn::TURNS]:
            damage.do(harm)
            try:
                self.look_at_it(there, harm)
            finally:
                damage.undo()
        assert "2 of 2 rounds gave the same bytes" in replay()
        assert check_ledger() == []

    def look_at_it(self, there: Stage, harm: Harm) -> None:
        page = there.page("owner", there.url(f"rounds/{NUMBER}/"))
        assert "Damaged" in page, harm.id
        assert (headline(page) == "Round 1 was changed after it was written.") is (
            harm.part == "row"
        ), harm.id
        answer = there.get("owner", f"/api/v1/rounds/{there.pool}/{NUMBER}")
        assert answer.status_code == 200, harm.id
        body = answer.json()
        assert harm.part in {row["part"] for row in body["damages"]}, harm.id
        assert body["decision"] is None
        assert f"round {NUMBER} is damaged" in body["why_no_decision"]
        if harm.has_found:
            found = next(row for row in body["damages"] if row["actual_sha256"])
            assert len(found["actual_sha256"]) == 64
            assert found["actual_sha256"] in page
            assert found["expected_sha256"] in page
        for path in (
            there.url("rounds/"),
            there.url(f"rounds/{NUMBER}/counterfactual/"),
            "/api/v1/rounds",
        ):
            answer = there.get("owner", f"{path}?pool={there.pool}" if "api" in path else path)
            # 429: a page that decides the round again is rate-limited
            assert answer.status_code in (200, 429), (harm.id, path)
        said = replay()
        assert f"{there.pool}, round {NUMBER}: DAMAGED" in said, harm.id
        assert "1 of 2 rounds are damaged or not readable" in said, harm.id
        assert check_ledger(), harm.id

    def test_is_found_by_background_scrub(self, damage: Damage) -> None:
        there = damage.there
        assert scrub_rounds() == 0
        damage.do(HARMS[0])
        assert scrub_rounds(limit=1) == 1
        assert scrub_rounds(limit=1) == 1, "the next round is whole, and the first one is not"
        (rounds,) = (check for check in readiness() if check.name == "rounds")
        assert f"{there.pool}: 1 stored round is damaged" in rounds.detail
        assert sample(scrape(there.client(None)), "rounds_damaged", pool=there.pool) == 1
        assert "Rounds damaged" in there.page("operator", "/operate/")
        damage.undo()
        assert scrub_rounds() == 0

    @pytest.mark.parametrize("turn", range(TURNS))
    def test_job_pages_still_load(self, damage: Damage, turn: int) -> None:
        """The reason of a waiting job comes from the last round's bytes."""
        there = damage.there
        last = Round.objects.filter(pool=there.lab.pool).latest("number").number
        job = Job.objects.get(gpus=8)
        for harm in FOREVER[turn::TURNS]:
            change = harm.change.replace("number = 2", "number = 0")
            change = change.replace("number = 1", f"number = {last}").replace(
                "number = 0", "number = 1"
            )
            damage.do(harm._replace(change=change))
            for path in (f"/jobs/{job.uid}/", "/jobs/", there.url(), "/"):
                status = there.client("owner").get(path, follow=True).status_code
                assert status in (200, 404), (harm.id, path)
            damage.undo()
