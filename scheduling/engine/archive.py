"""Moves the bytes of rounds from the database to files, in whole days after a week (ADR 0204).

Each call compares the days in the database with the files, and works in small transactions. A file
is written, read back and compared; only then its row is inserted. A day leaves the database when
all of it is in files, which `evenshare_drop_archived_day` checks in the database. Interrupted steps
are repeated: a file without a row is overwritten.
"""

import io
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import structlog
from django.core.files.base import ContentFile
from django.db import OperationalError, connection
from psycopg.errors import LockNotAvailable

from evenshare_core.domain.values import canonical_bytes, sha256_hex
from scheduling.engine.clock import wall_now
from scheduling.models import (
    Pool,
    Round,
    RoundArchive,
    RoundArchiving,
    RoundBlob,
    RoundBundle,
    RoundSealing,
    RoundState,
)
from scheduling.selectors.rounds import files as round_files
from scheduling.selectors.rounds.files import round_storage
from scheduling.selectors.rounds.stored import packed_damage
from tenants.faults import fault_point
from tenants.scopes import site_scope
from tenants.sql import fetch_rows

log = structlog.get_logger(__name__)

DATABASE_DAYS = 7
# Limits of one file, which is built and read back in memory within one transaction of some seconds.
# Readers keep its directory in memory.
FILE_ROUNDS, FILE_BYTES = 500, 16 * 2**20
# The time limit of a call, because the same worker also runs the ticks.
ARCHIVE_S = 5.0
# While this transaction waits to drop a partition, writers wait behind it.
LOCK_TIMEOUT = "1s"
FAILURE_MAX = 255
# The two numbers of an advisory lock of PostgreSQL; a pool's log uses another first number.
LOCK = (36, 1)
_STAMP = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that the same bytes give the same file
_STORED = """
SELECT number, array_agg(part), sum(bytes) FROM (
    SELECT number, 'blob' AS part, octet_length(snapshot) + octet_length(decision) AS bytes
    FROM scheduling_roundblob WHERE day = %(day)s AND pool_id = %(pool)s AND number > %(after)s
      AND tableoid <> 'scheduling_roundblob_rest'::regclass
    UNION ALL
    SELECT number, 'bundle', octet_length(data)
    FROM scheduling_roundbundle WHERE day = %(day)s AND pool_id = %(pool)s AND number > %(after)s
      AND tableoid <> 'scheduling_roundbundle_rest'::regclass
    UNION ALL
    SELECT number, 'state', octet_length(service) + octet_length(memory)
    FROM scheduling_roundstate WHERE day = %(day)s AND pool_id = %(pool)s AND number > %(after)s
      AND tableoid <> 'scheduling_roundstate_rest'::regclass
) stored GROUP BY number ORDER BY number LIMIT %(limit)s
"""
_POOLS = """
SELECT pool_id FROM scheduling_roundblob WHERE day = %(day)s
UNION SELECT pool_id FROM scheduling_roundbundle WHERE day = %(day)s
UNION SELECT pool_id FROM scheduling_roundstate WHERE day = %(day)s ORDER BY pool_id
"""


class ArchivingError(Exception):
    """A day cannot be archived, and stays in the database."""


@dataclass
class Archived:
    """The result of one call of `archive_rounds`."""

    files: int = 0
    days: int = 0
    failures: list[str] = field(default_factory=list)


def archive_rounds(*, seconds: float = ARCHIVE_S) -> Archived:
    """Archive days that are old enough, the oldest first, and drop them; stop after `seconds`.

    If a pool's day fails, the error is stored in its `RoundArchiving` and the day stays in the
    database. Other days are archived all the same.
    """
    done = Archived()
    until = time.monotonic() + seconds
    failed: dict[int, str] = {}
    for day in old_days():
        if _archive_day(day, done, failed, until):
            try:
                done.days += drop_day(day)
            except ArchivingError as error:
                log.exception("rounds.day_not_dropped", day=str(day))
                failed |= dict.fromkeys(_pools_of(day), f"{day}: {error}"[:FAILURE_MAX])
        if time.monotonic() > until:
            break
    _note(failed)
    done.failures = list(failed.values())
    if done.files or done.days:
        log.info("rounds.archived", files=done.files, days=done.days)
    return done


def old_days() -> list[date]:
    """Return the days in the database that are due for archiving, the oldest first."""
    return [day for (day,) in fetch_rows("SELECT evenshare_old_round_days(%s)", [DATABASE_DAYS])]


