"""Test which of the workers and beat the supervisor finds silent for too long, and when."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from portal.embedded import pulse
from portal.embedded.heartbeat import (
    LONGEST_S,
    Heartbeat,
    HeartbeatMaker,
    complaint,
    read_heartbeat,
    touched_at,
    write_heartbeat,
)
from portal.embedded.pulse import (
    BEAT,
    MOST_DOUBLINGS,
    PATIENCE_S,
    PULSE_EVERY_S,
    STARTING_S,
    WELL_S,
    WORK_S,
    PulseWatch,
    RunningTask,
    TaskWatch,
)
from portal.embedded.restarts import Restarts, note_restart, read_restarts
from tests.tools import eventually

IDLE = Heartbeat(0.0)
# The step of long tests in seconds.
COARSE_S = 30.0
DOUBLINGS = [*range(1 + MOST_DOUBLINGS), MOST_DOUBLINGS]


class Watched:
    """The processes and the supervisor that watches them, on the test's clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0.0
        self.watch = PulseWatch(folder, now=0.0)
        self.why: list[str] = []

    def passes(self, seconds: float, *alive: str, step_s: float = PULSE_EVERY_S) -> list[str]:
        """Pass time while the `alive` processes report that they are idle; return the restarts."""
        return self.passes_with(seconds, dict.fromkeys(alive, IDLE), step_s=step_s)

    def passes_with(
        self, seconds: float, said: Mapping[str, Heartbeat], step_s: float = PULSE_EVERY_S
    ) -> list[str]:
        """Pass time with these heartbeats of workers; return the processes to restart."""
        late = []
        end = self.now + seconds
        while self.now < end:
            self.now += step_s
            for name, heartbeat in said.items():
                if name != BEAT:
                    text = json.dumps(asdict(replace(heartbeat, at=self.now)))
                    (self.folder / f"heartbeat-{name}").write_text(text)
                file = f"pulse-{BEAT}" if name == BEAT else f"heartbeat-{name}"
                sign(self.folder / file, self.now)
            stalled = self.watch.stalled(self.now)
            late += [name for name, _, _ in stalled]
            self.why += [why for _, why, _ in stalled]
        return late


def sign(file: Path, now: float) -> None:
    """Write a heartbeat with the test's time instead of the machine's."""
    file.touch()
    os.utime(file, (now, now))


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


ALL = tuple(PATIENCE_S)
AT_ONCE = 2 * PULSE_EVERY_S


class TestPulseWatch:
    def test_is_quiet_while_all_processes_respond(self, watched: Watched) -> None:
        assert watched.passes(1000, *ALL) == []

    @pytest.mark.parametrize("name", ALL)
    def test_names_only_silent_process(self, watched: Watched, name: str) -> None:
        others = [other for other in ALL if other != name]
        assert watched.passes(10, *ALL) == []
        assert watched.passes(PATIENCE_S[name] - AT_ONCE, *others) == []
        assert watched.passes(2 * AT_ONCE, *others) == [name]

    def test_does_not_blame_workers_for_silent_beat(self, watched: Watched) -> None:
        """A silent beat sends no message, so no message waits for the workers."""
        watched.passes(10, *ALL)
        late = watched.passes(PATIENCE_S[BEAT] + AT_ONCE, "default", "rounds")
        assert late == [BEAT]

    def test_allows_slow_start(self, watched: Watched) -> None:
        assert watched.passes(STARTING_S - AT_ONCE) == []
        assert set(watched.passes(2 * AT_ONCE)) == set(ALL)

    def test_allows_slow_start_after_restart(self, watched: Watched) -> None:
        watched.passes(10, *ALL)
        watched.watch.starts("default", watched.now)
        assert watched.passes(STARTING_S - AT_ONCE, BEAT, "rounds") == []
        assert watched.passes(2 * AT_ONCE, BEAT, "rounds") == ["default"]

    def test_waits_longer_after_each_failed_restart(self, watched: Watched) -> None:
        waits, since = [], 0.0
        for _ in range(2 + MOST_DOUBLINGS):
            while "rounds" not in watched.passes(COARSE_S, BEAT, "default", step_s=COARSE_S):
                pass
            waits.append(watched.now - since)
            since = watched.now
        assert waits == pytest.approx([STARTING_S * 2**n for n in DOUBLINGS], abs=2 * COARSE_S)

    def test_waits_longer_if_process_recovers_only_briefly(self, watched: Watched) -> None:
        """The worker starts and reports that it is idle, but takes no message."""
        waits, since = [], 0.0
        for _ in range(2 + MOST_DOUBLINGS):
            said = {BEAT: IDLE, "default": IDLE, "rounds": Heartbeat(0.0, waits_since=since)}
            while "rounds" not in watched.passes_with(COARSE_S, said, step_s=COARSE_S):
                pass
            waits.append(watched.now - since)
            since = watched.now
        expected = [PATIENCE_S["rounds"] * 2**n for n in DOUBLINGS]
        assert waits == pytest.approx(expected, abs=2 * COARSE_S)

    def test_resets_waiting_time_after_recovery(self, watched: Watched) -> None:
        watched.passes(STARTING_S + AT_ONCE, BEAT, "default")
        watched.passes(WELL_S + AT_ONCE, *ALL)
        assert watched.passes(PATIENCE_S["rounds"] + AT_ONCE, BEAT, "default") == ["rounds"]

    def test_ignores_files_of_previous_run(self, tmp_path: Path) -> None:
        write_heartbeat(tmp_path, "default", Heartbeat(0.0))
        watched = Watched(tmp_path)
        assert watched.passes(STARTING_S - AT_ONCE, BEAT, "rounds") == []
        assert watched.passes(2 * AT_ONCE, BEAT, "rounds") == ["default"]


