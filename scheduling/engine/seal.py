"""Seals rounds: makes each round's bundle, and commits to it in the pool's log.

It runs outside rounds, never in their transactions. Every call seals, in order, the committed
rounds that are not sealed yet. The row of the pool's `RoundSealing` is the lock. Each round gets
one record, even a damaged one, so that a round's number gives the position of its record. Source:
docs/adr/0198-sums-are-history.md.
"""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib import metadata
from platform import python_version
from typing import Any

import msgspec
import structlog
from django.db import connection, transaction
from django.db.models import Max, Min

from evenshare_core.chain.records import SCHEMA, RoundRecord, record_bytes, record_hash
from evenshare_core.disclosure.bundle import (
    BundleError,
    Disclosed,
    ids_of,
    make_bundle,
    read_bundle,
)
from evenshare_core.disclosure.own import own_digest, own_excerpts
from evenshare_core.disclosure.pseudonyms import day_of, own_salt, tenant_key
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import sha256_hex
from evenshare_core.policies.registry import POLICIES
from evenshare_core.verification.following import breaks
from scheduling.engine.clock import wall_now
from scheduling.engine.pseudonyms import day_key, name_rows
from scheduling.models import Pool, Round, RoundBundle, RoundSealing
from scheduling.selectors.jobs.queue_order import KEPT_QUEUES, first_of_queue
from scheduling.selectors.rounds.bundles import packed_bundle
from scheduling.selectors.rounds.stored import (
    DamagedRoundError,
    ReplayError,
    decode_round,
    kept_rounds,
    round_bytes,
    row_damages,
    with_seals,
)
from tenants import transparency
from tenants.faults import fault_point
from tenants.scopes import engine_scope

log = structlog.get_logger(__name__)

# Rounds per transaction. With 10,000 jobs, sealing a round takes 0.4 s, and the same worker runs
# the ticks.
ROUNDS_AT_ONCE = 4
# The gzip level. For 10,000 jobs it takes half as long as level 9, and the result is 3 % larger.
PACKING = 5
# Packages whose versions affect decisions, in addition to the policy's version.
DECIDING = ("evenshare-core", "highspy", "msgspec", "numpy", "ortools")
FAILURE_MAX = 255


class SealingError(Exception):
    """The pool's log and its `RoundSealing` contradict each other; nothing is appended."""


@dataclass
class _Sealed:
    """The result for one round: its record, the findings, and the bundle unless it is damaged."""

    record: RoundRecord
    disclosed: Disclosed | None = None
    findings: list[dict[str, Any]] = field(default_factory=list)
    queue: dict[str, Any] | None = None


def seal_rounds(pool_id: int, *, limit: int = ROUNDS_AT_ONCE) -> int:
    """Seal the next rounds of a pool, in one transaction; return how many.

    Return 0 if all rounds are sealed, if another process is sealing, or if the next round fails.
    The error is stored in the pool's `RoundSealing`, and the next call retries.
    """
    pool = Pool.objects.get(pk=pool_id)
    RoundSealing.objects.get_or_create(pool=pool)
    with engine_scope(pool_id):
        rows = RoundSealing.objects.select_for_update(skip_locked=True)
        sealing = rows.filter(pool=pool).first()
        if sealing is None:
            return 0
        numbers = _unsealed(sealing)[:limit]
        return _Sealer(pool, sealing).seal(numbers) if numbers else 0


def retry_sealing() -> int:
    """Seal the next rounds of every pool, also after failures; return the number of rounds.

    The hourly housekeeping calls it, because a pool whose sealing failed does not retry by itself.
    """
    return sum(seal_rounds(pool_id) for pool_id in Pool.objects.values_list("pk", flat=True))


def _unsealed(sealing: RoundSealing) -> range:
    """Return the rounds after the last sealed one.

    If none is sealed, start at the oldest round with stored bytes.
    """
    rounds = Round.objects.filter(pool_id=sealing.pool_id)
    newest = rounds.aggregate(newest=Max("number"))["newest"] or 0
    if not sealing.first and newest:
        oldest = kept_rounds(rounds).aggregate(oldest=Min("number"))["oldest"]
        sealing.first = oldest or newest + 1
        sealing.number = sealing.first - 1
        sealing.save(update_fields=["first", "number"])
    return range(sealing.number + 1, newest + 1)


