"""Log handlers whose lines may get lost: a full disk costs lines, and floods no terminal.

Python's handlers print a traceback for each line that they cannot write. A portal on a full disk
put 37 MB on its terminal in 100 s. Standard library only: the supervisor and Django use them.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import sys
import time

# A process says this often that lines are lost.
NOTICE_EVERY_S = 60.0


class _Notice:
    """Counts the lines that this process lost, and says so on its error stream now and then."""

    def __init__(self) -> None:
        self._lost = 0
        self._said_at: float | None = None

    def lost(self, error: OSError, place: str) -> None:
        """Count a line that could not be written to `place`."""
        self._lost += 1
        now = time.monotonic()
        if self._said_at is not None and now - self._said_at < NOTICE_EVERY_S:
            return
        # The error stream may be on the same disk, or closed.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(
                f"evenshare: log lines are lost: {place} cannot be written"
                f" ({error.strerror or error}); lines lost so far: {self._lost}. Work goes on."
                " Check the free space of the disk.\n"
            )
            sys.stderr.flush()
        self._said_at = now


_notice = _Notice()


def _is_lost(place: str) -> bool:
    """Whether the system refused a line, which is noted; another fault is the caller's."""
    error = sys.exception()
    if not isinstance(error, OSError):
        return False
    _notice.lost(error, place)
    return True


class StreamHandler(logging.StreamHandler):  # type: ignore[type-arg]  # its stream is any text
    """Writes to the error stream; a line that cannot be written is lost."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Note the line as lost; other faults are printed as usual."""
        if not _is_lost("the output"):
            super().handleError(record)


class FileHandler(logging.handlers.RotatingFileHandler):
    """Writes to a file that rotates; a line that cannot be written is lost."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Note the line as lost; other faults are printed as usual."""
        if not _is_lost(self.baseFilename):
            super().handleError(record)

    def close(self) -> None:
        """Close the file; what is still to be written may get lost."""
        with contextlib.suppress(OSError):
            super().close()
