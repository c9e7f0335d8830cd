"""A program's output in bounded space."""

import contextlib
import os
from pathlib import Path

from .files import file_mode

HEAD_BYTES = 2**20
TAIL_PARTS = 3
READ_BYTES = 2**16
# Written to the log if a program did not stop within its grace.
OUT_OF_TIME = "killed: its time to checkpoint has expired"


def redirect_own_output(folder: Path) -> None:
    """Redirect this process's output to the lease's `shim.log`, without following a link."""
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        log = os.open(folder / "shim.log", flags, file_mode(folder))
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.close(log)


class Log:
    """A program's output in bounded space: its first bytes, and a rolling tail.

    A file's name contains the offset of its first byte in the whole output (`out.log`: 0), so a
    reader can see what was cut. Output is never held in memory, however long a line is.
    """

    def __init__(self, folder: Path, cap_bytes: int) -> None:
        self._folder = folder
        self._head_bytes = min(HEAD_BYTES, cap_bytes // 2)
        self._part_bytes = max(1, (cap_bytes - self._head_bytes) // TAIL_PARTS)
        self._parts: list[Path] = []
        self._file = -1
        self._left = self._head_bytes
        self._total = 0
        self._line_open = False

    def write(self, data: bytes) -> None:
        """Append; a full disk or a removed folder loses output, never the job."""
        with contextlib.suppress(OSError):
            for start in range(0, len(data), READ_BYTES):
                self._append(data[start : start + READ_BYTES])

    def note(self, text: str) -> None:
        """Write our own message, on a separate line."""
        line = f"[evenshare] {text}\n".encode(errors="replace")
        self.write(b"\n" + line if self._line_open else line)

    def _append(self, data: bytes) -> None:
        if self._file < 0:
            self._file = self._open("out.log")
        while data:
            if self._left == 0:
                self._next_part()
            piece = data[: self._left]
            os.write(self._file, piece)
            self._left -= len(piece)
            self._total += len(piece)
            self._line_open = not piece.endswith(b"\n")
            data = data[len(piece) :]

    def _next_part(self) -> None:
        name = f"out.{self._total:015d}.log"
        fresh = self._open(name)
        os.close(self._file)
        self._file, self._left = fresh, self._part_bytes
        self._parts.append(self._folder / name)
        if len(self._parts) > TAIL_PARTS:
            self._parts.pop(0).unlink(missing_ok=True)

    def _open(self, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
        return os.open(self._folder / name, flags, file_mode(self._folder))
