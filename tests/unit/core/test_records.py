"""Test that a record has one canonical form, and that reading rejects every other form."""

from __future__ import annotations

import msgspec
import pytest

from evenshare_core.chain.merkle import leaf_hash
from evenshare_core.chain.records import (
    LedgerRecord,
    RecordError,
    RoundRecord,
    TransferBody,
    read_ledger_record,
    read_record,
    record_bytes,
    record_hash,
    transfer_digest,
)

A, B = "a" * 64, "b" * 64
ROUND = RoundRecord(1, "evenshare/es/rounds/p", 7, 1_000_000, A, B, (A, B))
LEDGER = LedgerRecord(1, "evenshare/es/ledger/main", 3, 5, "", (B, A))


class TestRecord:
    def test_round_trips(self) -> None:
        assert read_record(record_bytes(ROUND)) == ROUND
        assert read_ledger_record(record_bytes(LEDGER)) == LEDGER

    def test_encoding_is_canonical_json(self) -> None:
        assert record_bytes(ROUND).decode() == (
            '{"schema":1,"log":"evenshare/es/rounds/p","round":7,"at_us":1000000,'
            f'"previous":"{A}","bundle":"{B}","own":["{A}","{B}"],"breaks":[],"damage":""}}'
        )

    def test_hash_is_merkle_leaf_hash(self) -> None:
        data = record_bytes(ROUND)
        assert record_hash(data) == leaf_hash(data).hex()

    def test_damaged_round_has_no_bundle(self) -> None:
        damaged = msgspec.structs.replace(ROUND, bundle="", own=(), damage="snapshot: other bytes")
        assert read_record(record_bytes(damaged)) == damaged


class TestInvalidRecord:
    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"schema": 2}, "schema"),
            ({"round": -1}, "round"),
            ({"previous": "A" * 64}, "previous"),
            ({"bundle": ""}, "bundle"),
            ({"own": (B, A)}, "own"),
            ({"own": ("x",)}, "own"),
        ],
    )
    def test_error_names_invalid_field(self, change: dict[str, object], field: str) -> None:
        with pytest.raises(RecordError) as caught:
            read_record(record_bytes(msgspec.structs.replace(ROUND, **change)))
        assert caught.value.field == field

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"[]",
            b"\xff",
            record_bytes(ROUND) + b" ",
            record_bytes(ROUND)[:-1] + b',"more":1}',
            record_bytes(ROUND).replace(b'"damage":""', b'"damage": ""'),
            record_bytes(ROUND).replace(b',"damage":""', b""),
            record_bytes(LEDGER),
        ],
    )
    def test_rejects_other_bytes(self, data: bytes) -> None:
        with pytest.raises(RecordError):
            read_record(data)

    def test_rejects_invalid_ledger_fields(self) -> None:
        with pytest.raises(RecordError, match="first"):
            read_ledger_record(record_bytes(msgspec.structs.replace(LEDGER, first=-1)))
        with pytest.raises(RecordError, match="transfers"):
            read_ledger_record(record_bytes(msgspec.structs.replace(LEDGER, transfers=("",))))


class TestTransferDigest:
    def test_depends_on_salt_and_every_field(self) -> None:
        body = TransferBody("t", "main", "usage", 1, 2, None, "", 3, 4, "{}", A, ((1, -5), (2, 5)))
        others = [
            msgspec.structs.replace(body, **{field: value})
            for field, value in (
                ("id", "u"),
                ("book", "demo"),
                ("code", "transfer"),
                ("pool", 0),
                ("tenant", 0),
                ("hour_us", 0),
                ("corrects", "s"),
                ("effective_us", 4),
                ("posted_us", 5),
                ("data", "[]"),
                ("body_sha256", B),
                ("entries", ((1, -6), (2, 6))),
            )
        ]
        digests = [transfer_digest(b"s" * 32, one) for one in (body, *others)]
        assert len({*digests, transfer_digest(b"t" * 32, body)}) == 14
