"""Records that the logs of an installation commit to: one for each round and batch of transfers.

A record is canonical JSON: named fields in a fixed order, without spaces.
"""

import hashlib
import re
from typing import TypeVar

import msgspec

from evenshare_core.chain.merkle import leaf_hash

SCHEMA = 1
# The years 1 to 9999 (the range of calendars) in microseconds since 1970.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_HEX = re.compile(r"[0-9a-f]{64}")


class RecordError(ValueError):
    """Bytes are not a valid record; the message has the field and the reason."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field, self.reason = field, reason


class RoundRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The record of a round in a pool's log. `at_us` is pool time.

    - `previous`: the leaf hash of the previous record, hex; "" in the first record.
    - `bundle`: the SHA-256 of the round's bundle, hex; "" if the round is damaged.
    - `own`: the digests of each tenant's own rows of the round, sorted.
    - `breaks`: why the round does not follow from the previous one.
    - `damage`: a description of the round's damage; empty if it is not damaged.
    """

    schema: int
    log: str
    round: int
    at_us: int
    previous: str
    bundle: str
    own: tuple[str, ...]
    breaks: tuple[str, ...] = ()
    damage: str = ""


class LedgerRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The record of transfers posted since the previous record, in a book's log.

    `transfers` has a salted digest of each transfer (`transfer_digest`), so that the log shows
    neither parties nor amounts. `previous` is as in `RoundRecord`. `first` is the number of
    transfers in earlier records, `posted_us` the instant of the last transfer.
    """

    schema: int
    log: str
    first: int
    posted_us: int
    previous: str
    transfers: tuple[str, ...]


class TransferBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data of a transfer that its digest covers.

    `pool` and `tenant` are ids, 0 if there is none. `hour_us` is null if no hour is settled. `data`
    is JSON with sorted keys and no spaces. `entries` are (account id, micro-credits), sorted.
    """

    id: str
    book: str
    code: str
    pool: int
    tenant: int
    hour_us: int | None
    corrects: str
    effective_us: int
    posted_us: int
    data: str
    body_sha256: str
    entries: tuple[tuple[int, int], ...]


RecordT = TypeVar("RecordT", RoundRecord, LedgerRecord)
_encoder = msgspec.json.Encoder()


def record_bytes(record: RoundRecord | LedgerRecord) -> bytes:
    """Return the canonical bytes of a record, which are its entry in the log."""
    return _encoder.encode(record)


def record_hash(data: bytes) -> str:
    """Return a record's leaf hash in hex, which the next record has as `previous`."""
    return leaf_hash(data).hex()


def transfer_digest(salt: bytes, body: TransferBody) -> str:
    """Return the SHA-256 of a salt (32 random bytes) and a transfer, in hex."""
    return hashlib.sha256(salt + _encoder.encode(body)).hexdigest()


def read_record(data: bytes) -> RoundRecord:
    """Decode the record of a round.

    Raises:
        RecordError: the bytes are not a record in canonical form.
    """
    record = _read(data, RoundRecord)
    if record.round < 0:
        raise RecordError("round", f"is {record.round}, below 0")
    if not FIRST_US <= record.at_us <= LAST_US:
        raise RecordError("at_us", f"is {record.at_us}, outside the years 1 to 9999")
    _guard_hash("bundle", record.bundle, may_be_empty=bool(record.damage))
    for digest in record.own:
        _guard_hash("own", digest)
    if list(record.own) != sorted(record.own):
        raise RecordError("own", "is not sorted")
    return record


def read_ledger_record(data: bytes) -> LedgerRecord:
    """Decode the record of a batch of transfers.

    Raises:
        RecordError: the bytes are not a record in canonical form.
    """
    record = _read(data, LedgerRecord)
    if record.first < 0:
        raise RecordError("first", f"is {record.first}, below 0")
    for digest in record.transfers:
        _guard_hash("transfers", digest)
    return record


def read_any_record(data: bytes) -> RoundRecord | LedgerRecord:
    """Decode the record of a round, or of a batch of transfers.

    Raises:
        RecordError: the bytes are neither kind of record.
    """
    if b'"round":' in data[:1000]:
        return read_record(data)
    return read_ledger_record(data)


def _read(data: bytes, kind: type[RecordT]) -> RecordT:
    try:
        record = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError("", f"is no record: {error}") from error
    if record.schema != SCHEMA:
        raise RecordError("schema", f"is {record.schema}; this version reads {SCHEMA}")
    _guard_hash("previous", record.previous, may_be_empty=True)
    if record_bytes(record) != data:
        raise RecordError("", "is not in the canonical form of records")
    return record


def _guard_hash(field: str, value: str, *, may_be_empty: bool = False) -> None:
    if not (may_be_empty and not value) and not _HEX.fullmatch(value):
        raise RecordError(field, f"is not a SHA-256 in hex: {value[:80]!r}")