class TestVerdict:
    """A worker's report, and the supervisor's verdict; a worker may be silent for 120 s."""

    @pytest.mark.parametrize(
        ("waits_since", "task", "since", "progress_at", "why"),
        [
            (None, "", 0, 0, ""),  # the worker is idle, and no message waits
            (985, "", 0, 0, ""),  # a message arrived recently
            (879, "", 0, 0, "it has received no message for 121 s"),
            (None, "scheduling.rounds", 990, 0, ""),
            (None, "scheduling.rounds", 200, 995, ""),  # the task makes progress
            (None, "scheduling.rounds", 200, 879, "its task scheduling.rounds has been idle"),
            (None, "scheduling.rounds", -21, 999, "its task scheduling.rounds has run for 1021 s"),
        ],
    )
    def test_names_stalled_queue_or_task(
        self, *, waits_since: float | None, task: str, since: float, progress_at: float, why: str
    ) -> None:
        said = Heartbeat(1_000.0, task, since, waits_since)
        found = complaint(said, 1_000.0, progress_at=progress_at, patience_s=120.0)
        assert found.startswith(why)
        assert bool(found) == bool(why)

    def test_is_empty_for_old_or_missing_report(self) -> None:
        """On a full disk, a worker sends heartbeats but no report."""
        for said in (None, Heartbeat(900.0, waits_since=0.0)):
            assert complaint(said, 1_000.0, progress_at=0.0, patience_s=120.0) == ""


class TestWorker:
    def test_reports_since_when_message_waits(self) -> None:
        worker = HeartbeatMaker()
        looks: list[tuple[float, dict[str, str], int, int | None, float | None]] = [
            (10, {}, 0, 0, None),
            (12, {}, 0, 3, 12),
            (14, {}, 0, 5, 12),
            (16, {}, 0, None, None),  # the broker does not answer
            (18, {}, 0, 5, 18),
            (20, {}, 1, 5, None),  # the worker took a message and finished it
            (22, {}, 1, 5, 22),
            (24, {"x": "a task"}, 1, 5, None),
        ]
        for now, tasks, taken, waiting, since in looks:
            heartbeat = worker.look(now, tasks=tasks, taken=taken, waiting=waiting)
            assert heartbeat.waits_since == since, now

    def test_reports_longest_running_task(self) -> None:
        worker = HeartbeatMaker()
        worker.look(10, tasks={"1": "rounds"}, taken=1, waiting=0)
        heartbeat = worker.look(12, tasks={"2": "seal", "1": "rounds"}, taken=2, waiting=0)
        assert (heartbeat.task, heartbeat.since) == ("rounds", 10)
        heartbeat = worker.look(14, tasks={"2": "seal"}, taken=2, waiting=0)
        assert (heartbeat.task, heartbeat.since) == ("seal", 12)

    def test_gives_sign_of_life_on_full_disk(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_heartbeat(tmp_path, "rounds", IDLE)
        os.utime(tmp_path / "heartbeat-rounds", (1, 1))

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "write_text", full)
        write_heartbeat(tmp_path, "rounds", Heartbeat(7.0))
        assert (touched_at(tmp_path, "rounds") or 0) == 0
        assert (touched_at(tmp_path, "heartbeat-rounds") or 0) > 1
        assert read_heartbeat(tmp_path, "rounds") == IDLE

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"at": 1, "unknown": 2}', "null"])
    def test_unreadable_report_is_ignored(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "heartbeat-rounds").write_text(text)
        assert read_heartbeat(tmp_path, "rounds") is None


