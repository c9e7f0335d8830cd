"""slurmrestd's HTTP: one request, one answer, within a deadline and size limits.

If the server is down, slow, or not slurmrestd at all, ExecutorError is raised. No redirect is
followed, and no token is ever shown.
"""

import http.client
import io
import os
import pwd
import re
import socket
import struct
import time
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from scheduling.engine.executors.base import CALL_S, ExecutorError
from scheduling.engine.executors.slurm.commands import SlurmSilentError
from scheduling.engine.executors.slurm.options import RestdOptions
from scheduling.selectors import stored_texts as texts

# MOST_BYTES is the size of about 20,000 jobs; slurmrestd cannot list more within a call.
MOST_BYTES = 64 * 1024**2
MOST_TOKEN_BYTES = 16 * 1024
_TOKEN = re.compile(r"[\w-]+\.([\w-]+)\.[\w-]+", re.ASCII)
_NO_JSON = (msgspec.MsgspecError, ValueError, RecursionError)
_Reply = TypeVar("_Reply", bound="RestdAnswer")


class RestdFault(msgspec.Struct, frozen=True):
    """An error in an answer, with Slurm's number in one of two fields."""

    error: str | None = ""
    description: str | None = ""
    error_number: int = 0
    error_code: int = 0

    @property
    def code(self) -> int:
        """Slurm's number of the error; 0 if there is none."""
        return self.error_number or self.error_code

    @property
    def text(self) -> str:
        """Slurm's text for the error, and the text that slurmrestd added."""
        about, what = self.description or "", self.error or ""
        said = about if what in about else f"{about}: {what}" if about else what
        printable = "".join(char if char.isprintable() else " " for char in said)
        return " ".join(printable.split())[:300]


class RestdAnswer(msgspec.Struct, frozen=True):
    """The common part of all answers of slurmrestd."""

    errors: tuple[RestdFault, ...]

    @property
    def is_good(self) -> bool:
        """Whether the request was successful."""
        return not self.errors


class RestdRefusedError(ExecutorError):
    """slurmrestd answered with an error."""

    def __init__(self, where: str, faults: tuple[RestdFault, ...], *, status: int) -> None:
        said = (fault.text for fault in faults if fault.text)
        self.said = next(said, "an error without a text")
        self.faults = faults
        self.status = status
        super().__init__(f"{where}: {self.said}")

    @property
    def codes(self) -> frozenset[int]:
        """Slurm's numbers of the errors."""
        return frozenset(fault.code for fault in self.faults)


class _TokenClaims(msgspec.Struct, frozen=True):
    """The claims of a Slurm token: its user (`sun`), and its expiry."""

    sun: str
    exp: float


