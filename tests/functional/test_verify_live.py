"""Test that tenants on separate machines verify rounds, and find changes by the portal's owner.

A real server, its real log, and the command in a separate process run. The owner of the database
ignores triggers and has the installation's key, so hashes, links and signatures of forged data are
valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from evenshare_core.chain.checkpoints import SigningKey, make_vkey, sign_note
from evenshare_core.chain.merkle import leaf_hash
from evenshare_core.chain.records import read_record
from scheduling.models import Pool, Round, RoundSealing, Verification
from tenants import transparency
from tenants.models import Membership, User
from tests.factories import Cluster, cluster
from tests.functional.test_cli import PASSWORD, Person
from tests.plugin import Services
from tests.tools import PATIENCE_S

ROUNDS = 6
Owner = psycopg.Connection[Any]


class Town:
    """A pool with sealed rounds, and a person of each of two tenants with a shell."""

    def __init__(self, lab: Cluster, ada: Person, bob: Person) -> None:
        self.lab, self.ada, self.bob = lab, ada, bob
        self.pool = lab.pool.name

    def verify(self, who: Person, *more: str, code: int = 0) -> str:
        """Verify the last rounds; return the output."""
        words = ("round", "verify", "--pool", self.pool, "--last", str(ROUNDS), *more)
        out, err = who.start(*words).communicate(timeout=PATIENCE_S)
        process = who.running.pop()
        assert process.returncode == code, (out, err)
        return out

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            self.lab.round(after_s=10)
        self.lab.seal()


@pytest.fixture
def town(site: str, tmp_path: Path) -> Iterator[Town]:
    lab = cluster({"a": 4, "b": 4}, lease_s=20)
    people = []
    for name, tenant in (("ada", "a"), ("bob", "b")):
        user = User.objects.create_user(name, password=PASSWORD)
        Membership.objects.create(user=user, tenant=lab.tenants[tenant])
        home = tmp_path / name
        home.mkdir()
        people.append(Person(name, home, site))
        people[-1].logs_in()
    lab.submit("a", 2, 1000)
    lab.submit("b", 8, 25)
    lab.submit("b", 2, 1000)
    lab.submit("a", 4, 40)
    made = Town(lab, people[0], people[1])
    made.play(ROUNDS)
    yield made
    for process in (*people[0].running, *people[1].running):
        process.kill()
        process.wait()


@pytest.fixture
def owner(committed_db: str, services: Services) -> Iterator[Owner]:
    """Yield a session that ignores triggers, like that of the database's owner."""
    with services.postgres.connect(committed_db) as session:
        session.autocommit = True
        session.execute("SET session_replication_role = replica")
        yield session


def update_round(owner: Owner, town: Town, number: int, column: str, value: object) -> None:
    """Change a column of a round, and recompute the row's seal."""
    which = [town.lab.pool.pk, number]
    change = sql.SQL("UPDATE scheduling_round SET {} = %s WHERE pool_id = %s AND number = %s")
    owner.execute(change.format(sql.Identifier(column)), [json.dumps(value), *which])
    owner.execute(
        "UPDATE scheduling_round r SET seal = scheduling_round_seal(r)"
        " WHERE pool_id = %s AND number = %s",
        which,
    )


def sealed_anew(town: Town, owner: Owner, first: int) -> None:
    """Delete records from a round on, and make the portal seal those rounds again."""
    sealing = RoundSealing.objects.get(pool=town.lab.pool)
    place = first - sealing.first
    (log,) = owner.execute(
        "SELECT id FROM tenants_transparencylog WHERE origin = %s",
        [transparency.round_log(town.pool)],
    ).fetchone() or (0,)
    owner.execute('DELETE FROM tenants_logentry WHERE log_id = %s AND "index" >= %s', [log, place])
    owner.execute(
        'DELETE FROM tenants_lognode WHERE log_id = %s AND (("index" + 1) << level) > %s',
        [log, place],
    )
    owner.execute(
        "DELETE FROM scheduling_roundbundle WHERE pool_id = %s AND number >= %s",
        [town.lab.pool.pk, first],
    )
    RoundSealing.objects.filter(pk=sealing.pk).update(number=first - 1, findings=[])


