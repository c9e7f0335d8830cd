"""Test heads that a reader keeps: the proof of each new head, and two readers' comparison."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from evenshare_core.chain.merkle import consistency_proof
from evenshare_core.chain.records import read_record, record_bytes, record_hash
from evenshare_core.verification.heads import (
    HeadCheck,
    HeadFinding,
    Pin,
    Proof,
    compare_heads,
    read_pin,
    short_key,
    verify_head,
)
from evenshare_core.verification.history import RoundHistory
from evenshare_core.verification.verdict import Gap, Unproven
from tests.unit.verified_rounds import LOG, StagedPool, key_of, staged_rounds, vkey_of

FIRST, SECOND = vkey_of(key_of("first")), vkey_of(key_of("second"))


@pytest.fixture(scope="module")
def sealed() -> StagedPool:
    return StagedPool(staged_rounds(10))


@pytest.fixture
def pool(sealed: StagedPool) -> StagedPool:
    copy = StagedPool([])
    copy.rounds, copy.records, copy.bundles = (
        list(sealed.rounds), list(sealed.records), dict(sealed.bundles),
    )  # fmt: skip
    return copy


def proof(pool: StagedPool, first: int, second: int) -> Proof:
    return Proof(first, second, consistency_proof(first, second, pool._nodes))


def head(
    pool: StagedPool, size: int, pin: Pin | None = None, given: tuple[str, ...] = ()
) -> HeadFinding:
    proven = proof(pool, pin.size, size) if pin and pin.size <= size else None
    keys = [vkey_of(key) for key in pool.keys]
    return verify_head(pool.note(size), LOG, keys, pin=pin, given=given, proof=proven)


def pinned(pool: StagedPool, size: int) -> Pin:
    pin = head(pool, size).pin
    assert pin is not None
    return pin


def texts(finding: HeadFinding) -> list[str]:
    return [f"{problem.check.value}: {problem.text}" for problem in finding.problems]


class TestFirstHead:
    def test_is_trusted_with_remark_to_compare_keys(self, pool: StagedPool) -> None:
        finding = head(pool, 6)
        assert finding.problems == []
        [remark] = finding.remarks
        assert remark.endswith(f"compare them with another source: {short_key(FIRST)}")
        assert finding.pin is not None
        assert (finding.pin.size, finding.pin.keys) == (6, (FIRST,))
        assert read_pin(msgspec.json.encode(finding.pin)) == finding.pin

    def test_rejects_key_other_than_given(self, pool: StagedPool) -> None:
        finding = head(pool, 6, given=(SECOND,))
        assert finding.pin is None
        assert [problem.check for problem in finding.problems] == [HeadCheck.KEY]
        assert f"signed only by {short_key(FIRST)}" in finding.problems[0].text

    def test_rejects_changed_text(self, pool: StagedPool) -> None:
        note = pool.note(6).replace("\n6\n", "\n7\n")
        finding = verify_head(note, LOG, (FIRST,))
        assert texts(finding)[0].startswith("signature: the head is not signed by a known key")


class TestLaterHead:
    @pytest.mark.parametrize("size", [1, 5, 8, 9, 10])
    def test_accepts_proven_growth(self, pool: StagedPool, size: int) -> None:
        finding = head(pool, 10, pinned(pool, size))
        assert (finding.problems, finding.remarks) == ([], [])
        assert finding.pin is not None
        assert finding.pin.size == 10

    def test_is_not_proven_without_proof(self, pool: StagedPool) -> None:
        finding = verify_head(pool.note(), LOG, (FIRST,), pin=pinned(pool, 4))
        assert finding.problems == []
        text = "there is no proof that the head of 10 rounds begins with that of 4"
        assert finding.unproven == [Unproven(Gap.HEAD, text)]
        assert finding.pin is None, "what nothing proves must not take the place of what was proven"

    def test_reports_shortened_history(self, pool: StagedPool) -> None:
        finding = head(pool, 7, pinned(pool, 10))
        assert texts(finding) == ["history: the history was shortened: 7 rounds now, pinned are 10"]
        assert finding.pin is None

    def test_reports_rewritten_history(self, pool: StagedPool) -> None:
        pin = pinned(pool, 6)
        rewritten(pool, 4)
        finding = head(pool, 10, pin)
        assert texts(finding)[0].startswith(
            "history: the history was rewritten or forked: the 6 rounds"
        )
        assert finding.pin is None

    def test_reports_fork_of_same_size(self, pool: StagedPool) -> None:
        pin = pinned(pool, 10)
        rewritten(pool, 10)
        assert texts(head(pool, 10, pin))[0].startswith(
            "history: the history was forked: two heads"
        )

    def test_rejects_head_of_other_log(self, pool: StagedPool) -> None:
        pin = msgspec.structs.replace(pinned(pool, 3), log="evenshare/test/rounds/other")
        assert [problem.check for problem in head(pool, 10, pin).problems] == [HeadCheck.LOG]


class TestKey:
    def test_new_key_is_trusted_after_signing_with_known_key(self, pool: StagedPool) -> None:
        pin = pinned(pool, 4)
        pool.keys = [key_of("first"), key_of("second")]
        both = head(pool, 8, pin)
        assert both.remarks == [
            f"key {short_key(SECOND)} is new and signs together with a known key"
        ]
        assert both.pin is not None
        pool.keys = [key_of("second")]
        alone = head(pool, 10, both.pin)
        assert (alone.problems, alone.remarks) == ([], [])
        assert alone.pin is not None
        assert alone.pin.keys == (SECOND,)

    def test_offered_key_without_signature_is_not_trusted(self, pool: StagedPool) -> None:
        """Otherwise a portal could offer a new key today, and sign with only that key tomorrow."""
        first = verify_head(pool.note(), LOG, [FIRST, SECOND], given=(FIRST,))
        assert first.pin is not None
        assert first.pin.keys == (FIRST,)

    def test_reports_key_change_without_overlap(self, pool: StagedPool) -> None:
        pin = pinned(pool, 4)
        pool.keys = [key_of("second")]
        finding = head(pool, 10, pin)
        assert finding.problems[0].check is HeadCheck.KEY
        assert (
            f"signed only by {short_key(SECOND)}, and not by a known key ({short_key(FIRST)})"
            in texts(finding)[0]
        )
        assert finding.pin is None

    def test_given_key_replaces_pinned_keys(self, pool: StagedPool) -> None:
        pin = pinned(pool, 4)
        pool.keys = [key_of("second")]
        finding = head(pool, 10, pin, given=(SECOND,))
        assert finding.problems == []
        assert finding.pin is not None
        assert finding.pin.keys == (SECOND,)


class TestCompareHeads:
    def test_readers_of_one_history_agree(self, pool: StagedPool) -> None:
        mine, other = pinned(pool, 10), pinned(pool, 7)
        assert compare_heads(mine, other, proof(pool, 7, 10)) == ()
        assert compare_heads(other, mine, proof(pool, 7, 10)) == ()
        assert compare_heads(mine, mine, None) == ()

    @pytest.mark.parametrize("size", [7, 10])
    def test_finds_fork(self, pool: StagedPool, size: int) -> None:
        mine = pinned(pool, 10)
        rewritten(pool, 3)
        other = pinned(pool, size)
        [problem] = compare_heads(mine, other, proof(pool, size, 10))
        assert problem.check is HeadCheck.HISTORY
        assert "forked" in problem.text

    def test_reports_missing_proof(self, pool: StagedPool) -> None:
        [problem] = compare_heads(pinned(pool, 10), pinned(pool, 7), None)
        assert problem.text.startswith("there is no proof")

    def test_rejects_head_not_signed_by_log(self, pool: StagedPool) -> None:
        mine = pinned(pool, 10)
        pool.keys = [key_of("third")]
        [problem] = compare_heads(mine, pinned(pool, 7), proof(pool, 7, 10))
        assert problem.check is HeadCheck.SIGNATURE


class TestRecordsUnderHead:
    def test_newest_record_proves_earlier_ones(self, pool: StagedPool) -> None:
        files = pool.files(4, 8)
        assert RoundHistory(files.get).head().problems == []

    def test_complete_log_needs_no_inclusion_proof(self, pool: StagedPool) -> None:
        files = pool.files()
        del files["inclusion.json"]
        assert RoundHistory(files.get).head().problems == []

    @pytest.mark.parametrize(
        ("name", "edit", "text"),
        [
            ("inclusion.json", lambda row: row["path"].pop(), "the path is shorter"),
            ("inclusion.json", lambda row: row.update(index=5), "the proof is of entry 5 of 10"),
            ("chain.json", lambda row: row.update(size=11), "is said to have 11 entries"),
            ("records.json", lambda rows: rows.pop(2), "entry 4 of the log is missing, before 5"),
        ],
    )
    def test_reports_mismatched_files(
        self, pool: StagedPool, name: str, edit: Callable[..., object], text: str
    ) -> None:
        files = pool.files(4, 8)
        answer = json.loads(files[name])
        edit(answer)
        files[name] = json.dumps(answer).encode()
        finding = RoundHistory(files.get).head()
        assert any(text in problem for problem in texts(finding)), texts(finding)
        assert finding.pin is None

    def test_reports_later_record_without_previous_hash(self, pool: StagedPool) -> None:
        """A log may begin at any round.

        Every entry except the first has the hash of the previous one.
        """
        files = pool.files(4, 8)
        rows = json.loads(files["records.json"])
        record = read_record(rows[0]["record"].encode())
        rows[0]["record"] = record_bytes(msgspec.structs.replace(record, previous="")).decode()
        files["records.json"] = json.dumps(rows).encode()
        text = "records: entry 2 of the log, of round 3, names no previous record"
        assert text in texts(RoundHistory(files.get).head())

    @pytest.mark.parametrize("place", [0, 2, 4])
    def test_reports_record_with_hash_not_in_next_record(
        self, pool: StagedPool, place: int
    ) -> None:
        """A path proves the newest record.

        Each earlier record is proven by the hash in the next one.
        """
        files = pool.files(4, 8)
        rows = json.loads(files["records.json"])
        record = read_record(rows[place]["record"].encode())
        other = msgspec.structs.replace(record, breaks=("Something else.",))
        rows[place]["record"] = record_bytes(other).decode()
        files["records.json"] = json.dumps(rows).encode()
        index = rows[place]["index"]
        text = f"records: entry {index + 1} of the log names a different record than {index}"
        finding = RoundHistory(files.get).head()
        assert text in texts(finding)
        assert finding.pin is None

    def test_reports_edited_newest_record(self, pool: StagedPool) -> None:
        files = pool.files(4, 8)
        rows = json.loads(files["records.json"])
        record = read_record(rows[-1]["record"].encode())
        rows[-1]["record"] = record_bytes(msgspec.structs.replace(record, bundle="0" * 64)).decode()
        files["records.json"] = json.dumps(rows).encode()
        assert any(
            "is not under its head" in text for text in texts(RoundHistory(files.get).head())
        )


def rewritten(pool: StagedPool, number: int) -> None:
    """Replace a round, and seal it and all later rounds with matching hashes."""
    for row in range(number - 1, len(pool.records)):
        record = read_record(pool.records[row])
        previous = record.previous
        if row >= number:
            previous = record_hash(pool.records[row - 1])
        bundle = "f" * 64 if row == number - 1 else record.bundle
        pool.records[row] = record_bytes(
            msgspec.structs.replace(record, previous=previous, bundle=bundle)
        )
