"""The private keys of logs, each in a file and never in the database, and the table of public keys.

All processes of the portal share the folder `LOG_KEYS_DIR`, which persists when they end. The first
key is made with the first signed head. After that a missing key is an error. It is never replaced
silently, because clients that pinned it would reject new heads.
"""

import os
import secrets
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.db import connection

from evenshare_core.chain.checkpoints import SEED_BYTES, public_key
from tenants.models import LogKey
from tenants.scopes import site_scope
from tenants.transparency.log import LOCK_CLASS, wall_now

OVERLAP_DAYS, OVERLAP_DAYS_MAX = 30, 366


class LogKeyError(Exception):
    """A private key is missing, or not properly protected; the text states the remedy."""


class KnownKey(NamedTuple):
    """The newest row of a key in the table."""

    public: bytes
    since: datetime
    until: datetime | None


def known_keys() -> list[KnownKey]:
    """Return every key that ever signed, oldest first."""
    newest: dict[bytes, KnownKey] = {}
    for public, since, until in LogKey.objects.order_by("id").values_list(
        "public", "since", "until"
    ):
        newest[bytes(public)] = KnownKey(bytes(public), since, until)
    return list(newest.values())


def signing_seeds() -> list[bytes]:
    """Return the private keys that sign now, oldest first; the first one is made here.

    Raises:
        LogKeyError: a key that must sign is not in the folder, or other users may read it.
    """
    known = known_keys() or _make_first()
    now = wall_now()
    active = [key for key in known if key.until is None or key.until > now]
    if not active:
        raise LogKeyError("no key is active: run `manage.py rotate_log_key`")
    return [_read(key.public) for key in active]


def key_problem() -> str:
    """Return why heads cannot be signed; empty if they can, or if no key exists yet."""
    try:
        if known_keys():
            signing_seeds()
    except LogKeyError as error:
        return str(error)
    return ""


def rotate(*, overlap: timedelta, is_lost: bool = False) -> bytes:
    """Make a new key; earlier ones also sign for `overlap` more. Return its public key.

    `is_lost`: the files of the earlier keys are lost, so these keys end now.

    Raises:
        LogKeyError: a file of a key that should continue to sign is missing.
    """
    with site_scope():
        _lock()
        now = wall_now()
        for key in known_keys():
            if key.until is not None:
                continue
            if not is_lost:
                _read(key.public)
            LogKey.objects.create(
                public=key.public, since=key.since, until=now if is_lost else now + overlap
            )
        public = _make_file()
        LogKey.objects.create(public=public, since=now)
    return public


def _make_first() -> list[KnownKey]:
    with site_scope():
        _lock()
        # A process that waited for the lock finds the key that the previous process made.
        if not known_keys():
            LogKey.objects.create(public=_make_file())
        return known_keys()


def _lock() -> None:
    with connection.cursor() as cursor:
        # Logs are numbered from 1 on.
        cursor.execute("SELECT pg_advisory_xact_lock(%s, 0)", [LOCK_CLASS])


def _folder() -> Path:
    return Path(settings.LOG_KEYS_DIR)


def _make_file() -> bytes:
    """Make a private key; return its public key.

    The file on the disk is complete or does not exist.
    """
    seed = secrets.token_bytes(SEED_BYTES)
    public = public_key(seed)
    folder = _folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = folder / f".{public.hex()}.partial"
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(handle, f"{seed.hex()}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        partial.rename(_file(public))
        sync_folder(folder)
    except OSError as error:
        raise LogKeyError(
            f"no key can be created in {folder}: {error.strerror}; EVENSHARE_LOG_KEYS_DIR names the"
            " folder"
        ) from error
    return public


def sync_folder(folder: Path) -> None:
    """Write the entries of a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _file(public: bytes) -> Path:
    return _folder() / f"{public.hex()}.key"


def _read(public: bytes) -> bytes:
    path = _file(public)
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LogKeyError(
            f"the log's private key {path} cannot be read ({error}): restore it from your backup"
            " of this folder, or run `manage.py rotate_log_key --lost`"
        ) from error
    if mode & 0o077:
        raise LogKeyError(f"other users may read the log's private key {path}: chmod 600 it")
    try:
        seed = bytes.fromhex(text)
    except ValueError:
        seed = b""
    if len(seed) != SEED_BYTES or public_key(seed) != public:
        raise LogKeyError(f"{path} does not contain the key of its name: restore it")
    return seed