class TestTenant:
    def test_verified_figures_match_the_stored_round(self, town: Town) -> None:
        for who, tenant in ((town.ada, "a"), (town.bob, "b")):
            said = town.verify(who, "--output", "json")
            shown = json.loads(said)
            assert shown["ok"] is True
            assert [row["round"] for row in shown["rounds"]] == list(range(1, ROUNDS + 1))
            last = shown["rounds"][-1]
            assert last["recomputed"] == [
                "record", "bytes", "decision", "certificate", "follows", "names",
            ]  # fmt: skip
            assert last["remarks"] == []
            row = Round.objects.get(pool=town.lab.pool, number=ROUNDS)
            slug = town.lab.tenants[tenant].slug
            stored = [r for r in row.shares if r["tenant"] == town.lab.tenants[tenant].pk]
            claims = last["figures"]["claims"]
            assert {claim["tenant"] for claim in claims} == {slug}
            assert [(c["own"], c["borrowed"], c["rho"]) for c in claims] == [
                (r["own"], r["borrowed"], r["rho_before"]) for r in stored
            ]

    def test_own_rows_remain_unproven_unless_accepted(self, town: Town) -> None:
        Pool.objects.update(visibility=Pool.Visibility.OWN)
        shown = json.loads(town.verify(town.ada, "--output", "json", code=5))
        last = shown["rounds"][-1]
        assert last["recomputed"] == ["record", "bytes"]
        assert [row["gap"] for row in last["unproven"]] == ["own-rows"]
        town.verify(town.ada, "--accept", "own-rows")
        assert "cannot be recomputed" in " ".join(last["remarks"])

    def test_verifies_after_the_log_has_grown(self, town: Town) -> None:
        town.verify(town.ada)
        town.play(3)
        said = town.verify(town.ada)
        assert f"{ROUNDS + 3} rounds, root" in said
        assert "new keys" not in said

    def test_reports_result_to_portal_unless_disabled(self, town: Town) -> None:
        shown = json.loads(town.verify(town.ada, "--output", "json"))
        town.verify(town.bob, "--no-report")
        row = Verification.objects.get()
        assert (row.tenant, row.user.username) == (town.lab.tenants["a"], "ada")
        assert (row.kind, row.first, row.last, row.checked) == ("rounds", 1, ROUNDS, ROUNDS)
        assert (row.size, row.root, row.findings) == (ROUNDS, shown["head"]["root"], 0)

    def test_heads_of_two_tenants_agree(self, town: Town) -> None:
        town.verify(town.ada)
        town.play(2)
        said = town.bob.does("round", "pin", "--pool", town.pool, "--against", str(pin(town.ada)))
        assert "has the same history" in said


def pin(who: Person) -> Path:
    [path] = (who.home / ".config" / "evenshare" / "pins").glob("*.json")
    return path


class TestDatabaseOwner:
    """The owner of the database, who has the key."""

    def test_shortened_history_is_detected(self, town: Town, owner: Owner) -> None:
        town.verify(town.ada)
        sealed_anew(town, owner, ROUNDS - 1)
        said = town.verify(town.ada, code=3)
        assert f"history: the history was shortened: {ROUNDS - 2} rounds now" in said

    def test_rewritten_round_is_detected(self, town: Town, owner: Owner) -> None:
        """The owner changes the round's certificate and seals all rounds again."""
        town.verify(town.ada)
        town.play(1)
        certificate = Round.objects.get(pool=town.lab.pool, number=3).certificate
        assert certificate is not None
        for row in certificate["findings"]:
            row["verdict"] = "holds"
        update_round(owner, town, 3, "certificate", certificate)
        sealed_anew(town, owner, 3)
        assert town.lab.seal() == ROUNDS + 1 - 2
        said = town.verify(town.ada, code=3)
        assert "history: the history was rewritten or forked" in said
        assert re.search(r"round 3 .*WRONG: certificate: \w+: holds there, \w+ here", said)

    def test_fork_between_two_tenants_is_detected(self, town: Town, owner: Owner) -> None:
        town.ada.does("round", "pin", "--pool", town.pool)
        update_round(owner, town, 4, "certificate", {})
        sealed_anew(town, owner, 4)
        town.lab.seal()
        words = ("round", "pin", "--pool", town.pool, "--against", str(pin(town.ada)))
        out, err = town.bob.start(*words).communicate(timeout=PATIENCE_S)
        assert town.bob.running.pop().returncode == 3, (out, err)
        assert "WRONG: history: the history was forked: two heads" in out

    def test_removed_log_entry_is_detected(self, town: Town, owner: Owner) -> None:
        owner.execute(
            'DELETE FROM tenants_logentry WHERE "index" = 2 AND log_id ='
            " (SELECT id FROM tenants_transparencylog WHERE origin = %s)",
            [transparency.round_log(town.pool)],
        )
        said = town.verify(town.ada, code=3)
        assert "record: the round before it in the log is 2" in said

    def test_other_signing_key_is_detected(self, town: Town) -> None:
        town.verify(town.ada)
        path = pin(town.ada)
        kept = json.loads(path.read_text())
        other = SigningKey(kept["log"], bytes(32))
        text = kept["note"].partition("\n\n")[0] + "\n"
        kept |= {"keys": [make_vkey(other.name, other.public)], "note": sign_note(text, [other])}
        path.write_text(json.dumps(kept))
        said = town.verify(town.ada, code=3)
        assert "WRONG: key: the head is signed only by " in said

    def test_edited_record_is_detected(self, town: Town, owner: Owner) -> None:
        log = transparency.round_log(town.pool)
        [entry] = transparency.entries(log, 3, 1)
        record = read_record(entry.record)
        edited = entry.record.replace(record.bundle.encode(), b"0" * 64)
        owner.execute(
            'UPDATE tenants_logentry SET record = %s, leaf_hash = %s WHERE "index" = 3 AND log_id ='
            " (SELECT id FROM tenants_transparencylog WHERE origin = %s)",
            [edited, leaf_hash(edited), log],
        )
        said = town.verify(town.ada, code=3)
        assert f"bytes: the record commits to the SHA-256 {'0' * 64}" in said
        assert re.search(r"round 5 .*WRONG: record: its record names ", said)
