"""The watch on workers and beat: who is silent for too long, and when."""

import os
import threading
from pathlib import Path

import pytest

from portal.embedded import pulse
from portal.embedded.pulse import (
    BEAT,
    LONGEST_S,
    MOST_DOUBLINGS,
    PATIENCE_S,
    PULSE_EVERY_S,
    STARTING_S,
    WORK_S,
    PulseWatch,
    RunningTask,
    TaskWatch,
    touch,
)
from tests.tools import eventually


class Watched:
    """The processes and the supervisor's watch on them, at the time of the story."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0.0
        self.watch = PulseWatch(folder, now=0.0)

    def passes(self, seconds: float, *alive: str) -> list[str]:
        """Who is found silent meanwhile; those that are `alive` give signs of life."""
        late = []
        end = self.now + seconds
        while self.now < end:
            self.now += PULSE_EVERY_S
            for name in alive:
                sign(self.folder / f"pulse-{name}", self.now)
            late += self.watch.stalled(self.now)
        return late


def sign(file: Path, now: float) -> None:
    """A sign of life at the story's time, not the machine's."""
    file.touch()
    os.utime(file, (now, now))


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


ALL = tuple(PATIENCE_S)
AT_ONCE = 2 * PULSE_EVERY_S


class TestAPulseWatch:
    def test_is_quiet_while_all_give_signs_of_life(self, watched: Watched) -> None:
        assert watched.passes(1000, *ALL) == []

    @pytest.mark.parametrize("name", ALL)
    def test_names_one_that_falls_silent_and_no_other(self, watched: Watched, name: str) -> None:
        others = [other for other in ALL if other != name]
        assert watched.passes(10, *ALL) == []
        assert watched.passes(PATIENCE_S[name] - AT_ONCE, *others) == []
        assert watched.passes(2 * AT_ONCE, *others) == [name]

    def test_blames_no_worker_for_a_silent_beat(self, watched: Watched) -> None:
        watched.passes(10, *ALL)
        assert watched.passes(PATIENCE_S[BEAT] + AT_ONCE) == [BEAT]
        # They count anew from when it sends again.
        assert watched.passes(PATIENCE_S["default"] - AT_ONCE, BEAT) == []
        assert watched.passes(2 * AT_ONCE, BEAT) == ["default"]

    def test_lets_all_start_as_slowly_as_a_busy_machine_does(self, watched: Watched) -> None:
        assert watched.passes(STARTING_S - AT_ONCE) == []
        assert set(watched.passes(2 * AT_ONCE)) == set(ALL)

    def test_lets_a_process_start_that_was_started_again(self, watched: Watched) -> None:
        watched.passes(10, *ALL)
        watched.watch.starts("default", watched.now)
        assert watched.passes(STARTING_S - AT_ONCE, BEAT, "rounds") == []
        assert watched.passes(2 * AT_ONCE, BEAT, "rounds") == ["default"]

    def test_waits_longer_each_time_for_one_that_never_gets_well(self, watched: Watched) -> None:
        waits, since = [], 0.0
        for _ in range(2 + MOST_DOUBLINGS):
            while "rounds" not in watched.passes(PULSE_EVERY_S, BEAT, "default"):
                pass
            waits.append(watched.now - since)
            since = watched.now
        doublings = [*range(1 + MOST_DOUBLINGS), MOST_DOUBLINGS]
        assert waits == pytest.approx([STARTING_S * 2**n for n in doublings], abs=AT_ONCE)

    def test_forgets_former_restarts_of_one_that_is_well(self, watched: Watched) -> None:
        watched.passes(STARTING_S + AT_ONCE, BEAT, "default")
        watched.passes(10, *ALL)
        assert watched.passes(PATIENCE_S["rounds"] + AT_ONCE, BEAT, "default") == ["rounds"]

    def test_ignores_what_the_former_run_left(self, tmp_path: Path) -> None:
        touch(tmp_path, "default")
        watched = Watched(tmp_path)
        assert watched.passes(STARTING_S - AT_ONCE, BEAT, "rounds") == []
        assert watched.passes(2 * AT_ONCE, BEAT, "rounds") == ["default"]


class Story:
    """A worker with one long task, and the supervisor's watch on its queue."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "pulse-rounds"
        self.watched = Watched(folder)
        self.watched.passes(PULSE_EVERY_S, *ALL)
        self.task = RunningTask(folder, "rounds", begun=0.0, used_s=5.0)

    def killed_at(self, *, until_s: int, work_share: float) -> float | None:
        """When the supervisor ends a worker whose task uses this share of a processor."""
        while (now := self.watched.now) < until_s:
            if self.task.look(now, 5.0 + work_share * now):
                sign(self.file, now)
            if self.watched.passes(PULSE_EVERY_S, BEAT, "default"):
                return now
        return None


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
            folder = tmp_path / str(share)
            folder.mkdir()
            ended = Story(folder).killed_at(until_s=1000, work_share=share)
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
