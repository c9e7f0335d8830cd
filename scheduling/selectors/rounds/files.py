"""Bytes of rounds in the files to which old days are moved (docs/adr/0204).

A file is a zip of the stored bytes, unchanged: `<round>/<part>`. Its directory is read once and
cached; then a part takes one read at a known offset. The caller compares the part with its hash, as
for bytes of the database. If a part cannot be read for any reason, an `ArchiveError` names the
file.
"""

import os
import struct
import uuid
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

import msgspec
from django.core.files.storage import FileSystemStorage, Storage, storages
from django.db.models import QuerySet

from scheduling.models import RoundArchive
from tenants.transparency.keys import sync_folder

STORAGE = "rounds"  # the storage's name in Django's settings
SNAPSHOT, DECISION, BUNDLE = "snapshot.z", "decision.z", "bundle.json.gz"
STATE, SERVICE, MEMORY = "state.json", "service.z", "memory.z"
_LOCAL = struct.Struct("<4s22sHH")  # signature, fields that are also in the directory, two lengths
_SIGNATURE = b"PK\3\4"
# The number of cached directories: those of 500 rounds each take about 300 kB.
DIRECTORIES = 16


class ArchiveError(Exception):
    """A part of a round cannot be read from its file; the text names the file and the reason."""


class RoundFolder(FileSystemStorage):
    """A private folder on a local disk; a file appears completely or not at all."""

    def _save(self, name: str, content: IO[bytes]) -> str:
        """Write to a temporary file, sync and rename it: Django's own storage writes in place."""
        path = Path(self.path(name))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as to:
                content.seek(0)
                to.write(content.read())
                to.flush()
                os.fsync(to.fileno())
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
        for folder in (path.parent, path.parent.parent, Path(self.location)):
            sync_folder(folder)
        return name


def round_storage() -> Storage:
    """Return the storage of round files: a local folder, or the one that `ROUNDS_STORAGE` names."""
    return storages[STORAGE]


def archives_of(pool_id: int, number: int) -> QuerySet[RoundArchive]:
    """Return the files that contain a round and are not dropped.

    More than one file contains it only if a clock was set back.
    """
    rows = RoundArchive.objects.filter(pool_id=pool_id, first__lte=number, last__gte=number)
    return rows.filter(dropped_at=None).order_by("-day", "-first")


def archive_of(pool_id: int, number: int) -> RoundArchive | None:
    """Return the file that has a round, or should have it, or None. A single query.

    If several files cover the round after a clock was set back, it is the one that lists it.
    """
    rows = list(archives_of(pool_id, number))
    for row in rows[:-1]:
        try:
            if any(name.startswith(f"{number}/") for name in directory(row)):
                return row
        except ArchiveError:
            return row
    return rows[-1] if rows else None


def is_dropped(pool_id: int, number: int) -> bool:
    """Return whether a round was in a file that was dropped. A single query."""
    rows = RoundArchive.objects.filter(pool_id=pool_id, first__lte=number, last__gte=number)
    return rows.exclude(dropped_at=None).exists()


def read_part(archive: RoundArchive, number: int, part: str) -> bytes:
    """Return a part of a round as it was stored."""
    place = directory(archive).get(f"{number}/{part}")
    if place is None:
        raise ArchiveError(f"is not in the file {archive.name}")
    offset, size = place
    try:
        with round_storage().open(archive.name) as file:
            file.seek(offset)
            signature, _, *lengths = _LOCAL.unpack(file.read(_LOCAL.size))
            file.seek(offset + _LOCAL.size + sum(lengths))
            data = bytes(file.read(size))
    except Exception as error:  # each storage raises its own exceptions
        raise _unreadable(archive.name, error) from error
    if signature != _SIGNATURE or len(data) != size:
        raise _another(archive.name)
    return data


def read_file(archive: RoundArchive) -> bytes:
    """Return a whole file."""
    try:
        with round_storage().open(archive.name) as file:
            return bytes(file.read())
    except Exception as error:  # each storage raises its own exceptions
        raise _unreadable(archive.name, error) from error


def read_state(archive: RoundArchive, number: int) -> Mapping[str, Any]:
    """Return the row of the state that a round left, with its two binary parts."""
    try:
        state: dict[str, Any] = msgspec.json.decode(
            read_part(archive, number, STATE), type=dict[str, Any]
        )
    except msgspec.DecodeError as error:
        raise _another(archive.name) from error
    return state | {
        "service": read_part(archive, number, SERVICE),
        "memory": read_part(archive, number, MEMORY),
    }


def directory(archive: RoundArchive) -> Mapping[str, tuple[int, int]]:
    """Return the position of each part in a file: the offset of its header, and its size."""
    return _directory(archive.name, archive.sha256)


@lru_cache(maxsize=DIRECTORIES)
def _directory(name: str, sha256: str) -> Mapping[str, tuple[int, int]]:  # noqa: ARG001 - of the key
    try:
        with round_storage().open(name) as file, ZipFile(file) as packed:
            return {one.filename: (one.header_offset, one.file_size) for one in packed.infolist()}
    except Exception as error:  # each storage raises its own exceptions
        raise _unreadable(name, error) from error


def forget() -> None:
    """Clear the cached directories after a file was overwritten."""
    _directory.cache_clear()


def _unreadable(name: str, error: Exception) -> ArchiveError:
    if isinstance(error, FileNotFoundError):
        return ArchiveError(f"is missing: the file {name} is not there")
    if isinstance(error, (BadZipFile, struct.error)):
        return _another(name)
    return ArchiveError(f"cannot be read: the file {name} cannot be opened ({_kind(error)})")


def _another(name: str) -> ArchiveError:
    return ArchiveError(f"cannot be read: the file {name} differs from the kept file")


def _kind(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__