class TestRestarts:
    def test_are_counted_with_last_reason(self, tmp_path: Path) -> None:
        assert read_restarts(tmp_path) == []
        note_restart(tmp_path, "worker-rounds", "first", at=5.0)
        note_restart(tmp_path, "beat", "only", at=6.0)
        note_restart(tmp_path, "worker-rounds", "last", at=7.0, next_after_s=240.0)
        assert read_restarts(tmp_path) == [
            Restarts("beat", 1, "only", 6.0),
            Restarts("worker-rounds", 2, "last", 7.0, 240.0),
        ]


class Story:
    """A worker with one long task, and the supervisor that watches its queue."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "pulse-rounds"
        self.watched = Watched(folder)
        self.watched.passes(PULSE_EVERY_S, *ALL)
        self.task = RunningTask(folder, "rounds", begun=0.0, used_s=5.0)

    def killed_at(self, *, until_s: int, work_share: float) -> float | None:
        """Return the time at which the supervisor kills a worker whose task has this CPU share."""
        said = {BEAT: IDLE, "default": IDLE, "rounds": Heartbeat(0.0, "scheduling.rounds", 0.0)}
        while (now := self.watched.now) < until_s:
            if self.task.look(now, 5.0 + work_share * now):
                sign(self.file, now)
            if self.watched.passes_with(PULSE_EVERY_S, said):
                return now
        return None


class TestLongTask:
    def test_is_not_killed_while_computing(self, tmp_path: Path) -> None:
        longer = int(3 * PATIENCE_S["rounds"])
        assert Story(tmp_path).killed_at(until_s=longer, work_share=0.9) is None

    def test_is_not_killed_while_computing_on_busy_machine(self, tmp_path: Path) -> None:
        longer = int(3 * PATIENCE_S["rounds"])
        assert Story(tmp_path).killed_at(until_s=longer, work_share=0.02) is None

    def test_is_killed_if_it_hangs(self, tmp_path: Path) -> None:
        # A task that only polls whether it may continue makes no progress either.
        for share in (0.0, WORK_S / PATIENCE_S["rounds"] / 2):
            folder = tmp_path / str(share)
            folder.mkdir()
            ended = Story(folder).killed_at(until_s=1000, work_share=share)
            assert ended is not None
            assert ended <= 2 * PATIENCE_S["rounds"] + 2 * PULSE_EVERY_S

    def test_is_killed_after_maximum_duration(self, tmp_path: Path) -> None:
        ended = Story(tmp_path).killed_at(until_s=int(3 * LONGEST_S), work_share=1.0)
        assert ended is not None
        assert LONGEST_S < ended <= LONGEST_S + PATIENCE_S["rounds"] + 2 * PULSE_EVERY_S


class TestTaskWatch:
    def test_detects_computing_thread(
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

    def test_records_start_and_end_of_task(self, tmp_path: Path) -> None:
        watch, file = TaskWatch(), tmp_path / "pulse-default"
        watch.begin(tmp_path, "default")
        assert file.exists()
        file.unlink()
        watch.end()
        assert file.exists()
        file.unlink()
        watch.end()
        assert not file.exists(), "there is no task"