class RestdClient:
    """A client of slurmrestd. Its token is read for each request, so it may be replaced."""

    def __init__(self, options: RestdOptions) -> None:
        self.options = options

    @property
    def where(self) -> str:
        """The name of the server in messages."""
        return f"slurmrestd at {self.options.url}"

    def ask(
        self,
        kind: type[_Reply],
        method: str,
        path: str,
        payload: Mapping[str, Any] | None = None,
        *,
        deadline: float | None = None,
    ) -> _Reply:
        """Send a request and return the answer by `deadline` (monotonic; CALL_S from now if None).

        Raises:
            RestdRefusedError: slurmrestd answers with an error.
            SlurmSilentError: no answer comes in time.
            ExecutorError: the answer does not have slurmrestd's form.
        """
        until = time.monotonic() + CALL_S if deadline is None else deadline
        headers = {"Accept": "application/json", "Connection": "close", **self._authentication()}
        body = None
        if payload is not None:
            headers["Content-Type"] = "application/json"
            body = msgspec.json.encode(payload)
        target = f"/slurm/{self.options.version}/{path}"
        try:
            status, data = self._exchange(method, target, body, headers, until)
        except TimeoutError as error:
            text = texts.TOOL_SILENT.format(tool=self.where, seconds=f"{CALL_S:g}")
            raise SlurmSilentError(text) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = str(error) or type(error).__name__
            raise ExecutorError(f"{self.where}: {why[:200]}") from error
        return self._read(kind, status, data)

    def token_user(self) -> tuple[str, float] | None:
        """Return the token's user and expiry (seconds since 1970), or None without a token.

        Raises:
            ExecutorError: the token cannot be read, or is not a Slurm token.
        """
        if not self.options.token_file:
            return None
        claims = self._claims(self._token())
        return claims.sun, claims.exp

    def _exchange(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        until: float,
    ) -> tuple[int, bytes]:
        connection = _Connection(self.options, until)
        try:
            connection.request(method, target, body=body, headers=headers)
            response = connection.getresponse()
            if (response.length or 0) > MOST_BYTES:
                raise ValueError(f"an answer of {response.length:,} bytes is too long")
            data = response.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise ValueError(f"an answer of more than {MOST_BYTES:,} bytes is too long")
            if response.length:
                raise ValueError("the answer is incomplete")
            return response.status, data
        finally:
            connection.release()

    def _read(self, kind: type[_Reply], status: int, data: bytes) -> _Reply:
        if status == HTTPStatus.UNAUTHORIZED:
            raise ExecutorError(texts.TOKEN_REJECTED.format(where=self.where, status=401))
        # The comment of any job may be invalid UTF-8.
        text = data.decode(errors="replace")
        trouble = f"the status {status}"
        if status == HTTPStatus.OK:
            try:
                answer = msgspec.json.decode(text, type=kind)
            except _NO_JSON as error:
                trouble = str(error)[:200]
            else:
                if answer.is_good:
                    return answer
        faults = _faults(text)
        if faults:
            raise RestdRefusedError(self.where, faults, status=status)
        text = texts.NO_ANSWER.format(
            where=self.where, version=self.options.version, trouble=trouble
        )
        raise ExecutorError(text)

    def _authentication(self) -> dict[str, str]:
        path = self.options.token_file
        if not path:
            return {}
        token = self._token()
        own, claims = _own_name(), self._claims(token)
        if claims.sun != own:
            raise ExecutorError(
                texts.TOKEN_OF_OTHER.format(path=path, other=repr(claims.sun[:60]), user=repr(own))
            )
        if claims.exp <= time.time():
            raise ExecutorError(texts.TOKEN_EXPIRED.format(path=path))
        return {"X-SLURM-USER-NAME": own, "X-SLURM-USER-TOKEN": token}

    def _token(self) -> str:
        path = self.options.token_file
        try:
            with Path(path).open("rb") as file:
                token = file.read(MOST_TOKEN_BYTES + 1).decode("ascii").strip()
        except (OSError, ValueError) as error:
            text = texts.TOKEN_UNREADABLE.format(path=path, error=type(error).__name__)
            raise ExecutorError(text) from error
        # The output of scontrol is accepted as well as a bare token.
        return token.removeprefix("SLURM_JWT=")

    def _claims(self, token: str) -> _TokenClaims:
        match = _TOKEN.fullmatch(token)
        try:
            if match is None:
                raise ValueError("not a JSON web token")
            payload = match[1] + "=" * (-len(match[1]) % 4)
            return msgspec.json.decode(urlsafe_b64decode(payload), type=_TokenClaims)
        except _NO_JSON:
            # Do not chain the original error, which could show a part of the token.
            text = texts.NO_TOKEN.format(path=self.options.token_file)
            raise ExecutorError(text) from None


class _Connection(http.client.HTTPConnection):
    """A connection whose waits all share one deadline."""

    def __init__(self, options: RestdOptions, until: float) -> None:
        super().__init__("localhost")
        self._options = options
        self._until = until
        self._bare: socket.socket | None = None

    def connect(self) -> None:
        """Connect; without a token, check that the server runs as the portal's own user."""
        scheme, _, path = self._options.url.partition(":")
        is_unix = scheme == "unix"
        url = urlsplit(self._options.url)
        host = {"localhost": "127.0.0.1"}.get(url.hostname or "", url.hostname or "")
        family = socket.AF_UNIX if is_unix else socket.AF_INET6 if ":" in host else socket.AF_INET
        bare = socket.socket(family, socket.SOCK_STREAM)
        self._bare = bare
        self.sock = _BoundedSocket(bare, self._until)
        bare.settimeout(_left(self._until))
        bare.connect(path if is_unix else (host, url.port))
        if not self._options.token_file:
            _check_peer(bare)

    def release(self) -> None:
        """Close the connection, even if the answer was not read completely."""
        self.close()
        if self._bare is not None:
            self._bare.close()


class _BoundedSocket:
    """The part of a socket that http.client needs."""

    def __init__(self, bare: socket.socket, until: float) -> None:
        self._bare = bare
        self._until = until

    def sendall(self, data: bytes) -> None:
        self._bare.settimeout(_left(self._until))
        self._bare.sendall(data)

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_BoundedReader(self._bare, self._until), 64 * 1024)

    def close(self) -> None:
        """Do nothing; `_Connection.release` closes the socket.

        If the end of the connection marks the end of an answer, http.client calls this before it
        reads the body.
        """


class _BoundedReader(io.RawIOBase):
    def __init__(self, bare: socket.socket, until: float) -> None:
        self._bare = bare
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._bare.settimeout(_left(self._until))
        return self._bare.recv_into(buffer)


def _faults(text: str) -> tuple[RestdFault, ...]:
    try:
        return msgspec.json.decode(text, type=RestdAnswer).errors
    except _NO_JSON:
        return ()


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _check_peer(bare: socket.socket) -> None:
    """Check that slurmrestd runs as the portal's user: without a token, jobs belong to its user."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", bare.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if uid != os.geteuid():
        raise ValueError(texts.OTHER_PEER.format(other=uid, user=os.geteuid()))


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError as error:
        raise ExecutorError(texts.NO_OWN_NAME.format(user=os.geteuid())) from error
