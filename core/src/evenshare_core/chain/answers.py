"""Data of the REST API about a log, which verifiers read back."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct


class LogKeyRow(Struct, frozen=True):
    """A public key that verifies signatures, and the period in which it signs, in real time."""

    vkey: Annotated[str, Meta(description="C2SP's form of a key: name, id, Ed25519 key in base64.")]
    since: datetime
    until: datetime | None


class LogHead(Struct, frozen=True):
    """The signed head of a log."""

    log: Annotated[str, Meta(description="Its origin, the first line of the checkpoint.")]
    checkpoint: Annotated[
        str, Meta(description="A C2SP tlog-checkpoint: origin, size, root, signatures.")
    ]
    size: int
    keys: tuple[LogKeyRow, ...]


class RoundLogHead(LogHead, frozen=True):
    """The signed head of the log of a pool's rounds."""

    round: Annotated[int | None, Meta(description="The last one in it; null: it has none yet.")]


class RecordRow(Struct, frozen=True):
    """An entry of a log; its leaf hash covers the bytes of `record`."""

    index: int
    record: Annotated[str, Meta(description="Canonical JSON, as it was hashed.")]


class RecordPage(Struct, frozen=True):
    """Entries of a log in order; `next` is the index of the next page, null at the end."""

    results: tuple[RecordRow, ...]
    next: int | None


class InclusionProof(Struct, frozen=True):
    """An audit path of RFC 6962, which proves that an entry is in the log of this size."""

    index: int
    size: int
    path: tuple[str, ...]


class ConsistencyProof(Struct, frozen=True):
    """A consistency proof of RFC 6962, which proves that a log extends an earlier one."""

    path: tuple[str, ...]
