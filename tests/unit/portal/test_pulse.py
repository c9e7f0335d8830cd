"""The watch on the queues: who is late, and when."""

import os
import threading
from pathlib import Path

import pytest

from portal.embedded import pulse
from portal.embedded.pulse import (
    LONGEST_S,
    PATIENCE_S,
    PULSE_EVERY_S,
    WORK_S,
    PulseWatch,
    RunningTask,
    TaskWatch,
    touch,
)
from tests.tools import eventually


class TestAPulseWatch:
    def test_is_quiet_while_the_queue_is_consumed(self, tmp_path: Path) -> None:
        watch = PulseWatch(tmp_path, now=0.0, queues=["default"])
        for now in range(0, 200, 10):
            (tmp_path / "pulse-default").unlink(missing_ok=True)
            touch(tmp_path, "default")
            assert watch.stalled(float(now)) == []

    def test_names_a_queue_that_never_began(self, tmp_path: Path) -> None:
        watch = PulseWatch(tmp_path, now=0.0, queues=["default"])
        assert watch.stalled(PATIENCE_S["default"]) == []
        assert watch.stalled(PATIENCE_S["default"] + 1) == ["default"]

    def test_gives_the_restarted_worker_its_full_patience(self, tmp_path: Path) -> None:
        watch = PulseWatch(tmp_path, now=0.0, queues=["default"])
        late = PATIENCE_S["default"] + 1
        assert watch.stalled(late) == ["default"]
        assert watch.stalled(late + PATIENCE_S["default"]) == []
        assert watch.stalled(late + PATIENCE_S["default"] + 1) == ["default"]

    def test_lets_a_round_solve_longer_than_a_tick(self, tmp_path: Path) -> None:
        watch = PulseWatch(tmp_path, now=0.0)
        assert watch.stalled(PATIENCE_S["default"] + 1) == ["default"]
        assert PATIENCE_S["rounds"] > 3 * PATIENCE_S["default"]

    def test_ignores_what_the_former_run_left(self, tmp_path: Path) -> None:
        touch(tmp_path, "default")
        watch = PulseWatch(tmp_path, now=0.0, queues=["default"])
        assert watch.stalled(PATIENCE_S["default"] + 1) == ["default"]


class Story:
    """A worker with one long task, and the supervisor's watch on its queue."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "pulse-rounds"
        self._sign(0.0)
        self.watch = PulseWatch(folder, now=0.0, queues=["rounds"])
        self.task = RunningTask(folder, "rounds", begun=0.0, used_s=5.0)

    def killed_at(self, *, until_s: int, work_share: float) -> float | None:
        """When the supervisor ends a worker whose task uses this share of a processor."""
        now = 0.0
        while now < until_s:
            now += PULSE_EVERY_S
            if self.task.look(now, 5.0 + work_share * now):
                self._sign(now)
            if self.watch.stalled(now):
                return now
        return None

    def _sign(self, now: float) -> None:
        """A sign of life at the story's time, not the machine's."""
        self.file.touch()
        os.utime(self.file, (now, now))


class TestALongTask:
    def test_that_computes_is_not_ended(self, tmp_path: Path) -> None:
        longer = int(3 * PATIENCE_S["rounds"])
        assert Story(tmp_path).killed_at(until_s=longer, work_share=0.9) is None

    def test_that_computes_on_a_crowded_machine_is_not_ended(self, tmp_path: Path) -> None:
        longer = int(3 * PATIENCE_S["rounds"])
        assert Story(tmp_path).killed_at(until_s=longer, work_share=0.02) is None

    def test_that_hangs_is_ended_like_a_worker_that_receives_nothing(self, tmp_path: Path) -> None:
        # One that asks in a loop whether it may go on is no better.
        for share in (0.0, WORK_S / PATIENCE_S["rounds"] / 2):
            ended = Story(tmp_path).killed_at(until_s=1000, work_share=share)
            assert ended is not None
            assert ended <= 2 * PATIENCE_S["rounds"] + 2 * PULSE_EVERY_S

    def test_that_never_ends_is_ended(self, tmp_path: Path) -> None:
        ended = Story(tmp_path).killed_at(until_s=int(3 * LONGEST_S), work_share=1.0)
        assert ended is not None
        assert LONGEST_S < ended <= LONGEST_S + PATIENCE_S["rounds"] + 2 * PULSE_EVERY_S


class TestATaskWatch:
    def test_sees_a_thread_that_computes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pulse, "PULSE_EVERY_S", 0.05)
        enough = threading.Event()
        watch, file = TaskWatch(), tmp_path / "pulse-rounds"

        def compute() -> None:
            watch.begin(tmp_path, "rounds")
            while not enough.is_set():
                sum(range(10_000))
            watch.end()

        worker = threading.Thread(target=compute)
        worker.start()
        try:
            for _ in range(2):
                eventually(file.exists)
                file.unlink()
            eventually(file.exists)
        finally:
            enough.set()
            worker.join()

    def test_sees_the_begin_and_the_end_of_a_task(self, tmp_path: Path) -> None:
        watch, file = TaskWatch(), tmp_path / "pulse-default"
        watch.begin(tmp_path, "default")
        assert file.exists()
        file.unlink()
        watch.end()
        assert file.exists()
        file.unlink()
        watch.end()
        assert not file.exists(), "there is no task"
