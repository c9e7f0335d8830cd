"""Test which sets of checkpoints the names of their files form."""

from pathlib import Path

import pytest

from evenshare.runtime.sets import (
    CheckpointSet,
    clear_unfinished,
    complete_sets,
    highest_sequence,
    prune,
)

RUN, OTHER = "0123456789abcdef", "fedcba9876543210"


def put(folder: Path, one: CheckpointSet, *ranks: int) -> None:
    for rank in ranks or range(one.size):
        (folder / one.file(rank)).touch()


def of(lease: int, sequence: int, size: int = 2, run: str = RUN) -> CheckpointSet:
    return CheckpointSet(lease, sequence, run, size)


class TestCheckpointSet:
    def test_is_complete_with_its_last_file(self, tmp_path: Path) -> None:
        put(tmp_path, of(1, 5, size=3), 0, 2)
        assert complete_sets(tmp_path) == []
        put(tmp_path, of(1, 5, size=3), 1)
        assert complete_sets(tmp_path) == [of(1, 5, size=3)]

    def test_does_not_mix_files_of_two_runs(self, tmp_path: Path) -> None:
        put(tmp_path, of(1, 5), 0)
        put(tmp_path, of(1, 5, run=OTHER), 1)
        assert complete_sets(tmp_path) == []

    def test_ignores_files_with_wrong_rank(self, tmp_path: Path) -> None:
        put(tmp_path, of(1, 5), 0, 2)
        (tmp_path / of(1, 5).file(0).replace("00000-of", "000000-of")).touch()
        assert complete_sets(tmp_path) == []

    def test_of_later_lease_comes_first(self, tmp_path: Path) -> None:
        single = CheckpointSet(2, 1, "", 1)
        for one in (of(1, 9), single, of(3, 1)):
            put(tmp_path, one)
        assert complete_sets(tmp_path) == [of(3, 1), single, of(1, 9)]
        assert [highest_sequence(tmp_path, lease) for lease in (1, 2, 4)] == [9, 1, 0]


class TestPruning:
    def test_keeps_two_sets_and_incomplete_newer_one(self, tmp_path: Path) -> None:
        for one in (of(1, 1), of(1, 2), of(2, 1)):
            put(tmp_path, one)
        put(tmp_path, of(1, 1, run=OTHER), 1)
        put(tmp_path, of(2, 2), 1)
        prune(tmp_path)
        kept = [*of(1, 2).files, *of(2, 1).files, of(2, 2).file(1)]
        assert sorted(path.name for path in tmp_path.iterdir()) == kept

    @pytest.mark.parametrize("sets", [1, 2])
    def test_removes_nothing_below_limit(self, sets: int, tmp_path: Path) -> None:
        put(tmp_path, of(1, 1), 0)
        for sequence in range(1, sets):
            put(tmp_path, of(2, sequence))
        prune(tmp_path)
        assert (tmp_path / of(1, 1).file(0)).exists()


class TestUnfinishedFiles:
    def test_are_removed_without_touching_others(self, tmp_path: Path) -> None:
        put(tmp_path, of(1, 1))
        for name in (f".{of(1, 2).file(0)}.4242", ".000001-00000002.ckpt.4242", ".mine"):
            (tmp_path / name).touch()
        clear_unfinished(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == [".mine", *of(1, 1).files]