@dataclass
class _Sealer:
    """Seals rounds of a pool whose lock the running transaction holds."""

    pool: Pool
    sealing: RoundSealing
    log_name: str = ""
    before: Disclosed | None = None
    queue: dict[str, Any] | None = None

    def seal(self, numbers: range) -> int:
        """Seal these rounds up to the first that fails; return how many."""
        self.log_name = transparency.round_log(self.pool.name)
        with transparency.locked_log(self.log_name) as log_:
            records, failure = self._records(numbers, log_)
            if records:
                fault_point("seal.before_append")
                transparency.append(self.log_name, records, log_.size)
                self.sealing.number = numbers[len(records) - 1]
                self.sealing.sealed_at = wall_now()
                kept = self.sealing.queues[: KEPT_QUEUES - 1]
                self.sealing.queues = [self.queue, *kept] if self.queue else []
        self.sealing.failure = failure
        self.sealing.save()
        fault_point("seal.before_commit")
        return len(records)

    def _records(self, numbers: range, log_: transparency.LogEnd) -> tuple[list[bytes], str]:
        """Return the records of these rounds up to the first that fails, and its error."""
        records: list[bytes] = []
        try:
            self._guard_size(log_.size)
            previous = log_.last
            self.before = _stored(self.pool.pk, numbers[0] - 1)
            for number in numbers:
                with transaction.atomic():
                    sealed = self._seal(number, previous)
                records.append(record_bytes(sealed.record))
                previous = record_hash(records[-1])
                self.before = sealed.disclosed
                self.queue = sealed.queue
                self._note(sealed.findings)
        except Exception as error:
            log.exception("round.unsealed", pool=self.pool.name, round=numbers[len(records)])
            return records, f"{type(error).__name__}: {error}"[:FAILURE_MAX]
        return records, ""

    def _guard_size(self, size: int) -> None:
        """Raise unless the log has one record for each sealed round."""
        expected = self.sealing.number - self.sealing.first + 1
        if size != expected:
            raise SealingError(f"the log has {size} records, and {expected} rounds are sealed")

    def _seal(self, number: int, previous: str) -> _Sealed:
        rounds = with_seals(Round.objects.filter(pool=self.pool, number=number))
        round_ = rounds.first()
        record = RoundRecord(
            schema=SCHEMA,
            log=self.log_name,
            round=number,
            at_us=to_us(round_.at) if round_ else 0,
            previous=previous,
            bundle="",
            own=(),
        )
        if round_ is None:
            return self._damaged(record, f"round {number} is damaged: its row is missing")
        try:
            values = _read(round_)
        except ReplayError as error:
            return self._damaged(record, _damage_text(number, error))
        try:
            return self._disclosed(round_, record, *values)
        except BundleError:
            if not _is_outdated(round_):
                raise
            log.exception("round.undisclosed", pool=self.pool.name, round=number)
            decided = f"{round_.policy} {round_.policy_version}"
            text = f"round {number} cannot be disclosed: it was decided by {decided}, which is gone"
            return self._damaged(record, text)

    def _damaged(self, record: RoundRecord, text: str) -> _Sealed:
        log.error("round.sealed_damaged", pool=self.pool.name, round=record.round, why=text)
        finding = {"number": record.round, "kind": "damage", "text": text}
        return _Sealed(_with(record, damage=text), None, [finding])

    def _disclosed(
        self, round_: Round, record: RoundRecord, snapshot: Snapshot, decision: Decision
    ) -> _Sealed:
        secret = day_key(self.pool.pk, date.fromisoformat(day_of(snapshot.at_us)))
        naming = name_rows(secret, ids_of(snapshot))
        data = make_bundle(
            snapshot,
            decision,
            pool=self.pool.name,
            naming=naming,
            certificate=round_.certificate,
            superseded=round_.superseded,
            versions=versions(),
        )
        disclosed = read_bundle(data)
        own = _own_digests(disclosed, {name: id_ for id_, name in naming.tenants.items()}, secret)
        sha256 = sha256_hex(data)
        _store(round_, sha256, data)
        broken = _breaks(self.before, disclosed)
        findings = [{"number": round_.number, "kind": "break", "text": text} for text in broken]
        if broken:
            log.error("round.breaks", pool=self.pool.name, round=round_.number, why=broken)
        public = _public_breaks(broken, round_.number, self.pool.visibility)
        queue = first_of_queue(snapshot, decision)
        return _Sealed(
            _with(record, bundle=sha256, own=own, breaks=public), disclosed, findings, queue
        )

    def _note(self, findings: Sequence[dict[str, Any]]) -> None:
        """Store findings of rounds, as long as the bytes of these rounds are kept."""
        if not findings:
            return
        rounds = kept_rounds(Round.objects.filter(pool=self.pool))
        oldest = rounds.aggregate(oldest=Min("number"))["oldest"] or 0
        known = [row for row in self.sealing.findings if row["number"] >= oldest]
        self.sealing.findings = [*known, *findings]


