"""Verification of consecutive rounds of a pool from files with the portal's answers.

The files have the names that `evenshare round verify --save-dir` gives them. A reader function is
passed in, so this module does not access a disk. The first record is the reference for the second.
It is verified itself only if it is the log's first record, or the only one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar

import msgspec

from evenshare_core.chain.answers import (
    ConsistencyProof,
    InclusionProof,
    RecordRow,
    RoundLogHead,
)
from evenshare_core.chain.merkle import (
    Place,
    ProofError,
    completed,
    leaf_hash,
    root,
    verify_inclusion,
)
from evenshare_core.chain.records import RecordError, RoundRecord, read_record, record_hash
from evenshare_core.disclosure.answers import DayNamesBody
from evenshare_core.disclosure.bundle import BundleError, Disclosed, read_bundle
from evenshare_core.disclosure.pseudonyms import day_of
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.values import sha256_hex
from evenshare_core.verification.certificates import certificate_version
from evenshare_core.verification.excerpts import is_excerpt, verify_excerpts
from evenshare_core.verification.heads import HeadCheck, HeadFinding, Pin, Proof, verify_head
from evenshare_core.verification.names import OwnJob, OwnNames, own_names
from evenshare_core.verification.rounds import (
    NOBODY,
    RoundCheck,
    RoundFinding,
    verify_record,
    verify_round,
)
from evenshare_core.verification.verdict import OVER_LIMIT, Gap

# Returns the bytes of a file by name; None if there is no such file.
Reader = Callable[[str], bytes | None]
VersionOf = Callable[[str], str]
# Recomputes a round; None if it exceeded its time limit.
Bounded = Callable[[Callable[[], RoundFinding]], RoundFinding | None]
RECORD_ALONE = f"{OVER_LIMIT}, only its record was checked"
OTHER_BEFORE = "the bundle of the round before differs from the bundle that its record commits to"


class EvidenceError(ValueError):
    """A required file is missing or invalid; the message names it."""


class ConsistencyAnswer(ConsistencyProof, frozen=True):
    """A consistency proof with both sizes, as `evenshare round verify` keeps it."""

    first: int
    second: int


class OwnJobAnswer(msgspec.Struct, frozen=True):
    """A job of the reader."""

    id: str
    tenant: str
    gpus: int
    submitted_at: datetime
    ended_at: datetime | None = None
    profile: str | None = None
    eligible_at: datetime | None = None


class JobsAnswer(msgspec.Struct, frozen=True):
    """Jobs of the reader; `complete` if these are all of them."""

    jobs: tuple[OwnJobAnswer, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """A record with its place and its bytes."""

    index: int
    data: bytes
    record: RoundRecord


AnswerT = TypeVar("AnswerT")


@dataclass
class RoundHistory:
    """The portal's answers about a pool's log of rounds, read from files."""

    read: Reader
    chain: RoundLogHead = field(init=False)
    entries: tuple[RecordEntry, ...] = field(init=False)
    _days: dict[str, OwnNames] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Read the files that everything else needs.

        Raises:
            EvidenceError: a file is missing or invalid.
        """
        self.chain = self._needed("chain.json", RoundLogHead)
        rows = self._needed("records.json", tuple[RecordRow, ...])
        self.entries = tuple(map(_entry, rows))

    @property
    def log(self) -> str:
        return self.chain.log

    def head(self, pin: Pin | None = None, given: tuple[str, ...] = ()) -> HeadFinding:
        """Verify the head against a pin, and the newest record against the head."""
        answer = self._read("consistency.json", ConsistencyAnswer)
        proof = None
        if answer is not None:
            proof = Proof(answer.first, answer.second, _hashes("consistency.json", answer.path))
        offered = tuple(key.vkey for key in self.chain.keys)
        finding = verify_head(
            self.chain.checkpoint, self.log, offered, pin=pin, given=given, proof=proof
        )
        if finding.root:
            for text in self._record_breaks(finding):
                finding.refuse(HeadCheck.RECORDS, text)
                finding.pin = None
        return finding

    def _record_breaks(self, head: HeadFinding) -> Iterator[str]:
        """Check that the records are of this log, consecutive, and contained in the head."""
        if self.chain.size != head.size:
            yield f"the log is said to have {self.chain.size} entries; its head is of {head.size}"
        for entry in self.entries:
            if entry.record.log != self.log:
                yield f"the record of round {entry.record.round} is of the log {entry.record.log}"
            if bool(entry.record.previous) != bool(entry.index):
                text = "names no previous record" if entry.index else "names a previous record"
                yield f"entry {entry.index} of the log, of round {entry.record.round}, {text}"
        yield from self._held_back()
        for before, entry in zip(self.entries, self.entries[1:], strict=False):
            if entry.index != before.index + 1:
                yield f"entry {before.index + 1} of the log is missing, before {entry.index}"
            elif entry.record.previous != record_hash(before.data):
                yield f"entry {entry.index} of the log names a different record than {before.index}"
        if self.entries:
            yield from self._proof_breaks(head)

    def _held_back(self) -> Iterator[str]:
        """Check that the portal's newest round is the last of the log.

        A log of rounds has one entry for each round, including damaged ones, and no others. The
        head may be older than the newest round, never newer.
        """
        newest, size = self.chain.round, self.chain.size
        for entry in self.entries:
            if entry.record.round == newest and entry.index < size - 1:
                yield (
                    f"the portal calls round {newest} its newest, entry {entry.index} of a head of"
                    f" {size} entries: it holds back those after it"
                )
            elif newest is not None and entry.record.round > newest:
                yield f"round {entry.record.round} is in it; the portal calls {newest} its newest"

    def _proof_breaks(self, head: HeadFinding) -> Iterator[str]:
        """Check that the head contains the newest record, whose hash covers the earlier ones."""
        newest = self.entries[-1]
        inclusion = self._read("inclusion.json", InclusionProof)
        leaves = [leaf_hash(entry.data) for entry in self.entries]
        if self.entries[0].index == 0 and len(leaves) == head.size:
            if _root(leaves) != head.root:
                yield "its records, all of them hashed, do not give the root of its head"
        elif inclusion is None:
            yield f"inclusion.json, the proof that round {newest.record.round} is in it, is missing"
        elif (inclusion.index, inclusion.size) != (newest.index, head.size):
            yield (
                f"the proof is of entry {inclusion.index} of {inclusion.size},"
                f" not of {newest.index} of {head.size}"
            )
        else:
            path = _hashes("inclusion.json", inclusion.path)
            try:
                verify_inclusion(leaves[-1], newest.index, head.size, path, head.root)
            except ProofError as error:
                number = newest.record.round
                yield f"the record of round {number} is not under its head: {error}"

    def numbers(self) -> list[int]:
        entries = self.entries
        if len(entries) > 1 and entries[0].record.previous:
            entries = entries[1:]
        return [entry.record.round for entry in entries]

    def rounds(
        self,
        version_here: VersionOf,
        wanted: Callable[[RoundRecord], bool] = lambda _: True,
        bounded: Bounded = lambda work: work(),
    ) -> Iterator[RoundFinding]:
        """Verify rounds in order; `wanted` selects them.

        `bounded` recomputes a round within a limit, and returns None if the limit was exceeded.
        """
        due, newest = set(self.numbers()), 0
        record_before, before, is_other = None, None, False
        records = [entry.record for entry in self.entries]
        for record, record_after in zip(records, (*records[1:], None), strict=True):
            data = self.bundle(record.round)
            if record.round not in due or not wanted(record):
                before, is_other = _disclosed(data), _is_other(data, record)
            else:
                work = partial(
                    self._verify, data, record, record_before, before, record_after,
                    version_here=version_here, newest_certificate=newest,
                )  # fmt: skip # rows of what belongs together
                finding = bounded(work) or _over_limit(data, record, record_before)
                if is_other:
                    finding.note(RoundCheck.BYTES, (OTHER_BEFORE,))
                before, is_other = finding.disclosed, False
                yield finding
            newest = max(newest, certificate_version(before) if before else 0)
            record_before = record

    def records(self) -> Iterator[RoundFinding]:
        """Verify all records, and the hashes of available bundles, without deciding again."""
        record_before = None
        for record in [entry.record for entry in self.entries]:
            data = self.bundle(record.round)
            if data is not None and is_excerpt(data):
                yield self._excerpts(data, record, record_before)
            else:
                yield verify_record(data, record, record_before)
            record_before = record

    def _excerpts(
        self, data: bytes, record: RoundRecord, record_before: RoundRecord | None
    ) -> RoundFinding:
        finding = verify_record(None, record, record_before)
        rows = verify_excerpts(data, record, self.keys(day_of(record.at_us)))
        finding.remarks += rows.remarks
        finding.unproven += rows.unproven
        if rows.broken is not None:
            finding.note(RoundCheck.BYTES, rows.broken)
        return finding

    def _verify(
        self,
        data: bytes | None,
        record: RoundRecord,
        record_before: RoundRecord | None,
        before: Disclosed | None,
        record_after: RoundRecord | None,
        *,
        version_here: VersionOf,
        newest_certificate: int,
    ) -> RoundFinding:
        if data is not None and is_excerpt(data):
            return self._excerpts(data, record, record_before)
        return verify_round(
            data,
            record,
            record_before,
            before,
            self.own(day_of(record.at_us)),
            own_before=self.own(before.day) if before else NOBODY,
            read_after=lambda: self._after(record_after),
            newest_certificate=newest_certificate,
            version_here=version_here,
        )

    def _after(self, record: RoundRecord | None) -> Disclosed | None:
        """Return the next round, if its bundle matches its record."""
        if record is None:
            return None
        data = self.bundle(record.round)
        return None if _is_other(data, record) else _disclosed(data)

    def bundle(self, number: int) -> bytes | None:
        """Return the bytes of a round's bundle; None if it is not available."""
        return self.read(f"bundles/{number}.json")

    def keys(self, day: str) -> dict[str, bytes]:
        """Return the reader's tenant keys of a day; empty if there are none."""
        answer = self._read(f"names/{day}.json", DayNamesBody)
        rows = answer.tenants if answer else ()
        try:
            return {row.tenant: bytes.fromhex(row.key) for row in rows}
        except ValueError:
            raise EvidenceError(f"names/{day}.json: a key is not of hex digits") from None

    def own(self, day: str) -> OwnNames:
        """Return the reader's own pseudonyms of a day."""
        if day not in self._days:
            answer = self._read("jobs.json", JobsAnswer)
            jobs = [] if answer is None else [_own_job(row) for row in answer.jobs]
            is_whole = answer is not None and answer.complete
            self._days[day] = own_names(self.keys(day), jobs, all_jobs=is_whole)
        return self._days[day]

    def _read(self, name: str, answer: type[AnswerT]) -> AnswerT | None:
        data = self.read(name)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise EvidenceError(f"{name}: {error}") from None

    def _needed(self, name: str, answer: type[AnswerT]) -> AnswerT:
        value = self._read(name, answer)
        if value is None:
            raise EvidenceError(f"{name} is missing")
        return value


