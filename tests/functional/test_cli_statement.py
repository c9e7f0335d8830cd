"""Test `evenshare statement verify` against the real portal, and from files without a portal."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from evenshare.cli import verify as verify_module
from evenshare.cli import verify_log
from evenshare.cli.main import main
from evenshare.cli.verify_files import fetch_chain
from evenshare_core.chain.checkpoints import Checkpoint, SigningKey, make_vkey, note_text, sign_note
from evenshare_core.chain.records import record_hash
from scheduling.engine.seal import seal_rounds
from scheduling.models import Verification
from tenants.scopes import site_scope
from tests.functional.api_stage import ApiStage
from tests.functional.lending_stage import lending_stage
from tests.stages import Copy, copied, name_of_copy

FIRST = "new keys; compare them"
TIME = ("--from", "2029-12-01", "--to", "2030-12-01T00:00:00Z")


@dataclass
class Ran:
    """The output and the exit status of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


copy = copied(lending_stage)
committed_db = name_of_copy


@pytest.fixture
def live(copy: Copy[ApiStage], site: str, tmp_path: Path, settings: Settings) -> ApiStage:
    assert site
    settings.LOG_KEYS_DIR = str(tmp_path / "log-keys")
    seal(copy.made)
    return copy.made


def seal(live: ApiStage) -> None:
    with site_scope():
        while seal_rounds(live.cluster.pool.pk):
            pass


