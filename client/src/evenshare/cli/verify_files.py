"""Files of a verification: the portal's responses, byte for byte, each under a fixed name.

Every verification reads a folder of these files. The folder is temporary, or kept (`--save-dir`). A
kept folder can be verified later on another machine without the portal (`--from-dir`).

| name | response of |
|---|---|
| `chain.json` | `GET /chain/<pool>` |
| `records.json` | all pages of `GET /chain/<pool>/records` of the rounds, in one list |
| `inclusion.json` | `GET /chain/<pool>/inclusion` of the last of them |
| `consistency.json` | `GET /chain/<pool>/consistency` from a pinned head, with both sizes |
| `names/<day>.json` | `GET /chain/<pool>/names` |
| `jobs.json` | the reader's jobs of `GET /jobs`: `jobs`, and `complete` if none is missing |
| `bundles/<round>.json` | `GET /rounds/<pool>/<round>/bundle` |
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evenshare.errors import ApiError, UnreachableError, UsageError

from .api import NO_PORTAL, PAGE, PAGES, Transport, part

CHAIN, RECORDS, JOBS = "chain.json", "records.json", "jobs.json"
INCLUSION, CONSISTENCY = "inclusion.json", "consistency.json"
JOB_FIELDS = ("id", "tenant", "gpus", "submitted_at", "eligible_at", "ended_at", "profile")
RECORDS_AT_ONCE = 500
LONGEST_LIST = PAGE * PAGES
_NAME = re.compile(r"[a-z0-9-]+(/[a-z0-9-]+)?\.json")


class Files:
    """A folder of responses by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> bytes | None:
        """Return the bytes, or None if there is no such file."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise UsageError(f"{self._path(name)} cannot be read: {problem.strerror}") from None

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically, so that an interrupted run leaves no partial response."""
        path = self._path(name)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            # Private, because the keys show which rows belong to the reader.
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside.write_bytes(data)
            beside.replace(path)
        except OSError as problem:
            raise UsageError(f"{path} cannot be written: {problem.strerror}") from None

    def write_json(self, name: str, value: object) -> None:
        self.write(name, json.dumps(value).encode())

    def _path(self, name: str) -> Path:
        # A part of the name may come from a response, so it must not lead to another folder.
        if not _NAME.fullmatch(name):
            raise UnreachableError(f"the portal returned an invalid name: {name!r}")
        return self.folder / name


@contextmanager
def to_save(folder: str | None) -> Iterator[Files]:
    """Yield the named folder, created if missing; without a name, yield a temporary folder."""
    if folder is not None:
        yield Files(Path(folder))
        return
    with tempfile.TemporaryDirectory(prefix="evenshare-") as made:
        yield Files(Path(made))


def saved(folder: str) -> Files:
    if not Path(folder).is_dir():
        raise UsageError(f"{folder} is not a folder; use a folder written by --save-dir")
    return Files(Path(folder))


@contextmanager
def answers() -> Iterator[None]:
    """Raise UnreachableError if a response in the block has an unexpected form."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ArithmeticError) as problem:
        raise UnreachableError(f"{NO_PORTAL}: {problem!r}") from None


def names_file(day: str) -> str:
    return f"names/{day}.json"


def bundle_file(number: int) -> str:
    return f"bundles/{number}.json"


def fetch_chain(client: Transport, files: Files, pool: str) -> dict[str, Any]:
    """Fetch the head of the pool's log of rounds."""
    data = client.download(f"/chain/{part(pool)}")
    files.write(CHAIN, data)
    return _object(data)


def fetch_records(client: Transport, pool: str, first: int, last: int) -> list[dict[str, Any]]:
    """Fetch the records of rounds from `first` to `last`."""
    path = f"/chain/{part(pool)}/records"
    rows: list[dict[str, Any]] = []
    while first <= last:
        until = min(last, first + RECORDS_AT_ONCE - 1)
        rows += client.get(path, first=first, last=until)["results"]
        first = until + 1
    return rows


def fetch_bundle(client: Transport, files: Files, pool: str, number: int, sha256: str = "") -> bool:
    """Return whether a round's bundle could be fetched, or is in the folder with this hash.

    False means that the portal keeps only the bundle's hashes and proofs.
    """
    held = files.read(bundle_file(number))
    if held is not None and hashlib.sha256(held).hexdigest() == sha256:
        return True
    try:
        data = client.download(f"/rounds/{part(pool)}/{number}/bundle")
    except ApiError as refused:
        if refused.status in (404, 410):
            return False
        raise
    files.write(bundle_file(number), data)
    return True


def fetch_names(client: Transport, files: Files, pool: str, day: str) -> dict[str, Any]:
    """Fetch the keys of a day of pool time, and the pseudonyms that this reader can resolve."""
    data = client.download(f"/chain/{part(pool)}/names", day=day)
    files.write(names_file(day), data)
    return _object(data)


def fetch_consistency(client: Transport, files: Files, pool: str, first: int, second: int) -> None:
    """Fetch the proof that a log of size `second` starts with the log of size `first`."""
    answer = client.get(f"/chain/{part(pool)}/consistency", first=first, second=second)
    files.write_json(CONSISTENCY, {"first": first, "second": second, "path": answer["path"]})


def fetch_inclusion(client: Transport, files: Files, pool: str, number: int, size: int) -> None:
    """Fetch the proof that a round's record is in the log of this size."""
    path = f"/chain/{part(pool)}/inclusion"
    files.write(INCLUSION, client.download(path, round=number, size=size))


def fetch_jobs(
    client: Transport,
    files: Files,
    pool: str,
    tenants: Sequence[str],
    missing: Callable[[str, str], int],
) -> None:
    """Fetch the reader's own jobs in the pool, newest first, until no job is missing.

    `missing` is called with each job's tenant and id, and returns how many jobs are still missing.
    """
    rows: list[dict[str, Any]] = []
    is_whole = True
    for tenant in tenants:
        listed = 0
        for job in client.pages("/jobs", None, pool=pool, tenant=tenant):
            listed += 1
            rows.append({key: job.get(key) for key in JOB_FIELDS})
            if not missing(tenant, str(job["id"])):
                break
        is_whole = is_whole and listed < LONGEST_LIST
    files.write_json(JOBS, {"jobs": rows, "complete": is_whole})


def _object(data: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise UnreachableError(NO_PORTAL)
    return answer
