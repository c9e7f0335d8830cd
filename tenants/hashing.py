"""Password hashing: a limited number at once per process, each without a database connection.

A hash keeps a core busy for a good part of a second, and takes about 16 MB. All of Django's hashing
uses these classes, by `PASSWORD_HASHERS` in portal/site/settings.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore

from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher, ScryptPasswordHasher
from django.db import connection

# The longest wait for a slot. The web server admits no more log-ins than may hash at once, so only
# a change of a password waits, and only briefly.
WAIT_S = 20.0


class HashingBusyError(Exception):
    """Too many passwords are being hashed; nothing was changed. Try again in a moment."""


class HashingGate:
    """Allows `at_once` threads of this process to hash."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._turns = BoundedSemaphore(at_once)

    @contextmanager
    def turn(self, wait_s: float = WAIT_S) -> Iterator[None]:
        """Return the thread's database connection to the pool, and wait for a hashing slot.

        Raises:
            HashingBusyError: no slot became free within `wait_s`.
        """
        _give_connection_back()
        if not self._turns.acquire(timeout=wait_s):
            raise HashingBusyError
        try:
            yield
        finally:
            self._turns.release()


def _give_connection_back() -> None:
    """Return this thread's connection to the pool; the next query takes one again.

    Skipped inside a transaction. A connection without a pool belongs to the thread, so no other
    thread waits for it.
    """
    if connection.settings_dict["OPTIONS"].get("pool") and not connection.in_atomic_block:
        connection.close()


GATE = HashingGate(settings.PASSWORD_HASHES_AT_ONCE)


class Scrypt(ScryptPasswordHasher):
    """Django's scrypt, limited by the gate."""

    def encode(
        self, password: str, salt: str, n: int | None = None, r: int | None = None,
        p: int | None = None,
    ) -> str:  # fmt: skip # rows of what belongs together
        """Return the hash of a password; `verify` calls it too."""
        with GATE.turn():
            return super().encode(password, salt, n, r, p)


class PBKDF2(PBKDF2PasswordHasher):
    """Django's PBKDF2, for old hashes, limited by the gate."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        """Return the hash of a password; `verify` calls it too."""
        with GATE.turn():
            return super().encode(password, salt, iterations)
