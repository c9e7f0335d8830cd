"""Test the observation of a partition that is interrupted, sometimes fails, and continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.slurm import watch as watching
from scheduling.engine.executors.slurm.observation import ObservedRow
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.engine.executors.slurm.watch import PartitionLook, PartitionWatch, keep_watching

OPTIONS = SlurmOptions(partition="gpu")
RUNS = ObservedRow("7", "a,b", "RUNNING", 4, "a100", 100, 110, 120, None, -1, ("n1", "n2"), 130)
WAITS = ObservedRow("8", "c", "PENDING", 2, "", 100, 110, None, None, 10, (), 130)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the results of the next polls in order, each of them rows or an error."""
    answers: list[object] = []

    def look(*_: object, **__: object) -> dict[tuple[str, int], ObservedRow]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, list)
        return {row.key: row for row in answer}

    monkeypatch.setattr(watching, "look", look)
    return answers


class TestWatch:
    def test_resumes_from_folder(self, cluster: list[object], tmp_path: Path) -> None:
        cluster += [[RUNS, WAITS], [WAITS]]
        first = PartitionWatch(OPTIONS, tmp_path, clock=lambda: 1000.4)
        first.look()
        assert first.remarks()[0] == "1 look."
        second = PartitionWatch(OPTIONS, tmp_path, clock=lambda: 1030.0)
        second.load()
        assert (second.rows, second.looks) == (first.rows, first.looks)
        assert second.looks == [PartitionLook(1000, 1, 1, 4)]
        second.look()
        assert second.rows["7", 100].is_lost
        third = PartitionWatch(OPTIONS, tmp_path)
        third.load()
        assert third.rows == second.rows
        said = third.remarks()
        assert said[0] == "2 looks, the longest time between two polls 30 s."
        assert any(line.startswith("Jobs without an observed end") for line in said)

    def test_stores_nothing_without_folder(self, cluster: list[object]) -> None:
        cluster.append([RUNS])
        PartitionWatch(OPTIONS).look()

    def test_rejects_folder_of_other_kind(self, tmp_path: Path) -> None:
        (tmp_path / "observed.csv").write_text("job,tenant\n7,a\n")
        with pytest.raises(ExecutorError, match="is not a folder of a watch"):
            PartitionWatch(OPTIONS, tmp_path).load()

    def test_skips_failed_polls(self, cluster: list[object]) -> None:
        cluster += [[RUNS], ExecutorError("squeue did not answer"), [RUNS]]
        watch = PartitionWatch(OPTIONS)
        looks: list[PartitionLook] = []
        slept: list[float] = []
        keep_watching(watch, seconds=60, interval_s=30, on_look=looks.append, sleep=slept.append)
        assert (len(looks), watch.failed, len(slept)) == (2, 1, 2)
        assert "Looks that failed: 1." in watch.remarks()

    def test_raises_if_first_poll_fails(self, cluster: list[object]) -> None:
        cluster.append(ExecutorError("squeue is not installed here"))
        with pytest.raises(ExecutorError, match="not installed"):
            keep_watching(PartitionWatch(OPTIONS), seconds=60, interval_s=30, on_look=print)

    def test_polls_once_for_zero_duration(self, cluster: list[object]) -> None:
        cluster.append([RUNS])
        looks: list[PartitionLook] = []
        keep_watching(PartitionWatch(OPTIONS), seconds=0, interval_s=30, on_look=looks.append)
        assert len(looks) == 1
