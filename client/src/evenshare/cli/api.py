"""Calls to the REST API: one token, bounded retries, errors as problem+json."""

from __future__ import annotations

import http.client
import json
import random
import re
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from evenshare import __version__
from evenshare.errors import ApiError, UnreachableError, refusal

from .config import Server

NO_PORTAL = "unexpected answer: not an Evenshare portal"
TIMEOUT_S = 30.0
# Seconds between attempts; a restarting portal is available again within seconds.
PAUSES_S = (0.2, 0.6, 1.5, 3.0)
LONGEST_PAUSE_S = 10.0
PASSING = (429, 502, 503, 504)
LARGEST_BYTES = 32 * 2**20
PAGE = 100
_RANGE = re.compile(r"bytes ([0-9]+)-[0-9]+/([0-9]+)")
PAGES = 100


class ExplainedError(Exception):
    """Raised with `--explain`, after the call was printed instead of sent."""


@dataclass(frozen=True)
class Call:
    """A complete request, as sent and as shown by `--explain`."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Any] | None
    repeatable: bool


class Window(NamedTuple):
    """A part of a file; `version` changes with the file."""

    data: bytes
    total: int
    version: str


@dataclass
class Transport:
    """Requests to one server. If `explain` is set, it receives the calls and nothing is sent."""

    server: Server
    explain: Callable[[Call], None] | None = None
    pause: Callable[[float], None] = time.sleep
    timeout_s: float = TIMEOUT_S
    _opener: urllib.request.OpenerDirector = field(init=False)
    # Of the last response.
    _headers: Mapping[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._opener = urllib.request.build_opener(_NoRedirect)

    def get(self, path: str, **query: object) -> Any:
        given = {key: str(value) for key, value in query.items() if value is not None}
        return self.call("GET", path + (f"?{urlencode(given)}" if given else ""), repeatable=True)

    def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        repeatable: bool = False,
    ) -> Any:
        """Make a POST request. With `key`, a retry returns the result of the first attempt."""
        return self.call("POST", path, body=body, key=key, repeatable=repeatable or bool(key))

    def download(self, path: str, **query: object) -> bytes:
        """Return the response's bytes as the server stores them, sent compressed if possible."""
        given = {key: str(value) for key, value in query.items() if value is not None}
        path += f"?{urlencode(given)}" if given else ""
        call = self._call("GET", path, None, None, repeatable=True)
        call = replace(call, headers={**call.headers, "Accept-Encoding": "gzip"})
        data: bytes = self._tried(call, bytes)
        return data

    def window(self, path: str, offset: int) -> Window:
        """Return a part of a file from `offset`, as long as the server sends at a time.

        Raises ApiError with status 416 if the file ends before `offset`.
        """
        call = self._call("GET", path, None, None, repeatable=True)
        headers = {**call.headers, "Range": f"bytes={offset}-"}
        data: bytes = self._tried(replace(call, headers=headers), bytes)
        match = _RANGE.fullmatch(self._headers.get("Content-Range", ""))
        if match is None or int(match[1]) != offset or not data:
            raise UnreachableError(f"{self.server.url} did not send the requested part")
        return Window(data, int(match[2]), self._headers.get("ETag", ""))

    def pages(self, path: str, limit: int | None, **query: object) -> Iterator[Any]:
        """Yield at most `limit` items of a list, page by page."""
        given: dict[str, object] = {**query, "limit": min(limit or PAGE, PAGE)}
        # `next` is a cursor, or a URL that contains one. Only the query of a URL is used: the token
        # is for one server only.
        left = limit if limit is not None else PAGE * PAGES
        while left > 0:
            page = self.get(path, **given)
            items = page["results"] if isinstance(page, dict) else page
            yield from items[:left]
            left -= len(items)
            following = page.get("next") if isinstance(page, dict) else None
            if not following or not items:
                return
            held = dict(parse_qsl(urlsplit(str(following)).query))
            given = {**given, **(held or {"cursor": following})}

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        key: str | None = None,
        repeatable: bool = False,
    ) -> Any:
        """Return the decoded response.

        Raises ApiError, UnreachableError or ExplainedError.
        """
        return self._tried(self._call(method, path, body, key, repeatable), _decoded)

    def _tried(self, call: Call, read: Callable[[bytes], Any]) -> Any:
        if self.explain is not None:
            self.explain(call)
            raise ExplainedError
        pauses = list(PAUSES_S if call.repeatable else ())
        tried = False
        while True:
            try:
                return self._send(call, read)
            except ApiError as refused:
                wait_s = refused.retry_after_s
                # The client's own first attempt, whose response was cut off, may still be running.
                ours = refused.status == 409 and tried and "Idempotency-Key" in call.headers
                passing = ours or refused.status in PASSING
                if not pauses or not passing or wait_s > LONGEST_PAUSE_S:
                    raise
            except UnreachableError:
                if not pauses:
                    raise
                wait_s = 0.0
            tried = True
            # Clients whose requests failed together must not repeat them together.
            self.pause(wait_s + pauses.pop(0) * random.uniform(0.5, 1.5))  # noqa: S311 - no secret

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        key: str | None,
        repeatable: bool,
    ) -> Call:
        headers = {"Accept": "application/json", "User-Agent": f"evenshare/{__version__}"}
        if self.server.token:
            headers["Authorization"] = f"Bearer {self.server.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        if key:
            headers["Idempotency-Key"] = key
        return Call(method, f"{self.server.url}/api/v1{path}", headers, body, repeatable)

    def _send(self, call: Call, read: Callable[[bytes], Any]) -> Any:
        data = None if call.body is None else json.dumps(call.body).encode()
        if data is None and call.method == "POST":
            data = b""
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked: http or https
            call.url, data=data, headers=dict(call.headers), method=call.method
        )
        try:
            with self._opener.open(request, timeout=self.timeout_s) as answer:
                text = answer.read(LARGEST_BYTES + 1)
                self._headers = answer.headers
                if answer.headers.get("Content-Encoding") == "gzip":
                    text = _unpacked(text)
        except urllib.error.HTTPError as refused:
            _raise_refused(refused)
        except urllib.error.URLError as problem:
            raise UnreachableError(f"{self.server.url} does not answer: {problem.reason}") from None
        except (OSError, http.client.HTTPException) as problem:
            raise UnreachableError(
                f"the connection to {self.server.url} broke: {type(problem).__name__} {problem}"
            ) from None
        except zlib.error:
            raise UnreachableError(
                f"the answer of {self.server.url} is incomplete or damaged"
            ) from None
        if len(text) > LARGEST_BYTES:
            raise UnreachableError(f"the answer of {self.server.url} is too long")
        try:
            return read(text)
        except (ValueError, RecursionError):
            raise UnreachableError(
                f"{self.server.url} is not an Evenshare portal: unexpected answer"
            ) from None