@pytest.fixture
def run(
    live: ApiStage,
    site: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Run:
    """Return a function that runs the command in this process as a user."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EVENSHARE_URL", site)

    def call(as_: str, *options: str) -> Ran:
        monkeypatch.setenv("EVENSHARE_TOKEN", live.secrets[as_])
        capsys.readouterr()
        code = main(["statement", "verify", *options])
        text = capsys.readouterr()
        return Ran(code, text.out, text.err)

    return call


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = json.loads((folder / f"{name}.json").read_text())
    return read


def keep(folder: Path, name: str, value: object) -> None:
    path = folder / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> Path:
    """Return the files of a lender's statement, and the rounds that it names."""
    kept = tmp_path / "kept"
    assert run("bob", *TIME, "--save-dir", str(kept)).code == 0
    return kept


class TestStatementVerification:
    def test_succeeds_for_lender_and_borrower(self, run: Run) -> None:
        for who, slug in (("bob", "bb"), ("ada", "aa")):
            done = run(who, *TIME)
            assert done.code == 0, done
            first, *_, last = done.out.splitlines()
            assert first.startswith(f"{slug} in pool ")
            assert last.startswith("all ")
            assert last.endswith(" as stated")
            assert "settlement of " in done.out

    def test_compares_with_committed_rounds_and_reports_result(
        self, live: ApiStage, run: Run, tmp_path: Path
    ) -> None:
        for who in ("bob", "ada"):
            kept = str(tmp_path / who)
            done = run(who, *TIME, "--save-dir", kept)
            assert done.code == 0, done
            for what in ("price in its round", "own and borrowed GPUs"):
                assert f"  {what}" in done.out
            assert "remark" not in done.out
            assert "no key" not in done.out
            assert done.err == ""
            row = Verification.objects.get(user__username=who)
            assert (row.kind, row.tenant.slug) == ("statement", {"bob": "bb", "ada": "aa"}[who])
            assert (f"{row.since:%F}", f"{row.until:%F}") == ("2029-12-01", "2030-12-01")
            assert (done.out.splitlines()[-1], row.findings) == (f"all {row.checked} as stated", 0)
            again = run(who, "--from-dir", kept).out.splitlines()
            assert again == [line for line in done.out.splitlines() if FIRST not in line]

    def test_prints_json_on_request(self, run: Run) -> None:
        answer = json.loads(run("bob", *TIME, "--output", "json").out)
        assert (answer["ok"], answer["verdict"], answer["unproven"]) == (True, "proven", [])
        assert answer["findings"] == []
        assert answer["recomputed"]["income"] == answer["recomputed"]["weight"] > 5
        assert (answer["tenant"], answer["since"]) == ("bb", "2029-12-01T00:00:00.000000Z")

    def test_empty_statement_is_not_proven(self, run: Run) -> None:
        """An empty statement cannot prove that nothing is due: rows may have been withheld."""
        words = ("--from", "2028-01-01", "--to", "2028-01-02")
        done = run("bob", *words)
        assert done.code == 5
        assert (
            "NOT PROVEN: rows: 1 x: the portal gave no row of usage, income or entries" in done.out
        )
        assert run("bob", *words, "--accept", "rows").code == 0

    def test_compares_saved_files_with_their_rounds(self, run: Run, folder: Path) -> None:
        done = run("bob", "--from-dir", str(folder))
        assert done.code == 0, done
        for what in ("price in its round", "own and borrowed GPUs", "total idle quota"):
            assert what in done.out
        assert "is missing" not in done.out

    def test_works_offline_from_saved_files(
        self, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        elsewhere = folder.parent / "elsewhere"
        shutil.copytree(folder, elsewhere)
        monkeypatch.setenv("EVENSHARE_URL", "http://127.0.0.1:9")
        assert run("bob", "--from-dir", str(elsewhere)).code == 0


def income_of_one(folder: Path) -> None:
    stated = rows(folder, "income")
    row = next(row for row in stated if row["transfer"])
    row["earned"] = row["earned"][:-1] + str((int(row["earned"][-1]) + 1) % 10)
    keep(folder, "income", stated)


def price_after_posting(folder: Path) -> None:
    """Change base, price, charge and income consistently in all answers."""
    stated = rows(folder, "prices")
    term = next(row for row in rows(folder, "income") if row["transfer"])["round"]
    posted = next(row for row in stated if row["valid_from_round"] <= term)
    posted.update(price="0.500000", base="0.500000", theta="2.000", used=posted["capacity"])
    keep(folder, "prices", stated)


def total_idle(folder: Path) -> None:
    stated = rows(folder, "idle")
    stated[0]["total"] += 1
    keep(folder, "idle", stated)


def round_rewritten(folder: Path) -> None:
    path = min(folder.glob("bundles/*.json"))
    path.write_bytes(path.read_bytes().replace(b'"capacity":', b'"capacity" :', 1))


def row_without_a_price(folder: Path) -> None:
    stated = rows(folder, "income")
    del stated[0]["price"]
    keep(folder, "income", stated)


class TestPlantedErrors:
    @pytest.mark.parametrize(
        ("plant", "named"),
        [
            (income_of_one, "WRONG: income: income of "),
            (price_after_posting, "WRONG: price in its round: price of v100 from round "),
            (total_idle, "WRONG: weight: income of "),
            (round_rewritten, "WRONG: bytes: round "),
            (row_without_a_price, "WRONG: answer: income[0]: "),
        ],
    )
    def test_are_detected_and_named(
        self, run: Run, folder: Path, plant: Callable[[Path], None], named: str
    ) -> None:
        plant(folder)
        done = run("bob", "--from-dir", str(folder))
        assert done.code == 3
        assert named in done.out, done.out
        assert " wrong, of " in done.out
        answer = json.loads(run("bob", "--from-dir", str(folder), "--output", "json").out)
        assert answer["ok"] is False
        assert named.split(": ")[1] in {finding["what"] for finding in answer["findings"]}


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(row["record"]) for row in rows(folder, "records")]


def keep_records(folder: Path, changed: list[dict[str, Any]]) -> None:
    """Replace the records, with correct links."""
    kept, previous = [], ""
    for row, record in zip(rows(folder, "records"), changed, strict=True):
        record["previous"] = previous or record["previous"]
        data = json.dumps(record, separators=(",", ":"))
        previous = record_hash(data.encode())
        kept.append({"index": row["index"], "record": data})
    keep(folder, "records", kept)


def another_price_and_bundle(folder: Path) -> None:
    """Change rows, bundle and record consistently to another price; only the head differs."""
    changed = records(folder)
    changed[3]["bundle"] = "0" * 64
    keep_records(folder, changed)


def record_removed(folder: Path) -> None:
    keep(folder, "records", [row for n, row in enumerate(rows(folder, "records")) if n != 3])


def records_after_the_fifth_removed(folder: Path) -> None:
    keep(folder, "records", rows(folder, "records")[:5])


def first_records_removed(folder: Path) -> None:
    keep(folder, "records", rows(folder, "records")[2:])


def all_records_removed(folder: Path) -> None:
    keep(folder, "records", [])


def damage_owned_up_to(folder: Path) -> None:
    changed = records(folder)
    changed[2]["damage"] = "its snapshot is gone"
    keep_records(folder, changed)


def breaks_owned_up_to(folder: Path) -> None:
    changed = records(folder)
    changed[2]["breaks"] = ["the sums moved"]
    keep_records(folder, changed)


def proof_removed(folder: Path) -> None:
    """Remove some records and the proof, because a complete log needs no proof."""
    first_records_removed(folder)
    (folder / "inclusion.json").unlink()


def head_removed(folder: Path) -> None:
    (folder / "chain.json").unlink()


def answer(folder: Path, name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return read


def head_of_another_key(folder: Path) -> None:
    chain = answer(folder, "chain")
    key = SigningKey(chain["log"], b"k" * 32)
    head = Checkpoint(chain["log"], chain["size"], b"r" * 32)
    chain["checkpoint"] = sign_note(note_text(head), [key])
    chain["keys"] = [chain["keys"][0] | {"vkey": make_vkey(key.name, key.public)}]
    keep(folder, "chain", chain)


def signature_bent(folder: Path) -> None:
    chain = answer(folder, "chain")
    chain["checkpoint"] = chain["checkpoint"].replace("evenshare/", "evenshore/", 1)
    keep(folder, "chain", chain)


def log_of_another_pool(folder: Path) -> None:
    keep(folder, "statement", {**answer(folder, "statement"), "pool": "elsewhere"})


def pin_path(folder: Path) -> Path:
    (path,) = (folder.parent / "home").glob("evenshare/pins/*.json")
    return path


UNDER_THE_HEAD: tuple[tuple[Callable[[Path], None], str], ...] = (
    (another_price_and_bundle, "WRONG: records: head of "),
    (record_removed, "WRONG: records: head of "),
    (records_after_the_fifth_removed, "WRONG: record: round 6: the portal holds back"),
    (first_records_removed, "WRONG: record: round 1: the portal holds back its record"),
    (all_records_removed, "WRONG: record: round 1: the portal returned no record of it"),
    (damage_owned_up_to, "WRONG: damage: round 3: the portal says: its snapshot is gone"),
    (breaks_owned_up_to, "WRONG: follows: round 3: the portal says: the sums moved"),
    (proof_removed, "inclusion.json, the proof that round "),
    (head_removed, "WRONG: answer: the rounds: chain.json is missing"),
    (head_of_another_key, "WRONG: key: head of "),
    (signature_bent, "WRONG: signature: head of "),
    (log_of_another_pool, "WRONG: log: head of "),
)


class TestPinnedHead:
    """The statement's rounds are checked from files, with a head that was pinned earlier."""

    def test_planted_errors_are_named_and_pin_is_kept(self, run: Run, folder: Path) -> None:
        kept = pin_path(folder).read_bytes()
        for plant, named in UNDER_THE_HEAD:
            bent = folder.parent / plant.__name__
            shutil.copytree(folder, bent)
            plant(bent)
            done = run("bob", "--from-dir", str(bent))
            assert done.code == 3, plant
            assert named in done.out, done.out
            assert pin_path(folder).read_bytes() == kept, plant
        assert run("bob", "--from-dir", str(folder)).code == 0

    def test_advances_with_the_log_and_rejects_older_files(
        self, live: ApiStage, run: Run, folder: Path
    ) -> None:
        pinned = json.loads(pin_path(folder).read_text())
        live.cluster.round(after_s=900)
        seal(live)
        again = str(folder.parent / "again")
        done = run("bob", *TIME, "--save-dir", again)
        assert done.code == 0, done
        assert f"head of {pinned['log']}: {pinned['size'] + 1} rounds, root " in done.out
        assert FIRST not in done.out
        assert json.loads(pin_path(folder).read_text())["size"] == pinned["size"] + 1
        older = run("bob", "--from-dir", str(folder))
        assert (older.code, "the files are older than the head" in older.out) == (5, True)

    def test_detects_forked_history(self, run: Run, folder: Path) -> None:
        pin = json.loads(pin_path(folder).read_text())
        pin_path(folder).write_text(json.dumps({**pin, "root": "0" * 64}))
        for options in (TIME, ("--from-dir", str(folder))):
            done = run("bob", *options)
            assert done.code == 3
            assert "WRONG: history: head of " in done.out
            assert "the history was forked" in done.out
        answer = json.loads(run("bob", *TIME, "--output", "json").out)
        assert answer["ok"] is False
        assert [row["check"] for row in answer["head"]["problems"]] == ["history"]

    def test_given_vkey_must_match_key_of_log(self, run: Run, folder: Path) -> None:
        pin = json.loads(pin_path(folder).read_text())
        key = SigningKey(pin["log"], b"k" * 32)
        other = make_vkey(key.name, key.public)
        assert run("bob", *TIME, "--vkey", other).code == 3
        assert run("bob", *TIME, "--vkey", pin["keys"][0]).code == 0

    def test_files_are_never_pinned(self, run: Run, folder: Path) -> None:
        path = pin_path(folder)
        path.unlink()
        done = run("bob", "--from-dir", str(folder))
        assert (done.code, path.exists()) == (0, False)
        assert "files are never pinned" in done.out

    def test_detects_withheld_newest_record(
        self, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The portal presents an older round as its newest, and hides the records after it."""
        whole = fetch_chain

        def older(client: Any, files: Any, pool: str) -> dict[str, Any]:
            chain = {**whole(client, files, pool), "round": 4}
            files.write_json("chain.json", chain)
            return chain

        monkeypatch.setattr(verify_log, "fetch_chain", older)
        assert folder.is_dir()
        done = run("bob", *TIME)
        assert done.code == 3
        assert "the portal calls round 4 its newest, entry 3 of a head of " in done.out
        assert "WRONG: record: round 5: the portal holds back its record" in done.out

    def test_detects_missing_round_log(
        self, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            verify_log, "fetch_chain", lambda *_: {"size": 0, "round": None, "keys": []}
        )
        done = run("bob", *TIME)
        assert done.code == 3
        assert "WRONG: record: the rounds of rows: the portal has no log" in done.out
        assert "pinned is a head of " in done.out
        assert pin_path(folder).exists()
        done = run("bob", *TIME, "--without-rounds")
        assert done.code == 0
        assert done.out.endswith("as stated; nothing of it was held under a signed head\n")


class TestUsageErrors:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ((), "give --from and --to"),
            (("--from", "soon", "--to", "2030-01-01"), "--from takes an instant like"),
            (("--from", "2030-01-02", "--to", "2030-01-01"), "--to is not after --from"),
            (("--from-dir", "nowhere-at-all"), "is not a folder"),
            (("--from-dir", ".", "--save-dir", "."), "not both"),
            (("--from-dir", "."), "has no statement.json"),
        ],
    )
    def test_invalid_options_exit_with_explanation(
        self, run: Run, options: tuple[str, ...], said: str
    ) -> None:
        done = run("bob", *options)
        assert done.code == 2
        assert said in done.err

    def test_missing_dependency_prints_install_command(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delitem(sys.modules, "evenshare.cli.verify_statement", raising=False)
        monkeypatch.setitem(sys.modules, "evenshare_core.verification.statement_rows", None)
        done = run("bob", *TIME)
        assert done.code == 2
        assert verify_module.INSTALL in done.err
