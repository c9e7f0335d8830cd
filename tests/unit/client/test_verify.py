"""Test `evenshare round verify` and `round pin` against an honest portal."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from evenshare.cli import verify, verify_files
from evenshare.cli.terminal import Terminal
from evenshare_core.cli.main import main as core_main
from tests.unit.verified_rounds import (
    ADA,
    LOG,
    POOL,
    StagedPool,
    key_of,
    vkey_of,
)

from .conftest import ROUNDS, Run, pin_path
from .portal import Portal


class TestVerify:
    def test_prints_line_per_round_and_pins_head(self, verify_all: Any, tmp_path: Path) -> None:
        done = verify_all()
        assert done.code == 0, done.out + done.err
        lines = done.out.splitlines()
        assert [line.split()[1] for line in lines[:ROUNDS]] == [str(n + 1) for n in range(ROUNDS)]
        assert all(line.endswith(": ok") for line in lines[:ROUNDS])
        assert lines[ROUNDS].startswith(f"head of {LOG}: {ROUNDS} rounds, root ")
        assert lines[ROUNDS + 1].startswith("new keys; compare them")
        assert lines[-1] == f"{ROUNDS} rounds proven"
        assert done.err == "", "nothing for people who do not watch"
        path = pin_path(tmp_path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert json.loads(path.read_text())["size"] == ROUNDS

    def test_selects_rounds_by_number_count_or_time(self, run: Run, pool: StagedPool) -> None:
        def rounds(*words: str) -> list[int]:
            done = run("round", "verify", "--pool", POOL, "--output", "json", *words)
            assert done.code == 0, done.out + done.err
            return [row["round"] for row in done.json["rounds"]]

        assert rounds() == [ROUNDS]
        assert rounds("1") == [1]
        assert rounds("5") == [5]
        assert rounds("--last", "3") == [6, 7, 8]
        assert rounds("--last", "99") == list(range(1, ROUNDS + 1))
        assert rounds("--since", "2030-03-17T17:47:20Z") == [5, 6, 7, 8]
        assert rounds("--since", "2030-03-17T17:47:21Z") == [6, 7, 8]
        assert rounds("--since", "2000-01-01T00:00:00") == list(range(1, ROUNDS + 1))
        assert pool.size == ROUNDS

    def test_prints_findings_as_json(self, verify_all: Any, pool: StagedPool) -> None:
        shown = verify_all("--output", "json").json
        assert shown["ok"] is True
        assert shown["head"]["size"] == ROUNDS
        row = shown["rounds"][4]
        assert row["recomputed"] == [
            "record", "bytes", "decision", "certificate", "follows", "names",
        ]  # fmt: skip
        assert row["figures"]["grants"] == len(pool.rounds[4].decision.grants)
        assert {claim["tenant"] for claim in row["figures"]["claims"]} == {ADA}

    def test_repeats_offline_from_saved_files(
        self, run: Run, verify_all: Any, tmp_path: Path, portal: Portal,
        capsys: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        folder = tmp_path / "kept"
        first = verify_all("--save-dir", str(folder))
        seen = len(portal.seen)
        assert stat.S_IMODE((folder / "names").stat().st_mode) == 0o700
        again = run("round", "verify", "--from-dir", str(folder))
        assert (again.code, len(portal.seen)) == (0, seen)
        assert again.out.splitlines()[:ROUNDS] == first.out.splitlines()[:ROUNDS]
        some = run("round", "verify", "--from-dir", str(folder), "--last", "2", "--output", "json")
        assert [row["round"] for row in some.json["rounds"]] == [7, 8]
        assert core_main(["verify", str(folder)]) == 0
        assert capsys.readouterr().out.splitlines()[:ROUNDS] == first.out.splitlines()[:ROUNDS]
        assert core_main(["verify", str(folder), "--pin", str(pin_path(tmp_path))]) == 0
        assert core_main(["verify", str(folder), "--vkey", vkey_of(key_of("second"))]) == 3

    def test_pins_nothing_from_files(
        self, run: Run, verify_all: Any, tmp_path: Path, pool: StagedPool
    ) -> None:
        folder = str(tmp_path / "kept")
        verify_all("--save-dir", folder)
        kept = pin_path(tmp_path)
        kept.unlink()
        again = run("round", "verify", "--from-dir", folder)
        assert (again.code, kept.exists(), pool.size) == (0, False, ROUNDS)
        assert "files are never pinned" in again.out

    @pytest.mark.parametrize(
        "answer",
        [
            None,
            [],
            "x",
            5,
            {},
            {"results": [1], "tenants": [1], "keys": [1], "size": 1, "round": 1},
            {"results": 5, "tenants": 5, "keys": 5, "path": 5, "size": True},
            "deep",
        ],
    )
    @pytest.mark.parametrize("place", ["chain", "records", "names", "inclusion", "bundle", "jobs"])
    def test_rejects_malformed_answers(
        self, run: Run, pool: StagedPool, portal: Portal, place: str, answer: Any
    ) -> None:
        said = [] if answer == "deep" else answer
        if answer == "deep":
            for _ in range(900):
                said = [said]
        whole = portal.answer

        def bent(method: str, path: str, *others: Any) -> Any:
            last = "chain" if path.endswith(f"/chain/{POOL}") else path.rpartition("/")[2]
            return (200, said) if last == place else whole(method, path, *others)

        portal.answer = bent  # type: ignore[method-assign,assignment]  # it is this test's own
        calls = [("verify", "--last", "3"), *([("pin",)] if place == "chain" else [])]
        for words in calls:
            done = run("round", *words, "--pool", POOL)
            assert (done.code, pool.size) == (3, ROUNDS), done.out + done.err
            assert "Traceback" not in done.err

    def test_reports_withheld_last_rounds(
        self, run: Run, pool: StagedPool, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        head = {**pool.chain(), "round": 10**9}
        whole = pool.answer
        monkeypatch.setattr(
            portal,
            "rounds",
            lambda words, query: (200, head) if words[2:] == [] else whole(words, query),
        )
        done = run("round", "verify", "--last", "3", "--pool", POOL)
        text = f"the portal has a head of {ROUNDS} rounds, but withholds the last"
        assert (done.code, text in done.err) == (3, True), done.out + done.err

    def test_downloads_saved_bundles_once(
        self, verify_all: Any, portal: Portal, tmp_path: Path
    ) -> None:
        folder = str(tmp_path / "kept")
        verify_all("--save-dir", folder)
        before = len(portal.seen)
        assert verify_all("--save-dir", folder).code == 0
        asked = [path for _, path, _, _ in portal.seen[before:]]
        assert not [path for path in asked if path.endswith("/bundle")]

    def test_requests_compressed_bundles(self, verify_all: Any, portal: Portal) -> None:
        verify_all()
        bundles = [headers for _, path, headers, _ in portal.seen if path.endswith("/bundle")]
        assert len(bundles) == ROUNDS
        assert {headers["accept-encoding"] for headers in bundles} == {"gzip"}

    def test_shows_progress_only_on_terminal(self) -> None:
        class Watched(io.StringIO):
            def isatty(self) -> bool:
                return True

        out, err = io.StringIO(), Watched()
        screen = Terminal(out, err, {})
        screen.progress("verifying round 1 of 2")
        screen.line("round 1  ok")
        screen.progress("")
        assert out.getvalue() == "round 1  ok\n"
        assert err.getvalue() == "\r\x1b[Kverifying round 1 of 2\r\x1b[K"
        err = Watched()
        Terminal(out, err, {"TERM": "dumb"}).progress("verifying")
        assert err.getvalue() == ""

    @pytest.mark.parametrize(
        ("words", "text"),
        [
            (["3", "--last", "2", "--pool", POOL], "give only one of a round number, --last"),
            (["--since", "yesterday", "--pool", POOL], "--since takes an instant"),
            ([], "give --pool, or --from-dir"),
            (["--from-dir", "x", "--save-dir", "y"], "not both"),
            (["--from-dir", "/nowhere"], "/nowhere is not a folder"),
            (["--last", "0", "--pool", POOL], "not a whole number"),
        ],
    )
    def test_rejects_invalid_arguments(
        self, run: Run, portal: Portal, words: list[str], text: str
    ) -> None:
        done = run("round", "verify", *words)
        assert (done.code, text in done.err) == (2, True), done.err
        assert portal.seen == []

    def test_unknown_round_names_newest(self, run: Run, pool: StagedPool) -> None:
        done = run("round", "verify", "99", "--pool", POOL)
        assert (done.code, pool.size) == (3, ROUNDS)
        assert f"round 99 of {POOL} is not in its log; the newest is {ROUNDS}" in done.err

    def test_reports_missing_library(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(verify, "NEEDS", (9, 9))
        done = run("round", "verify", "--pool", POOL)
        assert (done.code, "needs Python" in done.err) == (2, True)
        monkeypatch.undo()

    def test_explain_shows_first_request(self, run: Run, portal: Portal) -> None:
        done = run("round", "verify", "--pool", POOL, "--explain")
        assert (done.code, portal.seen) == (0, [])
        assert done.out.endswith(f"{portal.url}/api/v1/chain/{POOL}\n")

    def test_rejects_path_traversal_in_answers(self, tmp_path: Path) -> None:
        with pytest.raises(Exception, match="an invalid name"):
            verify_files.Files(tmp_path).write("names/../../x.json", b"")


class TestPin:
    def test_is_stored_and_shown(self, run: Run, pool: StagedPool, tmp_path: Path) -> None:
        assert run("round", "pin", "--pool", POOL, "--show").code == 2
        done = run("round", "pin", "--pool", POOL)
        assert done.code == 0, done.err
        shown = run("round", "pin", "--pool", POOL, "--show", "--output", "json").json
        assert shown["pin"]["size"] == pool.size
        assert shown["file"] == str(pin_path(tmp_path))
        assert shown["pin"]["root"] in done.out

    def test_file_differs_by_portal_and_pool(self, tmp_path: Path) -> None:
        from evenshare.cli.pins import pin_file

        env = {"XDG_CONFIG_HOME": str(tmp_path)}
        places = [
            ("http://a:1", "x"), ("http://a:2", "x"), ("http://a:1", "y"), ("https://a:1", "x"),
        ]  # fmt: skip
        assert len({pin_file(env, *place) for place in places}) == 4

    def test_corrupt_file_is_rejected(self, run: Run, pool: StagedPool, tmp_path: Path) -> None:
        run("round", "pin", "--pool", POOL)
        pin_path(tmp_path).write_text("{}")
        done = run("round", "verify", "--pool", POOL)
        assert (done.code, "is not a pin" in done.err, pool.size) == (2, True, ROUNDS)