def _decoded(text: bytes) -> Any:
    return json.loads(text) if text.strip() else None


def _unpacked(data: bytes) -> bytes:
    """Decompress a response, but stop just past LARGEST_BYTES, however long the whole text is."""
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
    text = unpack.decompress(data, LARGEST_BYTES + 1)
    if not unpack.eof and len(text) <= LARGEST_BYTES:
        raise zlib.error
    return text


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would send the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _raise_refused(refused: urllib.error.HTTPError) -> NoReturn:
    problem: dict[str, Any] = {"title": refused.reason or "Refused", "status": refused.code}
    try:
        text = refused.read(2**20)
        packed = refused.headers.get("Content-Encoding") == "gzip"
        answer = json.loads(_unpacked(text) if packed else text)
        if isinstance(answer, dict):
            problem.update(answer)
    except (ValueError, RecursionError, OSError, http.client.HTTPException, zlib.error):
        # The body may be a proxy's page; then only the status is reported.
        problem["detail"] = "The answer is not from the portal."
    if 300 <= refused.code < 400:
        where = refused.headers.get("Location", "elsewhere")
        problem["detail"] = f"The server redirects to {where}: give that address to login."
    after = refused.headers.get("Retry-After", "")
    if after.isdecimal():
        problem["retry_after_s"] = int(after)
    raise refusal(refused.code, problem)


def part(text: str) -> str:
    """Return a text as one path segment, with all special characters escaped."""
    return quote(text, safe="")
