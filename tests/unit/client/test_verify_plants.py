"""Test `evenshare round verify` on a portal that falsifies its history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.chain.records import read_record, record_bytes
from tests.unit.verified_rounds import (
    BOB,
    POOL,
    StagedPool,
    StagedRound,
    decided,
    key_of,
    staged_rounds,
    vkey_of,
)

from .conftest import ROUNDS, Ran, Run, pin_path
from .portal import Portal


class TestFalsification:
    """The command names each falsification, and exits with 3."""

    def assert_named(self, done: Ran, text: str) -> None:
        assert done.code == 3, done.out + done.err
        assert text in done.out, done.out
        assert not done.out.endswith(f"\n{ROUNDS} rounds proven\n")

    def test_detects_rewritten_round_with_matching_bytes(
        self, verify_all: Any, pool: StagedPool, tmp_path: Path
    ) -> None:
        """The portal decides a round again without one job, and seals it and all later rounds."""
        assert verify_all().code == 0
        kept = pin_path(tmp_path).read_bytes()
        row = pool.rounds[-1].snapshot
        gone = next(job for job in row.jobs if job.tenant == 2)
        pool.rounds[-1] = decided(
            replace(
                row,
                jobs=tuple(job for job in row.jobs if job.id != gone.id),
                leases=tuple(lease for lease in row.leases if lease.job != gone.id),
            )
        )
        pool.seal()
        done = verify_all()
        self.assert_named(done, "WRONG: history: the history was forked: two heads of 8 rounds")
        self.assert_named(done, "the head is WRONG")
        assert pin_path(tmp_path).read_bytes() == kept

    def test_detects_rewritten_old_round_under_longer_log(
        self, verify_all: Any, run: Run, pool: StagedPool
    ) -> None:
        whole = pool.records
        pool.records = whole[:6]
        assert run("round", "pin", "--pool", POOL).code == 0
        pool.records = whole
        rewritten(pool, 3)
        done = verify_all()
        self.assert_named(done, "history: the history was rewritten or forked: the 6 rounds that")

    def test_detects_removed_round(self, verify_all: Any, pool: StagedPool) -> None:
        del pool.records[3], pool.bundles[4]
        self.assert_named(verify_all(), "record: the round before it in the log is 3")

    def test_detects_removed_round_after_resealing(self, verify_all: Any, pool: StagedPool) -> None:
        del pool.rounds[3]
        pool.seal()
        done = verify_all()
        self.assert_named(done, "record: the round before it in the log is 3")
        self.assert_named(done, "follows: ")

    @pytest.mark.parametrize(
        ("kept", "text"),
        [
            (slice(0), "withholds the last"),
            (slice(6), "withholds the last"),
            (slice(4, None), "withholds the rounds before 5"),
        ],
    )
    def test_detects_withheld_records(
        self, verify_all: Any, portal: Portal, pool: StagedPool, kept: slice, text: str
    ) -> None:
        """An answer with fewer rounds than requested is an error."""

        def answer(words: list[str], query: dict[str, str]) -> tuple[int, Any]:
            status, body = pool.answer(words, query)
            if words[2:] == ["records"]:
                body = {**body, "results": body["results"][kept]}
            return status, body

        portal.rounds = answer
        done = verify_all()
        assert done.code == 3
        assert text in done.err

    @pytest.mark.parametrize("words", [("--last", "3"), ("5",)])
    def test_detects_withheld_newest_record(
        self, run: Run, portal: Portal, pool: StagedPool, words: tuple[str, ...]
    ) -> None:
        """The portal calls an older round the newest, although its head covers more rounds."""

        def answer(path: list[str], query: dict[str, str]) -> tuple[int, Any]:
            status, body = pool.answer(path, query)
            return status, ({**body, "round": 5} if path[2:] == [] else body)

        portal.rounds = answer
        done = run("round", "verify", "--pool", POOL, *words)
        self.assert_named(done, "WRONG: records: the portal calls round 5 its newest, entry 4 of")

    def test_detects_log_of_other_pool(
        self, run: Run, portal: Portal, pool: StagedPool, tmp_path: Path
    ) -> None:
        portal.rounds = lambda words, query: pool.answer([words[0], POOL, *words[2:]], query)
        done = run("round", "verify", "--pool", "lub")
        self.assert_named(done, "is not the log of lub")
        assert not list(tmp_path.glob("evenshare/pins/*"))

    def test_detects_missing_certificate(self, verify_all: Any, pool: StagedPool) -> None:
        row = pool.rounds[2]
        pool.rounds[2] = StagedRound(row.snapshot, row.decision, None)
        pool.seal()
        self.assert_named(verify_all(), "certificate: none is in it")

    def test_detects_certificate_of_older_version(self, verify_all: Any, pool: StagedPool) -> None:
        row = pool.rounds[4]
        assert row.certificate is not None
        older = {**row.certificate, "version": 3}
        pool.rounds[4] = StagedRound(row.snapshot, row.decision, older)
        pool.seal()
        self.assert_named(verify_all(), "certificate: its version is 3; 6 is due")

    def test_counts_certificate_of_later_version_as_not_proven(
        self, verify_all: Any, pool: StagedPool
    ) -> None:
        """The certificate has no visible fault, but it is not proven."""
        row = pool.rounds[4]
        assert row.certificate is not None
        later = {**row.certificate, "version": 99}
        pool.rounds[4] = StagedRound(row.snapshot, row.decision, later)
        pool.seal()
        done = verify_all()
        assert done.code == 5
        assert "NOT PROVEN: certificate: 1 round (5): certificate not recomputed" in done.out
        shown = verify_all("--output", "json").json
        assert shown["not_recomputed"] == {"decision": 0, "certificate": 1}

    def test_detects_shortened_history(self, verify_all: Any, run: Run, pool: StagedPool) -> None:
        assert verify_all().code == 0
        pool.records = pool.records[:5]
        done = run("round", "verify", "--pool", POOL)
        self.assert_named(done, "history: the history was shortened: 5 rounds now, pinned are 8")

    def test_detects_fork_shown_to_two_tenants(
        self, run: Run, pool: StagedPool, portal: Portal, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        """Each tenant sees a consistent history, but the two histories differ."""
        assert run("round", "pin", "--pool", POOL).code == 0
        adas = pin_path(tmp_path)
        other = StagedPool(staged_rounds(ROUNDS), reader=BOB)
        rewritten(other, 5)
        portal.rounds = other.answer
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "bob"))
        assert run("round", "pin", "--pool", POOL).code == 0
        done = run("round", "pin", "--pool", POOL, "--against", str(adas))
        self.assert_named(done, "WRONG: history: the history was forked: two heads of 8 rounds")
        assert pool.size == other.size

    def test_detects_fork_of_different_size(
        self, run: Run, pool: StagedPool, portal: Portal, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        whole = pool.records
        pool.records = whole[:6]
        assert run("round", "pin", "--pool", POOL).code == 0
        adas = pin_path(tmp_path)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "bob"))
        pool.records = whole
        assert run("round", "pin", "--pool", POOL, "--against", str(adas)).code == 0
        rewritten(pool, 5)
        (tmp_path / "bob" / "evenshare" / "pins").rename(tmp_path / "away")
        done = run("round", "pin", "--pool", POOL, "--against", str(adas))
        self.assert_named(done, "the 6 rounds that were pinned are not the beginning of the 8 now")
        pool.records = pool.records[:5]
        (tmp_path / "bob" / "evenshare" / "pins").rename(tmp_path / "away2")
        done = run("round", "pin", "--pool", POOL, "--against", str(adas))
        self.assert_named(done, "there is no proof")
        assert portal.seen

    def test_detects_price_changed_after_posting(self, verify_all: Any, pool: StagedPool) -> None:
        row = pool.rounds[3]
        first, *others = row.decision.prices
        prices = (replace(first, price_micro=first.price_micro + 1), *others)
        pool.rounds[3] = StagedRound(
            row.snapshot, replace(row.decision, prices=prices), row.certificate
        )
        pool.seal()
        done = verify_all()
        self.assert_named(done, "decision: prices[0].price_micro")
        self.assert_named(done, "The price of fast is")

    def test_detects_improved_certificate(self, verify_all: Any, pool: StagedPool) -> None:
        row = pool.rounds[2]
        assert row.certificate is not None
        certificate = json.loads(json.dumps(row.certificate))
        line = next(r for r in certificate["findings"] if r["verdict"] not in ("holds", "noted"))
        before, line["verdict"] = line["verdict"], "holds"
        pool.rounds[2] = StagedRound(row.snapshot, row.decision, certificate)
        pool.seal()
        self.assert_named(verify_all(), f"certificate: {line['name']}: holds there, {before} here")

    def test_detects_swapped_pseudonyms(self, verify_all: Any, pool: StagedPool) -> None:
        def swap(_: int, data: bytes) -> bytes:
            document = json.loads(data)
            names = document["names"]["tenants"]
            names[0], names[1] = names[1], names[0]
            return json.dumps(document, separators=(",", ":")).encode()

        pool.seal(swap)
        self.assert_named(verify_all(), "of ada has the pseudonym of another tenant")

    def test_detects_edited_record(self, verify_all: Any, pool: StagedPool) -> None:
        record = read_record(pool.records[3])
        pool.records[3] = record_bytes(replace(record, bundle="0" * 64))
        done = verify_all()
        self.assert_named(done, "bytes: the record commits to the SHA-256 0000")
        self.assert_named(done, "record: its record names ")

    def test_detects_checkpoint_signed_by_other_key(
        self, verify_all: Any, pool: StagedPool
    ) -> None:
        assert verify_all().code == 0
        pool.keys = [key_of("second")]
        self.assert_named(verify_all(), "WRONG: key: the head is signed only by ")
        assert verify_all("--vkey", vkey_of(key_of("second"))).code == 0
        assert verify_all().code == 0, "the key that was given is pinned"


def rewritten(pool: StagedPool, number: int) -> None:
    """Replace the records from `number` on, with correct links and signatures."""
    row = pool.rounds[number - 1]
    shares = row.decision.shares
    first = replace(shares[0], rho_before=0.5)
    pool.rounds[number - 1] = StagedRound(
        row.snapshot, replace(row.decision, shares=(first, *shares[1:])), row.certificate
    )
    pool.seal()
