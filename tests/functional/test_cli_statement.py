"""`evenshare statement verify` against the real portal, and from files without one."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evenshare.cli import verify as verify_module
from evenshare.cli.main import main
from evenshare_core.chain.records import RoundRecord, record_bytes
from evenshare_core.disclosure.bundle import read_bundle
from scheduling.engine.seal import seal_rounds
from scheduling.models import Verification
from tenants.scopes import site_scope
from tests.functional.api_stage import ApiStage
from tests.functional.lending_stage import disclosed, lending_stage

TIME = ("--from", "2029-12-01", "--to", "2030-12-01T00:00:00Z")


@dataclass
class Ran:
    """What a command answered."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def live(site: str) -> ApiStage:
    assert site
    return lending_stage()


@pytest.fixture
def run(
    live: ApiStage,
    site: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Run:
    """Runs the command in this process, as somebody."""
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
def folder(live: ApiStage, run: Run, tmp_path: Path) -> Path:
    """The files of a lender's statement, with the rounds that it names."""
    kept = tmp_path / "kept"
    assert run("bob", *TIME, "--without-rounds", "--save-dir", str(kept)).code == 0
    there = disclosed(live, "bb")
    named = {row["round"] for name in ("usage", "income") for row in rows(kept, name)}
    records = []
    for number in sorted(named):
        data = there.bundles[number]
        record = RoundRecord(
            schema=1, log="evenshare/x/rounds/p", round=number, at_us=read_bundle(data).at_us,
            previous="", bundle=hashlib.sha256(data).hexdigest(), own=(),
        )  # fmt: skip
        records.append({"index": number - 1, "record": record_bytes(record).decode()})
        keep(kept, f"bundles/{number}", data)
    keep(kept, "records", records)
    for day, key in there.keys.items():
        keep(kept, f"names/{day}", {"tenants": [{"tenant": "bb", "key": key.hex()}]})
    keep(kept, "no-rounds", "")
    return kept


class TestAStatement:
    def test_of_lender_and_borrower_verifies(self, run: Run) -> None:
        for who, slug in (("bob", "bb"), ("ada", "aa")):
            done = run(who, *TIME)
            assert done.code == 0, done
            first, *_, last = done.out.splitlines()
            assert first.startswith(f"{slug} in pool ")
            assert last.startswith("all ")
            assert last.endswith(" as stated")
            assert "settlement of " in done.out

    def test_is_compared_with_the_rounds_that_the_portal_committed_to(
        self, live: ApiStage, run: Run, tmp_path: Path
    ) -> None:
        with site_scope():
            seal_rounds(live.cluster.pool.pk)
        for who in ("bob", "ada"):
            kept = str(tmp_path / who)
            done = run(who, *TIME, "--save-dir", kept)
            assert done.code == 0, done
            for what in ("price in its round", "own and borrowed GPUs"):
                assert f"  {what}" in done.out
            assert "remark" not in done.out
            assert "no key" not in done.out
            assert run(who, "--from-dir", kept).out == done.out
            assert done.err == ""
            row = Verification.objects.get(user__username=who)
            assert (row.kind, row.tenant.slug) == ("statement", {"bob": "bb", "ada": "aa"}[who])
            assert (f"{row.since:%F}", f"{row.until:%F}") == ("2029-12-01", "2030-12-01")
            assert (done.out.splitlines()[-1], row.findings) == (f"all {row.checked} as stated", 0)

    def test_is_json_on_demand(self, run: Run) -> None:
        answer = json.loads(run("bob", *TIME, "--output", "json").out)
        assert answer["ok"] is True
        assert answer["findings"] == []
        assert answer["recomputed"]["income"] == answer["recomputed"]["weight"] > 5
        assert (answer["tenant"], answer["since"]) == ("bb", "2029-12-01T00:00:00.000000Z")

    def test_has_the_price_of_each_term_that_of_the_first_round_too(
        self, run: Run, folder: Path
    ) -> None:
        of_terms = [*rows(folder, "income")]
        of_terms += [row for row in rows(folder, "usage") if row["meter"] == "borrowed"]
        assert 1 in {row["round"] for row in of_terms}
        answer = json.loads(run("bob", "--from-dir", str(folder), "--output", "json").out)
        assert answer["recomputed"]["price of a term"] == len(of_terms)
        assert not [why for why in answer["not_recomputed"] if "price" in why]

    def test_of_nothing_is_fine(self, run: Run) -> None:
        done = run("bob", "--from", "2028-01-01", "--to", "2028-01-02")
        assert done.code == 0
        assert "nothing was used or earned" in done.out

    def test_is_compared_with_the_rounds_that_it_names(self, run: Run, folder: Path) -> None:
        done = run("bob", "--from-dir", str(folder))
        assert done.code == 0, done
        for what in ("price in its round", "own and borrowed GPUs", "total idle quota"):
            assert what in done.out
        assert "not there" not in done.out

    def test_needs_no_portal_from_files(
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
    """Everywhere in the answers alike: base, price, charge and income are of another price."""
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


class TestPlants:
    @pytest.mark.parametrize(
        ("plant", "named"),
        [
            (income_of_one, "WRONG: income: income of "),
            (price_after_posting, "WRONG: price in its round: price of v100 from round "),
            (total_idle, "WRONG: weight: income of "),
            (round_rewritten, "WRONG: bundle: round "),
            (row_without_a_price, "WRONG: answer: income[0]: "),
        ],
    )
    def test_are_seen_and_named(
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


class TestAWrongCommand:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ((), "give --from and --to"),
            (("--from", "soon", "--to", "2030-01-01"), "--from takes an instant like"),
            (("--from", "2030-01-02", "--to", "2030-01-01"), "--to is not after --from"),
            (("--from-dir", "nowhere-at-all"), "is no folder"),
            (("--from-dir", ".", "--save-dir", "."), "not both"),
            (("--from-dir", "."), "has no statement.json"),
        ],
    )
    def test_says_what_is_wrong(self, run: Run, options: tuple[str, ...], said: str) -> None:
        done = run("bob", *options)
        assert done.code == 2
        assert said in done.err

    def test_says_what_to_install(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(sys.modules, "evenshare.cli.verify_statement", raising=False)
        monkeypatch.setitem(sys.modules, "evenshare_core.verification.statement", None)
        done = run("bob", *TIME)
        assert done.code == 2
        assert verify_module.INSTALL in done.err
