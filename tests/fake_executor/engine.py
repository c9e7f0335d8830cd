"""A fake batch system that stores its jobs in one file, reuses job ids and may lose answers.

It knows nothing of Evenshare. A job has a name, a label, a duration in seconds and an exit code.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SECOND_US = 1_000_000


class EngineError(Exception):
    """The engine did not answer in time; the command may or may not have taken effect."""


@dataclass(frozen=True)
class EngineJob:
    """A job as the engine reports it; times are microseconds of the engine's own clock."""

    id: int
    name: str
    label: str
    started_us: int
    ends_us: int
    exit_code: int
    cancelled: bool = False

    def is_over(self, at_us: int) -> bool:
        return self.ends_us <= at_us


class FakeEngine:
    """The engine's commands. Each is atomic."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def now_us(self) -> int:
        """Return the time of the engine's own clock, the only clock it has."""
        return time.time_ns() // 1000

    def submit(self, name: str, label: str, seconds: float, exit_code: int) -> int:
        """Start a job under the lowest free id, which a removed job may have had before."""
        with self._opened() as world:
            taken = {job["id"] for job in world["jobs"]}
            free = min(set(range(1, len(taken) + 2)) - taken)
            now_us = self.now_us()
            job = EngineJob(free, name, label, now_us, now_us + int(seconds * SECOND_US), exit_code)
            world["jobs"].append(asdict(job))
            world["submissions"].append(name)
        self._answer()
        return free

    def jobs(self) -> list[EngineJob]:
        """Return the running jobs, and the ended jobs that were not removed."""
        with self._opened() as world:
            jobs = [EngineJob(**job) for job in world["jobs"]]
        self._answer()
        return jobs

    def cancel(self, job_id: int) -> None:
        """End the job that has this id now."""
        with self._opened() as world:
            now_us = self.now_us()
            for job in world["jobs"]:
                if job["id"] == job_id and job["ends_us"] > now_us:
                    job |= {"ends_us": now_us, "cancelled": True}
        self._answer()

    def remove(self, job_id: int) -> None:
        """Forget an ended job, so its id is free again."""
        with self._opened() as world:
            now_us = self.now_us()
            world["jobs"] = [
                job for job in world["jobs"] if job["id"] != job_id or job["ends_us"] > now_us
            ]
        self._answer()

    def lose_answers(self, count: int) -> None:
        """Make the next `count` commands take effect, but raise `EngineError`."""
        with self._opened() as world:
            world["lost_answers"] = count

    def forget_everything(self) -> None:
        """Lose all jobs, like a reinstalled engine."""
        with self._opened() as world:
            world["jobs"] = []

    @property
    def submissions(self) -> list[str]:
        """Return the names of all jobs that ever started, in order."""
        with self._opened() as world:
            names: list[str] = world["submissions"]
        return names

    def _answer(self) -> None:
        with self._opened() as world:
            if world["lost_answers"] == 0:
                return
            world["lost_answers"] -= 1
        raise EngineError("no answer within 5 s")

    @contextmanager
    def _opened(self) -> Iterator[dict[str, Any]]:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read()
            world = json.loads(text or '{"jobs": [], "submissions": [], "lost_answers": 0}')
            yield world
            file.truncate(0)
            json.dump(world, file)
