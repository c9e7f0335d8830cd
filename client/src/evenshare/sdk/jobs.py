"""`Client.jobs`: submit, find, wait for and read jobs."""

from __future__ import annotations

import builtins
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from evenshare.cli.api import Transport, part

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Unpack

    from .answers import (
        DryRunAnswer,
        JobActionRow,
        JobReason,
        JobRow,
        JobSubmission,
        JobUsageAnswer,
        LogText,
    )

Waited = TypeVar("Waited", bound=Mapping[str, Any])
ENDED = ("succeeded", "failed", "cancelled")
# Seconds between requests while a job runs: short at first, because many jobs are short.
POLL_S = (0.5, 1.0, 2.0, 5.0)
LOG_BYTES = 262_144
TIMES = "_at"


class Jobs:
    """Jobs of your tenants. A job is given as its answer, or as its id."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def submit(
        self,
        *,
        file: str | Path | None = None,
        key: str | None = None,
        **fields: Unpack[JobSubmission],
    ) -> JobRow:
        """Submit a job and return it.

        `file`: a YAML file as the portal copies it, whose fields the others override. `key`: a
        repeated submission with the same key returns the same job, also from another process.
        """
        # With a key, a retry after a lost answer creates no second job.
        answer = self._transport.post("/jobs", body_of(file, fields), key=key or str(uuid.uuid4()))
        return cast("JobRow", answer)

    def dry_run(
        self, *, file: str | Path | None = None, **fields: Unpack[JobSubmission]
    ) -> DryRunAnswer:
        """Return whether a job could run, at what price, and when; nothing is stored."""
        answer = self._transport.post("/jobs/dry-run", body_of(file, fields), repeatable=True)
        return cast("DryRunAnswer", answer)

    def get(self, job: JobRow | str) -> JobRow:
        return cast("JobRow", self._transport.get(_path(job)))

    def list(
        self,
        *,
        state: str | None = None,
        phase: str | None = None,
        pool: str | None = None,
        tenant: str | None = None,
        limit: int | None = None,
        **filters: str,
    ) -> Iterator[JobRow]:
        """Yield jobs, newest first; all of them without a `limit`. Pages are read on demand.

        `filters` are further query parameters of `GET /jobs`.
        """
        wanted = {"state": state, "phase": phase, "pool": pool, "tenant": tenant, **filters}
        most = sys.maxsize if limit is None else limit
        for row in self._transport.pages("/jobs", most, **wanted):
            yield cast("JobRow", row)

    def cancel(self, job: JobRow | str) -> JobRow:
        """End a job and return it; repeating it is harmless."""
        return cast("JobRow", self._transport.post(f"{_path(job)}/cancel", repeatable=True))

    def hold(self, job: JobRow | str) -> JobRow:
        """Hold a queued job, and return it; repeating it is harmless."""
        return cast("JobRow", self._transport.post(f"{_path(job)}/hold", repeatable=True))

    def release(self, job: JobRow | str) -> JobRow:
        """Release a job from its hold, and return it; repeating it is harmless."""
        return cast("JobRow", self._transport.post(f"{_path(job)}/release", repeatable=True))

    def prioritize(self, job: JobRow | str, priority: int) -> JobRow:
        """Set a job's priority among your tenant's jobs, from -100 to 100, and return the job."""
        body = {"priority": priority}
        return cast("JobRow", self._transport.post(f"{_path(job)}/priority", body, repeatable=True))

    def act(
        self, action: str, jobs: Iterable[JobRow | str], **more: object
    ) -> builtins.list[JobActionRow]:
        """Act on at most 1,000 jobs, each separately; return the outcome for each.

        `action`: `cancel`, `hold`, `release`, `priority`, `tag` or `untag`. `more`: `priority=`, or
        `tags=` as a list.
        """
        body = {"action": action, "jobs": [id_of(job) for job in jobs], **more}
        answer = self._transport.post("/jobs/actions", body, repeatable=True)
        return cast("builtins.list[JobActionRow]", answer["results"])

    def why(self, job: JobRow | str) -> JobReason:
        """Return why a job waits, with the numbers of the round that decided."""
        return cast("JobReason", self._transport.get(f"{_path(job)}/why"))

    def usage(self, job: JobRow | str) -> JobUsageAnswer:
        """Return a job's use of CPUs, memory and GPUs."""
        return cast("JobUsageAnswer", self._transport.get(f"{_path(job)}/usage"))

    def wait(self, job: JobRow | str, *, timeout: float | None = None) -> JobRow:
        """Return the job when it has ended; its `state` is its result.

        Raises TimeoutError after `timeout` seconds; the job goes on.
        """
        return wait_for(self._transport, lambda: self.get(job), "job", timeout)

    def logs(self, job: JobRow | str, *, lease: int | None = None) -> str:
        """Return the output of a job's lease so far; by default of the newest."""
        texts, offset = [], 0
        while True:
            answer = self._transport.get(
                f"{_path(job)}/logs", lease=lease, offset=offset, limit=LOG_BYTES
            )
            window = cast("LogText", answer)
            texts.append(window["text"])
            if window["next_offset"] <= offset or window["next_offset"] >= window["total"]:
                return "".join(texts)
            # The next windows are of the same lease, even if the job has got another one.
            lease, offset = window["lease"], window["next_offset"]

    def to_pandas(self, **filters: Any) -> pd.DataFrame:
        """Return jobs as a table, with a row for each; `filters` as of `list`.

        Times are UTC timestamps; parts of objects have columns such as `lease.number`. Raises
        ImportError if pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415 - only the extra `sdk` installs it
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install 'evenshare[sdk]'") from None
        frame = pd.json_normalize([dict(row) for row in self.list(**filters)])
        for name in frame.columns:
            if str(name).endswith(TIMES):
                frame[name] = pd.to_datetime(frame[name], utc=True, format="ISO8601")
        return frame


def body_of(file: str | Path | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    body = dict(fields)
    if file is not None:
        body["yaml"] = Path(file).read_text(encoding="utf-8")
    return body


def _path(job: JobRow | str) -> str:
    """Return the address of a job that is given as its answer, or as its id."""
    return f"/jobs/{part(id_of(job))}"


def id_of(row: Mapping[str, Any] | str) -> str:
    return row if isinstance(row, str) else str(row["id"])


def wait_for(
    transport: Transport, read: Callable[[], Waited], noun: str, timeout: float | None
) -> Waited:
    """Return what `read` returns when its state is final. Raises TimeoutError."""
    end = None if timeout is None else time.monotonic() + timeout
    asked = 0
    while True:
        row: Mapping[str, Any] = read()
        if row["state"] in ENDED:
            return cast("Waited", row)
        pause = POLL_S[min(asked, len(POLL_S) - 1)]
        left = pause if end is None else end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{noun} {row['id']} is still {row.get('phase', row['state'])}")
        transport.pause(min(pause, left))
        asked += 1
