"""The stored bytes of rounds; errors are raised if they differ from what was written.

A round's row has the hashes of its bytes, and a seal over itself (docs/adr/0132). Bytes are
compared with their hash before they are decoded. They are in the database for a week, and then in
files (`scheduling.selectors.rounds.files`).
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import Annotated, TypeVar

import msgspec
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.expressions import RawSQL

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import Value, decode, sha256_hex
from scheduling.models import Round, RoundArchive, RoundBlob
from scheduling.selectors.rounds import files as round_files
from scheduling.selectors.rounds.files import ArchiveError, archive_of, is_dropped, read_part
from scheduling.selectors.stored_texts import DAMAGED, NOT_KEPT
from tenants.answers import Answer, one_of
from tenants.sql import fetch_rows

# Partitions of whole days are dropped when they are older than seven days. The database's date may
# be a day later than the date of the round's decision.
MISSING = "is missing, though it should be kept"
SURELY_KEPT_DAYS = 6
_ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS
ROW, SNAPSHOT, DECISION, STATE = "row", "snapshot", "decision", "state"
BUNDLE = "bundle"

ValueT = TypeVar("ValueT", bound=Value)


class ReplayError(Exception):
    """The round cannot be replayed: it is unknown, or its bytes are no longer kept."""


_HASHES = {"expected": "expected_sha256", "actual": "actual_sha256"}


class Damage(Answer, frozen=True, rename=_HASHES):
    """A part of a stored round that differs from what was written; unknown hashes are ""."""

    COMPONENT = "RoundDamage"

    part: Annotated[str, one_of("row", "snapshot", "decision", "state")]
    why: str
    expected: str = ""
    actual: str = ""

    def __str__(self) -> str:
        hashes = f" (sha256 expected {self.expected}, found {self.actual or 'none'})"
        return f"its {self.part} {self.why}{hashes if self.expected else ''}"


class DamagedRoundError(ReplayError):
    """The stored data of a round differs from what was written."""

    def __init__(self, number: int, damages: Iterable[Damage]) -> None:
        self.damages = tuple(damages)
        super().__init__(DAMAGED.format(number=number, damages="; ".join(map(str, self.damages))))


def with_seals(rounds: QuerySet[Round]) -> QuerySet[Round]:
    """Annotate each round with `sealed`: whether its row still matches its seal."""
    is_sealed = RawSQL("scheduling_round.seal = scheduling_round_seal(scheduling_round)", [])
    return rounds.annotate(sealed=is_sealed)


def kept_rounds(rounds: QuerySet[Round], *, in_files: bool = False) -> QuerySet[Round]:
    """Return the rounds whose bytes should be in the database, or with `in_files` also in files."""
    blobs = RoundBlob.objects.filter(pool_id=OuterRef("pool_id"), number=OuterRef("number"))
    recent = Q(wall_at__gte=RawSQL("current_date - %s", [SURELY_KEPT_DAYS]))
    has_hash = ~Q(snapshot_sha256="")
    kept = Q(recent & has_hash) | Q(Exists(blobs))
    if in_files:
        filed = RoundArchive.objects.filter(
            pool_id=OuterRef("pool_id"),
            first__lte=OuterRef("number"),
            last__gte=OuterRef("number"),
            dropped_at=None,
        )
        kept |= Q(Exists(filed)) & has_hash
    return rounds.filter(kept)


def row_damages(round_: Round) -> tuple[Damage, ...]:
    """Return what is wrong with a round's row, if anything; the round must be read `with_seals`."""
    if getattr(round_, "sealed", True):
        return ()
    return (Damage(ROW, "was changed after it was written"),)


def round_bytes(round_: Round) -> tuple[bytes, bytes]:
    """Return the canonical bytes (snapshot, decision) that were stored with a round.

    Raises:
        ReplayError: the bytes are no longer kept.
        DamagedRoundError: the bytes differ from what was stored.
    """
    damages: list[Damage] = []
    for blob in _blobs(round_):
        damages = []
        snapshot = _unpack(SNAPSHOT, bytes(blob.snapshot), round_.snapshot_sha256, damages)
        decision = _unpack(DECISION, bytes(blob.decision), round_.decision_sha256, damages)
        if not damages:
            return snapshot, decision
    if not damages and (archive := archive_of(round_.pool_id, round_.number)):
        return _filed_bytes(round_, archive)
    if not damages and (is_dropped(round_.pool_id, round_.number) or not _surely_kept(round_)):
        raise ReplayError(NOT_KEPT.format(number=round_.number))
    raise DamagedRoundError(round_.number, damages or _missing(round_))


