"""Code shared by the views of all logs: heads and proofs as JSON, numbers, refusals."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import structlog
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request

from evenshare_core.chain.answers import (
    ConsistencyProof,
    InclusionProof,
    LogHead,
    RecordPage,
    RecordRow,
)
from tenants import transparency
from tenants.api.problems import Problem, bad_field
from tenants.api.resources import Shown, query
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

RECORDS_MAX = 500
NUMBER_MAX = 2**62


FIRST = query("first", "A smaller size of the log.", OpenApiTypes.INT, required=True)
SECOND = query("second", "A larger size of the log.", OpenApiTypes.INT, required=True)
SIZE = query("size", "The size of the head; by default the size of the log.", OpenApiTypes.INT)


class LogView(Shown):
    """A view of a log, for callers who may see the log."""

    # Returns the origin of the log that the URL's parameters select.
    log_of: Callable[..., str]
    # Returns the response for that log.
    read: Callable[[str], msgspec.Struct]

    def show(self, **place: str) -> msgspec.Struct:
        origin = self.log_of(**place)
        with log_scope():
            return self.read(origin)


class LogConsistency(LogView):
    """Prove that the log at size `second` starts with the log at size `first` (RFC 6962)."""

    answer = ConsistencyProof
    parameters = (FIRST, SECOND)

    def read(self, origin: str) -> ConsistencyProof:
        first, second = query_number(self.request, "first"), query_number(self.request, "second")
        _within(transparency.size(origin), "second", second)
        if first > second:
            raise bad_field("first", "is larger than second")
        return ConsistencyProof(_hex(transparency.consistency(origin, first, second)))


def query_number(request: Request, name: str, default: int | None = None) -> int:
    """Return a number of the query, 0 or more.

    Raises:
        Problem: it is invalid, or missing without a default.
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
    """Run code on a transparency log; if it is damaged, refuse the request and record the error.

    Raises:
        Problem: 503 if a key or hashes are missing.
    """
    try:
        with site_scope():
            yield
    except (transparency.LogKeyError, transparency.DamagedLogError) as error:
        log.exception("log.unavailable")
        raise Problem("log_unavailable") from error


def log_head(origin: str) -> LogHead:
    head = transparency.signed_head(origin)
    keys = tuple(transparency.public_keys(origin))
    return LogHead(origin, head.note, head.checkpoint.size, keys)


def record_page(entries: Sequence[transparency.StoredRecord], following: int | None) -> RecordPage:
    rows = tuple(RecordRow(entry.place, entry.record.decode()) for entry in entries)
    return RecordPage(rows, following)


def inclusion(request: Request, origin: str, index: int, field: str) -> InclusionProof:
    """Return the proof of an entry, in the log of the query's `size`.

    Raises:
        Problem: the log has no such size, or the entry is not in it.
    """
    there = transparency.size(origin)
    size = query_number(request, "size", there)
    _within(there, "size", size)
    if index >= size:
        raise bad_field(field, f"is not in the first {size} entries of the log")
    return InclusionProof(index, size, _hex(transparency.inclusion(origin, index, size)))


def _within(there: int, name: str, size: int) -> None:
    if size > there:
        raise bad_field(name, f"exceeds the log, which has {there} entries")


def _hex(path: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(step.hex() for step in path)
