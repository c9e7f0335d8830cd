"""`Client.sweeps`: submit, find, wait for and repeat sweeps."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from evenshare.cli.api import Transport, part

from .jobs import body_of, id_of, wait_for

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .answers import SweepJobRow, SweepRow, SweepSubmission


class Sweeps:
    """Sweeps of your tenants. A sweep is given as its answer, or as its id."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def submit(
        self,
        *,
        file: str | Path | None = None,
        key: str | None = None,
        **fields: Unpack[SweepSubmission],
    ) -> SweepRow:
        """Submit a job for each index of `array` and each combination of `matrix`.

        `file` and `key` as of `jobs.submit`. `at_once`: how many may run at once.
        """
        body = body_of(file, fields)
        return cast("SweepRow", self._transport.post("/sweeps", body, key=key or str(uuid.uuid4())))

    def get(self, sweep: SweepRow | str) -> SweepRow:
        """Return a sweep with the numbers of its jobs by state."""
        return cast("SweepRow", self._transport.get(_path(sweep)))

    def list(
        self, *, pool: str | None = None, tenant: str | None = None, limit: int | None = None
    ) -> Iterator[SweepRow]:
        """Yield sweeps, newest first; all of them without a `limit`."""
        most = sys.maxsize if limit is None else limit
        for row in self._transport.pages("/sweeps", most, pool=pool, tenant=tenant):
            yield cast("SweepRow", row)

    def jobs(self, sweep: SweepRow | str, *, state: str | None = None) -> Iterator[SweepJobRow]:
        """Yield a sweep's jobs with their parameters, by place."""
        for row in self._transport.pages(f"{_path(sweep)}/jobs", sys.maxsize, state=state):
            yield cast("SweepJobRow", row)

    def cancel(self, sweep: SweepRow | str) -> SweepRow:
        """End the jobs of a sweep and return it; repeating it is harmless."""
        return cast("SweepRow", self._transport.post(f"{_path(sweep)}/cancel", repeatable=True))

    def resubmit_failed(self, sweep: SweepRow | str, *, key: str | None = None) -> SweepRow:
        """Submit a sweep's failed jobs again, and return the new sweep.

        Raises RequestConflictError if none failed.
        """
        path = f"{_path(sweep)}/resubmit"
        return cast("SweepRow", self._transport.post(path, key=key or str(uuid.uuid4())))

    def wait(self, sweep: SweepRow | str, *, timeout: float | None = None) -> SweepRow:
        """Return the sweep when all of its jobs have ended; its `state` is their result.

        Raises TimeoutError after `timeout` seconds; the sweep goes on.
        """
        return wait_for(self._transport, lambda: self.get(sweep), "sweep", timeout)


def _path(sweep: SweepRow | str) -> str:
    return f"/sweeps/{part(id_of(sweep))}"
