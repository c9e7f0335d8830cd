"""The gate between the web server and Django: bodies are limited, and requests wait in lanes.

Django's handler writes a body of any length to a file before it reads the URL, and serves every
request on its own thread. Both are limited here. A refused request still goes through Django,
marked, and `portal.site.guards.Guards` answers it. So its response, its count and its log line are
like all others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from django.conf import settings

from portal.site.lanes import (
    ClientLeftError,
    Lane,
    LaneChooser,
    LaneLimits,
    RequestRefusedError,
    limits_by_lane,
)
from portal.site.polls import Polls
from tenants.addresses import client_prefix

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
# Any, because each library has its own types for these.
App = Callable[[Any, Any, Any], Awaitable[None]]

# Key in the scope of a refused request: the `RequestRefusedError`.
REFUSAL = "evenshare.refusal"
# A body that is too long is read up to here and dropped, so that its sender gets the response.
DRAIN_BYTES = 8 * 2**20
BODY_S = 30.0
REFUSALS_AT_ONCE = 16


class Gate:
    """The ASGI application around Django's; `limits` by lane, by default from the settings."""

    def __init__(self, app: App, limits: Mapping[str, LaneLimits] | None = None) -> None:
        self._app = app
        self._lanes = {name: Lane(one) for name, one in (limits or limits_by_lane()).items()}
        self._refusing = asyncio.Semaphore(REFUSALS_AT_ONCE)
        self._late: set[asyncio.Task[None]] = set()
        # Created at the first request: they need URLs, which Django has loaded by then.
        self._chooser: LaneChooser | None = None
        self._polls: Polls

    def lane(self, name: str) -> Lane:
        return self._lanes[name]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request in its lane, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._chooser is None:
            self._chooser, self._polls = LaneChooser(), Polls()
        poll = self._polls.poll(scope)
        if poll is not None:
            if await self._polls.answered(poll, send):
                return
            send = self._polls.learning(poll, send)
        lane = self._lanes[self._chooser.lane(scope)]
        if lane.limits.answer_s is None:
            await self._serve(lane, scope, receive, send)
        else:
            await self._serve_within(lane.limits.answer_s, lane, scope, receive, send)

    async def _serve_within(
        self, answer_s: float, lane: Lane, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer 503 after `answer_s`; a hanging request keeps its turn until it ends.

        It is not cancelled: a thread that waits for the database cannot be.
        """
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        work = asyncio.ensure_future(self._serve(lane, scope, receive, keep))
        done, _ = await asyncio.wait({work}, timeout=answer_s)
        if not done:
            self._late.add(work)
            work.add_done_callback(self._late.discard)
            await self._refuse(RequestRefusedError(503, "database_unavailable"), scope, send)
            return
        work.result()
        for message in answer:
            await send(message)

    async def _serve(self, lane: Lane, scope: Scope, receive: Receive, send: Send) -> None:
        client = client_prefix((scope.get("client") or ("",))[0])
        try:
            body = await self._body(scope, receive, client)
        except RequestRefusedError as refusal:
            await self._refuse(refusal, scope, send)
            return
        except ClientLeftError:
            return
        # only the disconnect follows the body
        left = asyncio.ensure_future(receive())
        try:
            await lane.enter(client, left)
            try:
                await self._app(scope, _replay(body, left), send)
            finally:
                lane.leave(client)
        except RequestRefusedError as refusal:
            await self._refuse(refusal, scope, send)
        except ClientLeftError:
            return
        finally:
            left.cancel()

    async def _body(self, scope: Scope, receive: Receive, client: str) -> bytes:
        """Read a whole body, of at most `DATA_UPLOAD_MAX_MEMORY_SIZE` bytes.

        Raises:
            RequestRefusedError: it is too long or too slow, or too many bodies come at once.
            ClientLeftError: the client disconnected before the end of the body.
        """
        if _declared(scope) > DRAIN_BYTES:
            raise RequestRefusedError(413, "too_large")
        try:
            async with asyncio.timeout(BODY_S):
                body, more = await _piece(receive)
                if more:
                    lane = self._lanes["bodies"]
                    await lane.enter(client, asyncio.get_running_loop().create_future())
                    try:
                        body = await _rest(body, receive)
                    finally:
                        lane.leave(client)
        except TimeoutError:
            raise RequestRefusedError(408, "too_slow") from None
        if len(body) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise RequestRefusedError(413, "too_large")
        return body

    async def _refuse(self, refusal: RequestRefusedError, scope: Scope, send: Send) -> None:
        """Make Django answer a request without its body."""
        left: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        async with self._refusing:
            await self._app({**scope, REFUSAL: refusal}, _replay(b"", left), send)


async def _rest(body: bytes, receive: Receive) -> bytes:
    """Read the rest of a body. If the body is too long, keep only one byte above the limit."""
    kept, length, more = bytearray(body), len(body), True
    while more:
        part, more = await _piece(receive)
        length += len(part)
        if length > DRAIN_BYTES:
            raise RequestRefusedError(413, "too_large")
        room = settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1 - len(kept)
        kept += part[: max(0, room)]
    return bytes(kept)


async def _piece(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeftError
    return message.get("body", b""), message.get("more_body", False)


def _declared(scope: Scope) -> int:
    """Return the declared length of the body; 0 if there is none."""
    for name, value in scope["headers"]:
        if name.lower() == b"content-length":
            return int(value) if value.isdigit() and len(value) < 19 else DRAIN_BYTES + 1
    return 0


def _replay(body: bytes, left: asyncio.Future[Message]) -> Receive:
    """Return a `receive` for Django: the body in one piece, then the disconnect."""
    bodies = [body]

    async def receive() -> Message:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        return await asyncio.shield(left)

    return receive
