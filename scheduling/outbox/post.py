"""Sends one POST to a checked address, without redirects and without a second look-up.

The host's name is resolved once, within the time limit. The connection goes to an address that was
checked, so a changed answer of the name server cannot redirect it. TLS still checks the certificate
against the name. Proxies in the environment are not used.
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from http.client import HTTPConnection, HTTPException
from queue import Empty, SimpleQueue
from threading import Thread, Timer

from scheduling.outbox.targets import (
    Target,
    TargetRefusedError,
    TargetRules,
    allowed_addresses,
    read_target,
    resolve,
)

TIMEOUT_S = 5.0
RESPONSE_BYTES = 64 * 1024
SHOWN_BYTES = 200
_CHUNK = 4096

Resolve = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of an attempt: the status and start of the answer, or an error."""

    status: int | None = None
    start: str = ""
    error: str = ""

    @property
    def is_ok(self) -> bool:
        return self.status is not None and not self.error


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    rules: TargetRules,
    *,
    look_up: Resolve = resolve,
    context: ssl.SSLContext | None = None,
) -> Receipt:
    """Send a body; return the reply. Errors of the network and refusals are replies, too."""
    until = time.monotonic() + TIMEOUT_S
    try:
        target = read_target(url, rules)
        addresses = allowed_addresses(target, rules, partial(_in_time, look_up, until))
        plain = _connected(addresses, target.port, until)
        with contextlib.closing(plain), _cut_at(plain, until):
            return _exchange(plain, target, body, headers, context or _tls())
    except TargetRefusedError as error:
        return Receipt(error=str(error))
    except TimeoutError:
        return Receipt(error=f"No answer within {TIMEOUT_S:.0f} s.")
    except ssl.SSLCertVerificationError:
        return Receipt(error="The certificate is not valid for the host.")
    except (OSError, HTTPException, ValueError) as error:
        if time.monotonic() >= until:
            return Receipt(error=f"No answer within {TIMEOUT_S:.0f} s.")
        return Receipt(error=f"The connection failed: {type(error).__name__}.")


def _in_time(look_up: Resolve, until: float, host: str, port: int) -> Sequence[str]:
    """Look a host up in another thread, because the C library's look-up has no time limit.

    Raises:
        TimeoutError: it takes too long. The thread ends with the look-up, or with the process.
    """
    results: SimpleQueue[Sequence[str]] = SimpleQueue()
    Thread(target=lambda: results.put(look_up(host, port)), daemon=True).start()
    try:
        return results.get(timeout=max(0.0, until - time.monotonic()))
    except Empty:
        raise TimeoutError from None


def _connected(addresses: Sequence[str], port: int, until: float) -> socket.socket:
    """Connect to the first address that answers."""
    failure: OSError = TimeoutError()
    for address in addresses:
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            return socket.create_connection((address, port), timeout=left)
        except OSError as error:
            failure = error
    raise failure


@contextlib.contextmanager
def _cut_at(plain: socket.socket, until: float) -> Iterator[None]:
    """Cut the connection at a time, even if the receiver keeps sending a byte now and then."""
    duplicate = plain.dup()

    def cut() -> None:
        with contextlib.suppress(OSError):
            duplicate.shutdown(socket.SHUT_RDWR)

    timer = Timer(max(0.0, until - time.monotonic()), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        duplicate.close()


def _exchange(
    plain: socket.socket,
    target: Target,
    body: bytes,
    headers: Mapping[str, str],
    context: ssl.SSLContext,
) -> Receipt:
    connection = HTTPConnection(target.host, target.port, timeout=TIMEOUT_S)
    if target.is_tls:
        connection.sock = context.wrap_socket(plain, server_hostname=target.host.rstrip("."))
        connection.default_port = 443
    else:
        connection.sock = plain
    connection.auto_open = 0  # a closed connection must not be opened again by its name
    try:
        connection.request("POST", target.path, body, {"Connection": "close", **headers})
        response = connection.getresponse()
        start = _read(response.read1)
        status = response.status
    finally:
        connection.close()
    if 300 <= status < 400:
        return Receipt(status, start, "The receiver redirects, which is not followed.")
    if not 200 <= status < 300:
        return Receipt(status, start, f"The receiver answered {status}.")
    return Receipt(status, start)


def _read(read1: Callable[[int], bytes]) -> str:
    """Read at most `RESPONSE_BYTES`; return the start as text."""
    read, start = 0, b""
    while read < RESPONSE_BYTES:
        chunk = read1(_CHUNK)
        if not chunk:
            break
        read += len(chunk)
        start = (start + chunk)[: SHOWN_BYTES * 4]
    text = start.decode("utf-8", "replace")
    return "".join(char if char.isprintable() else " " for char in text)[:SHOWN_BYTES]


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
