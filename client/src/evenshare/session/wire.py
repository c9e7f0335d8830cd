"""WebSocket frames (RFC 6455), as far as a terminal needs them."""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from typing import NamedTuple

CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
# Longer messages are refused; terminals send far shorter ones.
MESSAGE_MAX = 2**20
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class WireError(Exception):
    """The other side broke the protocol."""


class Frame(NamedTuple):
    """A whole message, or a control frame."""

    kind: int
    body: bytes


def accept_key(key: str) -> str:
    """Return the server's answer to a client's key."""
    digest = hashlib.sha1((key + _GUID).encode(), usedforsecurity=False)
    return base64.b64encode(digest.digest()).decode()


def encode(kind: int, body: bytes = b"", *, is_masked: bool = False) -> bytes:
    """Return a frame. Clients must mask theirs."""
    size, mark = len(body), 0x80 if is_masked else 0
    if size < 126:
        head = struct.pack("!BB", 0x80 | kind, mark | size)
    elif size < 2**16:
        head = struct.pack("!BBH", 0x80 | kind, mark | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | kind, mark | 127, size)
    if not is_masked:
        return head + body
    key = os.urandom(4)
    return head + key + _masked(body, key)


class FrameReader:
    """Turns received bytes into messages; `takes_masked`: on the server's side."""

    def __init__(self, *, takes_masked: bool) -> None:
        self._takes_masked = takes_masked
        self._bytes = bytearray()
        self._kind = CONTINUED
        self._parts = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the messages that are complete now. Raises WireError."""
        self._bytes += data
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def _next(self) -> Frame | None:
        while (piece := self._piece()) is not None:
            is_last, kind, body = piece
            if kind >= CLOSE:
                if not is_last or len(body) > 125:
                    raise WireError("a control frame is split or too long")
                return Frame(kind, body)
            if (kind == CONTINUED) == (self._kind == CONTINUED):
                raise WireError("a message is continued that was not started, or the reverse")
            self._kind = kind or self._kind
            self._parts += body
            if len(self._parts) > MESSAGE_MAX:
                raise WireError("a message is too long")
            if is_last:
                frame = Frame(self._kind, bytes(self._parts))
                self._kind, self._parts = CONTINUED, bytearray()
                return frame
        return None

    def _piece(self) -> tuple[bool, int, bytes] | None:
        """Return the next frame as it was sent, or None until all its bytes are here."""
        have = self._bytes
        if len(have) < 2:
            return None
        first, second = have[0], have[1]
        if first & 0x70 or bool(second & 0x80) != self._takes_masked:
            raise WireError("a frame has unknown bits, or a wrong mask")
        size, at = second & 0x7F, 2
        if size > 125:
            width = 2 if size == 126 else 8
            if len(have) < at + width:
                return None
            size, at = int.from_bytes(have[at : at + width], "big"), at + width
        if size > MESSAGE_MAX:
            raise WireError("a frame is too long")
        end = at + (4 if self._takes_masked else 0) + size
        if len(have) < end:
            return None
        key, body = bytes(have[at : end - size]), bytes(have[end - size : end])
        del have[:end]
        return bool(first & 0x80), first & 0x0F, _masked(body, key) if key else body


def _masked(body: bytes, key: bytes) -> bytes:
    if not body:
        return b""
    mask = (key * (len(body) // 4 + 1))[: len(body)]
    mixed = int.from_bytes(body, "big") ^ int.from_bytes(mask, "big")
    return mixed.to_bytes(len(body), "big")
