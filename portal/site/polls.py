"""The polls of open pages, answered before Django: from the board, without a connection.

Only polls that Django would answer with 200 or 304 are answered here. All others (an unknown
session, another pool, another method or header) go on to Django, which gives the reason. Django's
first response to a poll provides the headers of all that follow.
"""

import gzip
import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple

import structlog
from django.conf import settings
from django.http import parse_cookie
from django.template.loader import render_to_string
from django.urls import resolve, reverse
from django.urls.converters import SlugConverter

from portal.site.board import POOLS, VISITOR, PollBoard
from portal.site.context import line_of
from portal.site.etags import is_known
from portal.site.metrics import poll_count
from portal.site.request_id import HEADER, sane_request_id
from scheduling.selectors.pools.lines import PoolFacts

log = structlog.get_logger("portal.site.access")

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

ENVELOPES = 16
SESSION_LENGTH = 32
POOL_NAME = re.compile(SlugConverter.regex)
BODY = frozenset({b"content-length", b"transfer-encoding"})
# Headers that differ in each response, or are left out.
OWN = frozenset(
    {b"etag", b"content-length", b"content-encoding", b"set-cookie", HEADER.lower().encode()}
)


class Envelope(NamedTuple):
    """The parts of a request by which Django decides whether to serve it, and its headers."""

    scheme: str
    host: bytes
    proto: bytes


@dataclass(frozen=True, slots=True)
class Poll:
    """A request for a line, as far as it can be recognised before Django."""

    pool: str
    session: str
    etags: str
    gzip: bool
    request_id: str
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class SentLine:
    """A line as sent within one wall second."""

    key: tuple[Any, ...]
    etag: str
    body: bytes
    packed: bytes


class Polls:
    """Answers polls; Django answers all other requests."""

    def __init__(self, board: PollBoard | None = None) -> None:
        self.board = board or PollBoard()
        self._headers: dict[Envelope, Headers] = {}
        self._lines: dict[str, SentLine] = {}
        # A URL as Django writes it, split at the pool's name.
        self._before, _, self._after = reverse("round-line", args=["NAME"]).partition("NAME")
        self._route = f"/{resolve(reverse('round-line', args=['NAME'])).route}"

    def poll(self, scope: MutableMapping[str, Any]) -> Poll | None:
        """Return the poll of a request, or None if it is not a plain poll."""
        path = str(scope["path"])
        if scope["method"] != "GET" or not path.startswith(self._before):
            return None
        name, end, rest = path[len(self._before) :].partition(self._after)
        if not end or rest or not POOL_NAME.fullmatch(name) or scope.get("query_string"):
            return None
        headers = _folded(scope["headers"])
        if headers is None or not headers.keys().isdisjoint(BODY):
            return None
        session = _session(headers.get(b"cookie", b""))
        if session is None:
            return None
        return Poll(
            pool=name,
            session=session,
            etags=headers.get(b"if-none-match", b"").decode("latin-1"),
            gzip=b"gzip" in headers.get(b"accept-encoding", b""),
            request_id=sane_request_id(headers.get(HEADER.lower().encode(), b"").decode("latin-1")),
            envelope=Envelope(
                str(scope.get("scheme", "")),
                headers.get(b"host", b""),
                headers.get(b"x-forwarded-proto", b""),
            ),
        )

    async def answered(self, poll: Poll, send: Send) -> bool:
        """Answer a poll if possible; return whether it was."""
        begun = time.perf_counter()
        headers = self._headers.get(poll.envelope)
        if headers is None:
            return False
        facts = await self.board.facts(poll.pool, poll.session)
        if facts is None:
            return False
        line = self._line(facts)
        same = is_known(line.etag, poll.etags)
        status = HTTPStatus.NOT_MODIFIED if same else HTTPStatus.OK
        body = b"" if same else line.packed if poll.gzip else line.body
        own = [(b"etag", line.etag.encode()), (HEADER.lower().encode(), poll.request_id.encode())]
        if not same:
            own.append((b"content-length", str(len(body)).encode()))
            own += [(b"content-encoding", b"gzip")] if poll.gzip else []
        kept = [pair for pair in headers if not (same and pair[0] == b"content-type")]
        await send({"type": "http.response.start", "status": int(status), "headers": kept + own})
        await send({"type": "http.response.body", "body": body})
        seconds = time.perf_counter() - begun
        poll_count(self._route, int(status), seconds)
        log.debug(
            "http.request",
            method="GET",
            path=f"{self._before}{poll.pool}{self._after}",
            route=self._route,
            status=int(status),
            ms=round(seconds * 1000, 1),
            request_id=poll.request_id,
        )
        return True

    def learning(self, poll: Poll, send: Send) -> Send:
        """Return a `send` that stores the headers of Django's response, if it was the line."""

        async def keep(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK:
                if len(self._headers) >= ENVELOPES:
                    self._headers.clear()
                self._headers[poll.envelope] = [
                    (name.lower(), value)
                    for name, value in message["headers"]
                    if name.lower() not in OWN
                ]
            await send(message)

        return keep

    def _line(self, facts: PoolFacts) -> SentLine:
        """Return the line of this second, rendered once for all polls."""
        key = _said(facts)
        known = self._lines.get(facts.name)
        if known is not None and known.key == key:
            return known
        shown = line_of(facts)
        body = render_to_string("components/round_line.html", {"round_line": shown}).encode()
        line = SentLine(key, shown.etag, body, gzip.compress(body, 6, mtime=0))
        if len(self._lines) >= POOLS and facts.name not in self._lines:
            self._lines.clear()
        self._lines[facts.name] = line
        return line


def _said(facts: PoolFacts) -> tuple[Any, ...]:
    """Return everything on which a line depends; its time is a whole wall second."""
    clock = facts.clock
    return (
        int(facts.wall.timestamp()),
        *(clock.anchor_wall, clock.anchor_pool, clock.scale, clock.paused),
        *(facts.id, facts.name, facts.policy, facts.round_s, facts.checked_at, facts.number),
        *(facts.at, facts.wall_at, facts.nodes, facts.gpus, facts.cpus_only),
    )


def _session(cookies: bytes) -> str | None:
    """Return the request's session; `VISITOR` without one, None if it cannot be ours."""
    key = parse_cookie(cookies.decode("latin-1")).get(settings.SESSION_COOKIE_NAME)
    if key is None:
        return None if settings.PRODUCTION else VISITOR
    return key if len(key) == SESSION_LENGTH and key.isascii() and key.isalnum() else None


def _folded(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes] | None:
    """Return headers by name, or None if one is repeated, which Django must handle."""
    headers: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name.lower() in headers:
            return None
        headers[name.lower()] = value
    return headers