def _blobs(round_: Round) -> Iterator[RoundBlob]:
    """Yield the stored blobs of the round's number, first the blobs of the round's own day.

    The day is looked up in an index first, which normally suffices.
    """
    blobs = RoundBlob.objects.filter(pool_id=round_.pool_id, number=round_.number)
    yield from blobs.filter(day=round_.wall_at.date())
    yield from blobs.exclude(day=round_.wall_at.date()).order_by("day")


def _filed_bytes(round_: Round, archive: RoundArchive) -> tuple[bytes, bytes]:
    """Return the bytes in the file of the round's day; a damaged file counts as a damaged round."""
    damages: list[Damage] = []
    parts = (
        (SNAPSHOT, round_files.SNAPSHOT, round_.snapshot_sha256),
        (DECISION, round_files.DECISION, round_.decision_sha256),
    )
    read = []
    for part, name, expected in parts:
        try:
            packed = read_part(archive, round_.number, name)
        except ArchiveError as error:
            damages.append(Damage(part, str(error), expected))
            continue
        read.append(_unpack(part, packed, expected, damages, f", in the file {archive.name}"))
    if damages:
        raise DamagedRoundError(round_.number, damages)
    return read[0], read[1]


def round_values(round_: Round) -> tuple[Snapshot, Decision]:
    """Return the stored snapshot and decision of a round.

    Raises:
        ReplayError: the bytes are no longer kept, or have another schema.
        DamagedRoundError: the bytes differ from what was stored.
    """
    return decode_round(round_, round_bytes(round_))


def decode_round(round_: Round, raw: tuple[bytes, bytes]) -> tuple[Snapshot, Decision]:
    """Decode the bytes of a round.

    Raises:
        ReplayError: the bytes have another schema.
    """
    return _read(round_, raw[0], Snapshot), _read(round_, raw[1], Decision)


def round_decision(round_: Round) -> Decision:
    """Return the stored decision of a round.

    Raises:
        ReplayError, DamagedRoundError: as for `round_values`.
    """
    return _read(round_, round_bytes(round_)[1], Decision)


def byte_damages(round_: Round) -> tuple[Damage, ...]:
    """Return what is wrong with a round's bytes; empty if they are intact or no longer kept."""
    try:
        round_bytes(round_)
    except DamagedRoundError as error:
        return error.damages
    except ReplayError:
        pass
    return ()


def _unpack(
    part: str, packed: bytes, expected: str, damages: list[Damage], where: str = ""
) -> bytes:
    """Return a part's decompressed bytes; if damaged, append a `Damage` that ends in `where`."""
    data = unpacked(packed)
    if data is None:
        why = f"cannot be unpacked from the {len(packed):,} bytes that are there{where}"
        damages.append(Damage(part, why, expected, sha256_hex(packed)))
        return b""
    if sha256_hex(data) != expected:
        why = f"differs from the stored bytes{where}"
        damages.append(Damage(part, why, expected, sha256_hex(data)))
    return data


def packed_damage(part: str, packed: bytes, expected: str, where: str = "") -> Damage | None:
    """Return what is wrong with a compressed (zlib or gzip) part; None if it is intact."""
    damages: list[Damage] = []
    _unpack(part, packed, expected, damages, where)
    return damages[0] if damages else None


def unpacked(packed: bytes) -> bytes | None:
    """Return the decompressed bytes, or None if `packed` is not one complete stream."""
    unpacking = zlib.decompressobj(_ZLIB_OR_GZIP)
    try:
        data = unpacking.decompress(packed)
    except zlib.error:
        return None
    return data if unpacking.eof and not unpacking.unused_data else None


def _missing(round_: Round) -> list[Damage]:
    return [
        Damage(SNAPSHOT, MISSING, round_.snapshot_sha256),
        Damage(DECISION, MISSING, round_.decision_sha256),
    ]


def _surely_kept(round_: Round) -> bool:
    if not round_.snapshot_sha256:
        return False
    query = "SELECT %s >= current_date - %s"
    ((is_kept,),) = fetch_rows(query, [round_.wall_at, SURELY_KEPT_DAYS])
    return bool(is_kept)


def _read(round_: Round, data: bytes, value_type: type[ValueT]) -> ValueT:
    try:
        return decode(data, value_type)
    except msgspec.DecodeError as error:
        name = value_type.__name__.lower()
        raise ReplayError(
            f"the {name} of round {round_.number} cannot be read: it is of another schema ({error})"
        ) from error
