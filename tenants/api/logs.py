"""What the addresses of all logs share: heads and proofs as JSON, numbers, refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import structlog
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from evenshare_core.chain.answers import (
    ConsistencyProof,
    InclusionProof,
    LogHead,
    RecordPage,
    RecordRow,
)
from tenants import transparency
from tenants.answers import plain
from tenants.api.answer_schemas import answer_serializer
from tenants.api.problems import Problem, bad_field
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
RECORDS = {200: answer_serializer(RecordPage)}
INCLUSION = {200: answer_serializer(InclusionProof)}
CONSISTENCY = {200: answer_serializer(ConsistencyProof)}


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


def log_head(origin: str) -> LogHead:
    """Return a log's signed head."""
    head = transparency.signed_head(origin)
    keys = tuple(transparency.public_keys(origin))
    return LogHead(origin, head.note, head.checkpoint.size, keys)


def records_answer(entries: Sequence[transparency.StoredRecord], following: int | None) -> Response:
    """Answer entries as a page."""
    rows = tuple(RecordRow(entry.place, entry.record.decode()) for entry in entries)
    return Response(plain(RecordPage(rows, following)))


def inclusion_answer(request: Request, origin: str, index: int, field: str) -> Response:
    """Answer the proof of an entry, in the log of the query's `size`.

    Raises:
        Problem: the log has no such size, or the entry is not in it.
    """
    size = _size(request, origin)
    if index >= size:
        raise bad_field(field, f"is not in the first {size} entries of the log")
    path = transparency.inclusion(origin, index, size)
    return Response(plain(InclusionProof(index, size, _hex(path))))


def consistency_answer(request: Request, origin: str) -> Response:
    """Answer the proof that the log of `second` entries begins with that of `first`.

    Raises:
        Problem: the log has no such sizes.
    """
    first, second = query_number(request, "first"), query_number(request, "second")
    _in_log("second", second, transparency.size(origin))
    if first > second:
        raise bad_field("first", "is larger than second")
    path = transparency.consistency(origin, first, second)
    return Response(plain(ConsistencyProof(_hex(path))))


def _hex(path: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(step.hex() for step in path)


def _size(request: Request, origin: str) -> int:
    there = transparency.size(origin)
    size = query_number(request, "size", there)
    _in_log("size", size, there)
    return size


def _in_log(name: str, size: int, there: int) -> None:
    if size > there:
        raise bad_field(name, f"is beyond the log, which has {there} entries")
