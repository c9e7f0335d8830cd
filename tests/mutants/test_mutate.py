"""`make mutate` on a file so small that the test knows all its changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.changes import draw_changes
from tests.mutants.guarded import GUARDED, Guarded
from tests.mutants.laboratory import ROOT, Laboratory, Nursery
from tests.mutants.mutate import UnguardedError, try_module

CODE = '''"""A module."""
import structlog

log = structlog.get_logger(__name__)
LIMIT = 3


def fits(count: int) -> bool:
    log.info("fits.asked", count=count)
    if count < 0:
        raise ValueError("a count is at least nought")
    return count < LIMIT


def unasked(count: int) -> int:
    return count + 1

'''
STATEMENT = '''FIND = """
SELECT id FROM places WHERE pool = %s AND until < now() FOR UPDATE
"""
'''
TEST = """
from small import fits

def test_fits():
    assert fits(2) and not fits(3) and fits(0)
"""


@pytest.fixture
def laboratory(tmp_path: Path) -> Iterator[Laboratory]:
    made = Laboratory(tmp_path)
    (tmp_path / "small.py").write_text(CODE)
    (tmp_path / "test_small.py").write_text(TEST)
    yield made
    assert (tmp_path / "small.py").read_text() == CODE


def trials(laboratory: Laboratory, tests: str) -> set[tuple[str, bool]]:
    guarded = Guarded("small", ("small.py",), (tests,), database=False)
    nursery = Nursery(laboratory, None, ())
    try:
        tried = try_module(guarded, laboratory, nursery, size=0, seed="1")
        return {(change.diff.splitlines()[-1], is_killed) for change, is_killed in tried}
    finally:
        nursery.close()


class TestChange:
    def test_reports_whether_tests_detect_it(self, laboratory: Laboratory) -> None:
        tried = trials(laboratory, "test_small.py")
        assert ("+    return count <= LIMIT", True) in tried
        assert ("+LIMIT = 4", True) in tried
        assert ("+    return count - 1", False) in tried

    def test_raises_if_tests_fail_without_it(self, laboratory: Laboratory) -> None:
        (laboratory.tree / "test_small.py").write_text(TEST.replace("not fits(3)", "fits(3)"))
        with pytest.raises(UnguardedError, match="small"):
            trials(laboratory, "test_small.py")


class TestSample:
    def test_depends_only_on_seed(self, tmp_path: Path) -> None:
        (tmp_path / "small.py").write_text(CODE)

        def drawn(seed: str) -> list[str]:
            return [change.diff for change in draw_changes(tmp_path, ["small.py"], 5, seed)]

        assert len(drawn("1")) == 5
        assert drawn("1") == drawn("1") != drawn("2")

    def test_changes_sql_but_no_messages(self, tmp_path: Path) -> None:
        (tmp_path / "small.py").write_text(CODE + STATEMENT)
        changes = draw_changes(tmp_path, ["small.py"], 0, "1")
        said = "\n".join(
            line for each in changes for line in each.diff.splitlines() if line[0] == "+"
        )
        for wanted in ("pool <> %s AND", "pool = %s OR", "until <= now()", "now() \n"):
            assert wanted in said + "\n"
        assert not {"log", "raise"} & set(said.replace(".", " ").replace("(", " ").split())


def test_table_names_unique_modules_and_existing_files() -> None:
    assert len({guarded.name for guarded in GUARDED}) == len(GUARDED)
    for guarded in GUARDED:
        for named in (*guarded.files, *guarded.tests):
            assert (ROOT / named.partition("::")[0]).is_file(), named