def _entry(row: RecordRow) -> RecordEntry:
    data = row.record.encode()
    try:
        return RecordEntry(row.index, data, read_record(data))
    except RecordError as error:
        raise EvidenceError(f"records.json: entry {row.index}: {error}") from None


def _over_limit(
    data: bytes | None, record: RoundRecord, record_before: RoundRecord | None
) -> RoundFinding:
    """Verify only the record and the bundle's hash of a round whose recomputation was stopped."""
    finding = verify_record(data, record, record_before)
    finding.leave(Gap.LIMIT, RECORD_ALONE)
    return finding


def _disclosed(data: bytes | None) -> Disclosed | None:
    """Decode a round's bundle without verifying it."""
    if data is None or is_excerpt(data):
        return None
    try:
        return read_bundle(data)
    except BundleError:
        return None


def _is_other(data: bytes | None, record: RoundRecord) -> bool:
    """Return whether an unverified round's bundle does not match its record."""
    return data is not None and not is_excerpt(data) and sha256_hex(data) != record.bundle


def _own_job(row: OwnJobAnswer) -> OwnJob:
    ended_us = None if row.ended_at is None else to_us(row.ended_at)
    uid = row.id.replace("-", "")
    arrived_us = None if row.eligible_at is None else to_us(row.eligible_at)
    return OwnJob(
        uid, row.tenant, row.gpus, to_us(row.submitted_at), ended_us, row.profile or "", arrived_us
    )


def _hashes(name: str, path: tuple[str, ...]) -> tuple[bytes, ...]:
    try:
        return tuple(bytes.fromhex(step) for step in path)
    except ValueError:
        raise EvidenceError(f"{name}: a hash is not of hex digits") from None


def _root(leaves: list[bytes]) -> bytes:
    nodes: Mapping[Place, bytes] = completed(0, leaves, lambda _: ())
    return root(len(leaves), lambda places: [nodes[place] for place in places])