def _archive_day(day: date, done: Archived, failed: dict[int, str], until: float) -> bool:
    """Archive a day of all pools; return whether all of it is archived."""
    whole = True
    for pool in Pool.objects.filter(pk__in=_pools_of(day)).order_by("pk"):
        if pool.pk in failed:
            whole = False
            continue
        try:
            while archive_next(pool, day):
                done.files += 1
                if time.monotonic() > until:
                    return False
        except Exception as error:
            text = str(error) if isinstance(error, ArchivingError) else _summary(error)
            failed[pool.pk] = f"{day}: {text}"[:FAILURE_MAX]
            log.exception("rounds.not_archived", pool=pool.name, day=str(day))
            whole = False
    return whole


def _summary(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _note(failed: Mapping[int, str]) -> None:
    now = wall_now()
    for pool_id in Pool.objects.values_list("pk", flat=True):
        RoundArchiving.objects.update_or_create(
            pool_id=pool_id, defaults={"looked_at": now, "failure": failed.get(pool_id, "")}
        )


def _pools_of(day: date) -> list[int]:
    return [pool for (pool,) in fetch_rows(_POOLS, {"day": day})]


def archive_next(pool: Pool, day: date) -> bool:
    """Archive the next rounds of a pool's day in one file; return whether it archived any.

    Raises:
        ArchivingError: the file differs from the data written, or rounds are not sealed yet.
    """
    with site_scope():
        if not _locked():
            return False
        stored = _next_rounds(pool.pk, day)
        if not stored:
            return False
        _guard_sealed(pool.pk, stored[-1][0])
        members = dict(_members(pool.pk, day, stored))
        first, last = stored[0][0], stored[-1][0]
        name = f"{pool.name}-{pool.pk}/{day}/{first:09d}-{last:09d}.zip"
        data = pack(members)
        _write(name, data)
        fault_point("archive.after_write")
        now = wall_now()
        archive = RoundArchive(
            pool=pool, day=day, name=name, first=first, last=last, members=len(members),
            bytes=len(data), sha256=sha256_hex(data), archived_at=now, checked_at=now,
        )  # fmt: skip # rows of what belongs together
        _compare(archive, members)
        archive.save(force_insert=True)
        fault_point("archive.before_commit")
    return True


def drop_day(day: date) -> bool:
    """Drop a day from the database if all of it is in files; return whether it was dropped.

    It is not dropped while another process archives, or while a long reader (such as a backup)
    holds the tables.

    Raises:
        ArchivingError: a part of the day is in no file.
    """
    try:
        with site_scope():
            if not _locked():
                return False
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
                cursor.execute("SELECT evenshare_drop_archived_day(%s)", [day])
                (dropped,) = cursor.fetchone() or (False,)
            if not dropped:
                raise ArchivingError("part of it is in no complete file")
            fault_point("archive.before_drop")
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            log.info("rounds.day_not_dropped_yet", day=str(day))
            return False
        raise
    return True


def _locked() -> bool:
    """Return whether this transaction got the lock; it is held until the transaction ends."""
    ((is_locked,),) = fetch_rows("SELECT pg_try_advisory_xact_lock(%s, %s)", LOCK)
    return bool(is_locked)


def _next_rounds(pool_id: int, day: date) -> list[tuple[int, frozenset[str]]]:
    """Return the rounds after the last archived one, with their parts, as many as fit in a file."""
    filed = RoundArchive.objects.filter(pool_id=pool_id, day=day)
    after = filed.order_by("-last").values_list("last", flat=True).first()
    last = -1 if after is None else after
    rows = fetch_rows(_STORED, {"day": day, "pool": pool_id, "limit": FILE_ROUNDS, "after": last})
    taken: list[tuple[int, frozenset[str]]] = []
    size = 0
    for number, parts, length in rows:
        size += int(length)
        if taken and size > FILE_BYTES:
            break
        taken.append((number, frozenset(parts)))
    return taken


def _guard_sealed(pool_id: int, number: int) -> None:
    """Refuse unsealed rounds: the files would lack their bundles."""
    sealed = RoundSealing.objects.filter(pool_id=pool_id).values_list("number", flat=True).first()
    if sealed is None or number > sealed:
        raise ArchivingError(f"its rounds are sealed up to {sealed or 0} only, not up to {number}")


def _members(
    pool_id: int, day: date, stored: Iterable[tuple[int, frozenset[str]]]
) -> Iterator[tuple[str, bytes]]:
    """Yield the stored parts of rounds as (name in the file, bytes)."""
    numbers: dict[str, list[int]] = {"blob": [], "bundle": [], "state": []}
    for number, parts in stored:
        for part in parts:
            numbers[part].append(number)
    here = {"pool_id": pool_id, "day": day}
    for blob in RoundBlob.objects.filter(**here, number__in=numbers["blob"]):
        yield f"{blob.number}/{round_files.SNAPSHOT}", bytes(blob.snapshot)
        yield f"{blob.number}/{round_files.DECISION}", bytes(blob.decision)
    for bundle in RoundBundle.objects.filter(**here, number__in=numbers["bundle"]):
        yield f"{bundle.number}/{round_files.BUNDLE}", bytes(bundle.data)
    for state in RoundState.objects.filter(**here, number__in=numbers["state"]):
        row = {
            "at": state.at.isoformat(),
            "policy": state.policy,
            "policy_version": state.policy_version,
            "prices": state.prices,
            "entitled": state.entitled,
        }
        yield f"{state.number}/{round_files.STATE}", canonical_bytes(row)
        yield f"{state.number}/{round_files.SERVICE}", bytes(state.service)
        yield f"{state.number}/{round_files.MEMORY}", bytes(state.memory)


def pack(members: Mapping[str, bytes]) -> bytes:
    """Return an uncompressed zip of parts, which are compressed already."""
    packed = io.BytesIO()
    with ZipFile(packed, "w", ZIP_STORED) as file:
        for name in sorted(members, key=_by_round):
            file.writestr(ZipInfo(name, _STAMP), members[name])
    return packed.getvalue()


def _by_round(name: str) -> tuple[int, str]:
    number, _, part = name.partition("/")
    return int(number), part


def _write(name: str, data: bytes) -> None:
    """Write a file.

    Replace an existing file that has no row: it is incomplete, or belongs to another database.
    """
    storage = round_storage()
    if RoundArchive.objects.filter(name=name).exists():
        raise ArchivingError(f"the file {name} already belongs to another round")
    if storage.exists(name):
        storage.delete(name)
    written = storage.save(name, ContentFile(data))
    if written != name:
        storage.delete(written)
        raise ArchivingError(f"the storage wrote {written} where {name} was to be")


def _compare(archive: RoundArchive, members: Mapping[str, bytes]) -> None:
    """Read a file back, and compare each part with the stored bytes and its round's hashes.

    Parts that were damaged earlier are archived unchanged, so that checks still find the damage.

    Raises:
        ArchivingError: the file differs from the data written.
    """
    data = round_files.read_file(archive)
    if sha256_hex(data) != archive.sha256:
        raise ArchivingError(
            f"the file {archive.name} reads back with other bytes than were written"
        )
    round_files.forget()
    hashes = {
        number: (snapshot, decision)
        for number, snapshot, decision in Round.objects.filter(
            pool_id=archive.pool_id, number__range=(archive.first, archive.last)
        ).values_list("number", "snapshot_sha256", "decision_sha256")
    }
    bundles = dict(
        RoundBundle.objects.filter(
            pool_id=archive.pool_id, day=archive.day, number__range=(archive.first, archive.last)
        ).values_list("number", "sha256")
    )
    damaged = set()
    with ZipFile(io.BytesIO(data)) as file:
        if set(file.namelist()) != set(members):
            raise ArchivingError(f"the file {archive.name} has other parts than were written")
        for name, stored in members.items():
            read = file.read(name)
            number, part = int(name.partition("/")[0]), name.partition("/")[2]
            expected = _expected(part, number, hashes, bundles)
            if read != stored:
                raise ArchivingError(
                    f"{name} in the file {archive.name} differs from the stored bytes"
                )
            if expected is not None and packed_damage(part, read, expected):
                damaged.add(number)
    if damaged:
        log.error("rounds.archived_damaged", file=archive.name, rounds=sorted(damaged)[:10])


def _expected(
    part: str,
    number: int,
    hashes: Mapping[int, tuple[str, str]],
    bundles: Mapping[int, str],
) -> str | None:
    if part == round_files.BUNDLE:
        return bundles.get(number)
    if part in (round_files.SNAPSHOT, round_files.DECISION) and number in hashes:
        return hashes[number][part == round_files.DECISION]
    return None
