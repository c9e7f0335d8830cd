"""The progress file for the job's page, which is replaced atomically."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

MOST_BYTES = 64 * 1024
MOST_METRICS = 256
LONGEST_NAME = 120


class Progress:
    """The newest report; older ones are not written."""

    def __init__(self, file: Path, lease: int) -> None:
        self._file = file
        self._lease = lease
        self._newest: dict[str, Any] | None = None
        self._written: dict[str, Any] | None = None

    def set(self, step: int, total: int | None, metrics: Mapping[str, object]) -> None:
        self._newest = {
            "step": int(step),
            "total": None if total is None else int(total),
            "metrics": finite(metrics),
            "lease": self._lease,
            "at": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        }

    @property
    def waits(self) -> bool:
        return self._newest is not self._written

    def write(self) -> None:
        """Write the file without a flush to disk: a report lost with the machine is harmless."""
        newest = self._newest
        if newest is None or newest is self._written:
            return
        beside = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        # A full disk must not end a training run that only reports its progress.
        with contextlib.suppress(OSError):
            beside.write_bytes(encode(newest))
            beside.replace(self._file)
        self._written = newest


def finite(metrics: Mapping[str, object]) -> dict[str, float]:
    """Return the metrics that JSON can represent; a loss of NaN is left out without an error."""
    kept: dict[str, float] = {}
    for name, value in list(metrics.items())[:MOST_METRICS]:
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            number = float(value)  # type: ignore[arg-type]  # numpy scalars and the like too
            if math.isfinite(number):
                kept[str(name)[:LONGEST_NAME]] = number
    return kept


def encode(report: Mapping[str, Any]) -> bytes:
    data = json.dumps(report, allow_nan=False).encode()
    if len(data) > MOST_BYTES:
        data = json.dumps({**report, "metrics": {}}, allow_nan=False).encode()
    return data
