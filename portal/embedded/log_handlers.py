"""Log handlers that drop lines on a full disk instead of flooding the terminal.

Python's handlers print a traceback for each line that they cannot write: on a full disk, 37 MB of
tracebacks in 100 s. Standard library only: the supervisor and Django use them.
"""

import contextlib
import logging
import logging.handlers
import sys
import time

# Seconds between two reports of lost lines by a process.
NOTICE_EVERY_S = 60.0


class _Notice:
    """Counts this process's lost lines, and reports them on its error stream now and then."""

    def __init__(self) -> None:
        self._lost = 0
        self._said_at: float | None = None

    def lost(self, error: OSError, place: str) -> None:
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
    """Note a line that the system refused and return True; other faults are the caller's."""
    error = sys.exception()
    if not isinstance(error, OSError):
        return False
    _notice.lost(error, place)
    return True


class StreamHandler(logging.StreamHandler):  # type: ignore[type-arg]  # its stream is any text
    """Writes to the error stream; drops a line that cannot be written."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Note a lost line; print other faults as usual."""
        if not _is_lost("the output"):
            super().handleError(record)


class FileHandler(logging.handlers.RotatingFileHandler):
    """Writes to a rotating file; drops a line that cannot be written."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Note a lost line; print other faults as usual."""
        if not _is_lost(self.baseFilename):
            super().handleError(record)

    def close(self) -> None:
        """Close the file; buffered lines may be lost."""
        with contextlib.suppress(OSError):
            super().close()
