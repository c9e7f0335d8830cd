"""Changes that a job can make to the files of its lease, as cases that Hypothesis draws."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

# Paths are relative to the folder of a lease; with ^, to the folder of its job.
PLACES = (
    "shim.json",
    "exit.json",
    "stop",
    "until",
    "spec.json",
    "out.log",
    "usage.0.json",
    "^progress.json",
    "^iterations.json",
    "^evaluations.json",
    "^metrics.json",
    "^uid",
    "^lease",
)
# Files about a program's start and end. Stop requests are not included, because jobs do not make
# them.
WORDS = ("shim.json", "exit.json")
WAYS = ("gone", "link", "loop", "pipe", "folder", "huge", "closed")
KEYS = (
    "started_us", "ended_us", "code", "signal", "lost", "never", "asked", "pid", "start", "boot",
    "grace_s", "child",
)  # fmt: skip
_HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class HostileFile:
    """A file that a job changed, by its bytes or in one of `WAYS`.

    `near` has, by key, offsets that are added to the wall time of the write.
    """

    place: str
    way: str = ""
    content: bytes = b""
    near: tuple[tuple[str, int], ...] = ()

    def write(self, folder: Path) -> None:
        """Replace the existing file, as a job with write access could."""
        is_of_job = self.place.startswith("^")
        path = (folder.parents[1] if is_of_job else folder) / self.place.removeprefix("^")
        _clear(path)
        if self.near:
            now_us = time.time_ns() // 1000
            said = json.loads(self.content) if self.content else {}
            said |= {key: now_us + offset for key, offset in self.near}
            _put(path, json.dumps(said).encode())
        elif not self.way:
            _put(path, self.content)
        elif self.way == "link":
            path.symlink_to("/etc/passwd")
        elif self.way == "loop":
            path.symlink_to(path.name)
        elif self.way == "pipe":
            os.mkfifo(path)
        elif self.way == "folder":
            (path / "with" / "something").mkdir(parents=True)
        elif self.way == "huge":
            with path.open("wb") as file:
                file.truncate(2**40)
        elif self.way == "closed":
            _put(path, b"{}")
            path.chmod(0)


def hostile_files(places: tuple[str, ...] = PLACES) -> st.SearchStrategy[HostileFile]:
    """Draw files of a lease that a job changed."""
    where = st.sampled_from(places)
    offsets = st.integers(-_HOUR_US, _HOUR_US)
    instants = st.lists(
        st.tuples(st.sampled_from(("started_us", "ended_us")), offsets), min_size=1, max_size=2
    )
    values = (
        st.integers() | st.floats() | st.booleans() | st.none() | st.text(max_size=5)
        | st.sampled_from((1, 2**51, 2**53, 2**63, 10**400, -1, [], {}))
    )  # fmt: skip
    said = st.dictionaries(st.sampled_from(KEYS), values, max_size=6).map(
        lambda one: json.dumps(one).encode()
    )
    return st.one_of(
        st.builds(HostileFile, where, content=st.binary(max_size=40)),
        st.builds(HostileFile, where, content=said),
        st.builds(HostileFile, where, content=said, near=instants.map(tuple)),
        st.builds(HostileFile, where, way=st.sampled_from(WAYS)),
    )


def _put(path: Path, content: bytes) -> None:
    # The file is renamed into place, so that a shim that writes at the same time is not blocked
    # forever.
    fresh = path.with_name(f".{path.name}.theirs")
    fresh.write_bytes(content)
    fresh.replace(path)


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