def _read(round_: Round) -> tuple[Snapshot, Decision]:
    if damages := row_damages(round_):
        raise DamagedRoundError(round_.number, damages)
    return decode_round(round_, round_bytes(round_))


def _is_outdated(round_: Round) -> bool:
    """Return whether the round's policy is missing here, or has another version."""
    policy = POLICIES.get(round_.policy)
    return policy is None or not policy.decides_as(round_.policy_version)


def _own_digests(
    disclosed: Disclosed, tenants: Mapping[str, int], secret: bytes
) -> tuple[str, ...]:
    """Return the digests of each tenant's excerpt, sorted. `tenants`: ids by pseudonym."""
    digests = []
    for number, excerpt in own_excerpts(disclosed).items():
        key = tenant_key(secret, tenants[disclosed.names.tenants[number - 1]])
        digests.append(own_digest(own_salt(key, disclosed.pool, disclosed.round), excerpt))
    return tuple(sorted(digests))


def _damage_text(number: int, error: ReplayError) -> str:
    """Return a text for the public on a damaged round. A decoder's message could quote a row."""
    if error.__cause__ is not None:
        return f"round {number} cannot be read: its bytes are of another schema"
    return str(error)


def _with(record: RoundRecord, **changes: Any) -> RoundRecord:
    return msgspec.structs.replace(record, **changes)


def _store(round_: Round, sha256: str, data: bytes) -> None:
    """Store a bundle for as long as the bytes of its round are kept."""
    day = round_.wall_at.date()
    with connection.cursor() as cursor:
        cursor.execute("SELECT evenshare_make_bundle_day(%s)", [day])
    packed = gzip.compress(data, PACKING, mtime=0)
    row = RoundBundle(
        day=day, pool_id=round_.pool_id, number=round_.number, sha256=sha256, data=packed
    )
    RoundBundle.objects.bulk_create([row])


def _stored(pool_id: int, number: int) -> Disclosed | None:
    """Return the disclosed form of a sealed round, or None if it is not stored (any more)."""
    try:
        packed = packed_bundle(pool_id, number)
    except DamagedRoundError:
        log.exception("round.before_unreadable", pool=pool_id, round=number)
        return None
    return read_bundle(gzip.decompress(packed)) if packed else None


def _breaks(before: Disclosed | None, after: Disclosed) -> tuple[str, ...]:
    """Return why a round does not follow from the previous one; empty if it does, or if unknown."""
    return breaks(before, after) if before else ()


def _public_breaks(broken: tuple[str, ...], number: int, visibility: str) -> tuple[str, ...]:
    """Return the reasons for all readers, without details if tenants may see only own rows."""
    if not broken or visibility != Pool.Visibility.OWN:
        return broken
    return (f"It does not begin with what round {number - 1} left.",)


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect decisions."""
    return {"python": python_version(), **{name: metadata.version(name) for name in DECIDING}}
