"""A batch system that only pretends to run: one file, ids that it gives again, answers it loses.

It knows nothing of Evenshare. A job is a name, a label, seconds that it lasts and its exit code.
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
    """It did not answer, or not in time; whatever was asked may have happened or not."""


@dataclass(frozen=True)
class EngineJob:
    """A job as the engine tells of it; instants are microseconds of its own clock."""

    id: int
    name: str
    label: str
    started_us: int
    ends_us: int
    exit_code: int
    cancelled: bool = False

    def is_over(self, at_us: int) -> bool:
        """Whether it had ended by an instant."""
        return self.ends_us <= at_us


class FakeEngine:
    """The engine's commands. Each is atomic; `lose_answers` has the next ones act, and then fail.

    `submissions`: names of all jobs that ever began, in order.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def now_us(self) -> int:
        """The engine's own clock: it has no other."""
        return time.time_ns() // 1000

    def submit(self, name: str, label: str, seconds: float, exit_code: int) -> int:
        """Begin a job under the lowest id that is free, be it of a job that was removed."""
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
        """Everything that runs, or has ended and was not removed."""
        with self._opened() as world:
            jobs = [EngineJob(**job) for job in world["jobs"]]
        self._answer()
        return jobs

    def cancel(self, job_id: int) -> None:
        """End whatever has this id now."""
        with self._opened() as world:
            now_us = self.now_us()
            for job in world["jobs"]:
                if job["id"] == job_id and job["ends_us"] > now_us:
                    job |= {"ends_us": now_us, "cancelled": True}
        self._answer()

    def remove(self, job_id: int) -> None:
        """Forget a job that has ended: its id is free."""
        with self._opened() as world:
            now_us = self.now_us()
            world["jobs"] = [
                job for job in world["jobs"] if job["id"] != job_id or job["ends_us"] > now_us
            ]
        self._answer()

    def lose_answers(self, count: int) -> None:
        """Have the next commands act, and fail to say so."""
        with self._opened() as world:
            world["lost_answers"] = count

    def forget_everything(self) -> None:
        """Lose all jobs, as an engine that was installed anew."""
        with self._opened() as world:
            world["jobs"] = []

    @property
    def submissions(self) -> list[str]:
        """The names of all jobs that ever began."""
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
