"""What the addresses of all logs share: heads and proofs as JSON, numbers, refusals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers as s
from rest_framework.request import Request

from tenants import transparency
from tenants.api.problems import Problem, bad_field
from tenants.api.times import time_text
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

RECORDS_MAX = 500
NUMBER_MAX = 2**62


def number_parameter(name: str, about: str, *, required: bool = False) -> OpenApiParameter:
    """Return the description of a number in the query."""
    return OpenApiParameter(
        name, OpenApiTypes.INT, OpenApiParameter.QUERY, description=about, required=required
    )


FIRST = number_parameter("first", "A smaller size of the log.", required=True)
SECOND = number_parameter("second", "A larger size of the log.", required=True)
SIZE = number_parameter("size", "The size of the head; by default as the log is.")


class LogKeyRow(s.Serializer[object]):
    """A public key: what its signatures are checked with, and when it signs, in real time."""

    vkey = s.CharField(help_text="C2SP's form of a key: name, id, Ed25519 key in base64.")
    since = s.DateTimeField()
    until = s.DateTimeField(allow_null=True)


class LogHead(s.Serializer[object]):
    """The signed head of a log."""

    log = s.CharField(help_text="Its origin, the first line of the checkpoint.")
    checkpoint = s.CharField(help_text="A C2SP tlog-checkpoint: origin, size, root, signatures.")
    size = s.IntegerField()
    keys = LogKeyRow(many=True)


class RecordRow(s.Serializer[object]):
    """An entry of a log; the leaf is hashed over the bytes of `record`."""

    index = s.IntegerField()
    record = s.CharField(help_text="Canonical JSON, as it was hashed.")


class RecordPage(s.Serializer[object]):
    """Entries of a log in their order; `next`: where the next ones begin, null at the end."""

    results = RecordRow(many=True)
    next = s.IntegerField(allow_null=True)


class InclusionProof(s.Serializer[object]):
    """An audit path of RFC 6962: that an entry is in the log of a size."""

    index = s.IntegerField()
    size = s.IntegerField()
    path = s.ListField(child=s.CharField())


class ConsistencyProof(s.Serializer[object]):
    """A consistency proof of RFC 6962: that a log begins with what it was."""

    path = s.ListField(child=s.CharField())


def query_number(request: Request, name: str, default: int | None = None) -> int:
    """Return a number from 0 on of the query.

    Raises:
        Problem: it is none, or it is missing and there is no default.
    """
    raw = request.query_params.get(name, "")
    if not raw and default is not None:
        return default
    if not raw:
        raise bad_field(name, "is required")
    if not (raw.isascii() and raw.isdecimal()) or len(raw) > 18:
        raise bad_field(name, "must be a whole number from 0 on")
    return int(raw)


@contextmanager
def log_scope() -> Iterator[None]:
    """Read a log; what is wrong with it is a refusal, and a line in the portal's own log.

    Raises:
        Problem: 503 where a key or hashes are not there.
    """
    try:
        with site_scope():
            yield
    except (transparency.LogKeyError, transparency.DamagedLogError) as error:
        log.exception("log.unavailable")
        raise Problem("log_unavailable") from error


def head_json(origin: str) -> dict[str, Any]:
    """Return a log's head."""
    head = transparency.signed_head(origin)
    return {
        "log": origin,
        "checkpoint": head.note,
        "size": head.checkpoint.size,
        "keys": [
            {
                "vkey": key.vkey,
                "since": time_text(key.since),
                "until": time_text(key.until) if key.until else None,
            }
            for key in transparency.public_keys(origin)
        ],
    }


def records_json(
    entries: Sequence[transparency.StoredRecord], following: int | None
) -> dict[str, Any]:
    """Return entries as a page."""
    rows = [{"index": entry.place, "record": entry.record.decode()} for entry in entries]
    return {"results": rows, "next": following}


def inclusion_json(request: Request, origin: str, index: int, field: str) -> dict[str, Any]:
    """Return the proof of an entry, in the log of the query's `size`.

    Raises:
        Problem: the log has no such size, or the entry is not in it.
    """
    size = _size(request, origin)
    if index >= size:
        raise bad_field(field, f"is not in the first {size} entries of the log")
    path = transparency.inclusion(origin, index, size)
    return {"index": index, "size": size, "path": [step.hex() for step in path]}


def consistency_json(request: Request, origin: str) -> dict[str, Any]:
    """Return the proof that the log of `second` entries begins with that of `first`.

    Raises:
        Problem: the log has no such sizes.
    """
    first, second = query_number(request, "first"), query_number(request, "second")
    _in_log("second", second, transparency.size(origin))
    if first > second:
        raise bad_field("first", "is larger than second")
    path = transparency.consistency(origin, first, second)
    return {"path": [step.hex() for step in path]}


def _size(request: Request, origin: str) -> int:
    there = transparency.size(origin)
    size = query_number(request, "size", there)
    _in_log("size", size, there)
    return size


def _in_log(name: str, size: int, there: int) -> None:
    if size > there:
        raise bad_field(name, f"is beyond the log, which has {there} entries")
