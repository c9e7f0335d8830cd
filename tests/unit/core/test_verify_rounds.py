"""Test the verification of rounds: valid ones pass, and each possible manipulation is reported."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from evenshare_core.chain.records import read_record, record_bytes
from evenshare_core.disclosure.bundle import read_bundle
from evenshare_core.domain.instants import from_us
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import sha256_hex
from evenshare_core.fairness import certify
from evenshare_core.policies import registry
from evenshare_core.policies.base import with_outcomes
from evenshare_core.verification.history import OTHER_BEFORE, RoundHistory
from evenshare_core.verification.names import OwnNames, name_breaks
from evenshare_core.verification.rounds import (
    RoundCheck,
    RoundFinding,
    verify_record,
    verify_round,
)
from evenshare_core.verification.texts import round_line
from evenshare_core.verification.verdict import Gap, ProofVerdict
from tests.unit.verified_rounds import (
    ADA,
    BEGIN_US,
    ROUND_US,
    StagedPool,
    StagedRound,
    decided,
    staged_rounds,
)

WHOLE = [
    RoundCheck.RECORD,
    RoundCheck.BYTES,
    RoundCheck.RECORD,
    RoundCheck.DECISION,
    RoundCheck.CERTIFICATE,
    RoundCheck.FOLLOWS,
    RoundCheck.NAMES,
]
DAY_US = 24 * 3600 * 1_000_000


@pytest.fixture
def pool() -> StagedPool:
    return StagedPool()


def verified(
    pool: StagedPool, first: int = 1, versions: Callable[[str], str] = lambda _: ""
) -> list[RoundFinding]:
    files = pool.files(first)
    return list(RoundHistory(files.get).rounds(versions))


def wrong(findings: list[RoundFinding]) -> dict[int, list[str]]:
    return {
        row.round: [f"{problem.check.value}: {problem.text}" for problem in row.problems]
        for row in findings
        if not row.ok
    }


def gaps(finding: RoundFinding) -> dict[Gap, list[str]]:
    texts: dict[Gap, list[str]] = {}
    for row in finding.unproven:
        texts.setdefault(row.gap, []).append(row.text)
    return texts


class TestValidRound:
    @pytest.mark.parametrize(
        "policy", ["ltgf", "evenshare", "oef", "unisched", "gandiva_fair", "fifo"]
    )
    def test_is_recomputed_completely(self, policy: str) -> None:
        findings = verified(StagedPool(staged_rounds(6, policy=policy)))
        assert wrong(findings) == {}
        assert [row.round for row in findings] == [1, 2, 3, 4, 5, 6]
        assert [row.recomputed for row in findings[1:]] == [WHOLE] * 5
        assert all(row.remarks == [] for row in findings)
        assert {row.verdict() for row in findings} == {ProofVerdict.PROVEN}

    def test_certificate_failure_is_independent_of_ids(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(snapshot: Snapshot, *_: object) -> None:
            raise LookupError(f"tenant {snapshot.tenants[0].id}, at {id(snapshot)}")

        monkeypatch.setattr(certify, "Measured", fails)
        findings = verified(StagedPool(staged_rounds(3)))
        assert wrong(findings) == {}
        assert all(RoundCheck.CERTIFICATE in row.recomputed for row in findings)
        stored = [row.disclosed.certificate for row in findings if row.disclosed]
        assert [row and row["failure"] for row in stored] == ["LookupError"] * 3

    def test_shows_recomputed_figures(self, pool: StagedPool) -> None:
        finding = verified(pool)[3]
        row = pool.rounds[3]
        figures = finding.figures
        assert figures is not None
        own = [share for share in row.decision.shares if share.tenant == 1]
        assert [(c.tenant, c.gpu_type, c.rho, c.own, c.borrowed) for c in figures.claims] == [
            (ADA, share.gpu_type, share.rho_before, share.own, share.borrowed) for share in own
        ]
        assert figures.grants == len(row.decision.grants)
        assert figures.renewals == len(row.decision.renewals)
        assert dict(figures.prices) == {p.gpu_type: p.price_micro for p in row.decision.prices}
        line = round_line(finding)
        assert line.startswith("round 4  2030-03-17T17:47:10Z  hash, chain, decision, certificate,")
        assert f"{ADA} fast rho" in line
        assert line.endswith(": ok")

    def test_is_verified_across_change_of_day(self) -> None:
        begin_us = BEGIN_US - BEGIN_US % DAY_US + DAY_US - 3 * ROUND_US
        pool = StagedPool(staged_rounds(6, begin_us=begin_us))
        days = {read_record(data).at_us // DAY_US for data in pool.records}
        assert len(days) == 2
        assert wrong(verified(pool)) == {}

    def test_first_verified_round_follows_previous_one(self, pool: StagedPool) -> None:
        findings = verified(pool, first=5)
        assert [row.round for row in findings] == [5, 6, 7, 8]
        assert all(RoundCheck.FOLLOWS in row.recomputed for row in findings)

    def test_missing_bundle_keeps_chain_intact(self, pool: StagedPool) -> None:
        del pool.bundles[4]
        findings = verified(pool)
        assert wrong(findings) == {}
        proven = [row.verdict() is ProofVerdict.PROVEN for row in findings[2:6]]
        assert proven == [True, False, False, True]
        assert [set(gaps(row)) for row in findings[3:5]] == [{Gap.BUNDLE}, {Gap.BEFORE}]


def changed(pool: StagedPool, number: int, **fields: Any) -> None:
    row = pool.rounds[number - 1]
    pool.rounds[number - 1] = StagedRound(replace(row.snapshot, **fields), *_rest(row))


def _rest(row: StagedRound) -> tuple[Any, Any]:
    return row.decision, row.certificate


def edited(pool: StagedPool, number: int, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change a bundle after its hash was published."""
    document = json.loads(pool.bundles[number])
    edit(document)
    pool.bundles[number] = msgspec.json.encode(document)


class TestManipulation:
    def test_reports_changed_bundle_bytes(self, pool: StagedPool) -> None:
        def dearer(document: dict[str, Any]) -> None:
            document["decision"]["prices"][0]["price_micro"] += 1

        edited(pool, 4, dearer)
        broken = wrong(verified(pool))
        assert broken[4][0].startswith("bytes: the record commits to the SHA-256 ")
        assert "decision: prices[0].price_micro: " in broken[4][1]
        assert "price of fast" in broken[5][0]

    def test_reports_price_changed_after_posting(self, pool: StagedPool) -> None:
        """The portal seals the rounds again, so the hashes match.

        But the next round has the price that was posted.
        """
        row = pool.rounds[3]
        prices = row.decision.prices
        dearer = replace(prices[0], price_micro=prices[0].price_micro + 500_000)
        pool.rounds[3] = StagedRound(
            row.snapshot, replace(row.decision, prices=(dearer, *prices[1:])), row.certificate
        )
        pool.seal()
        broken = wrong(verified(pool))
        assert any(text.startswith("decision: prices[0].price_micro: ") for text in broken[4])
        assert any("price of fast" in text for text in broken[5])

    def test_reports_sums_that_do_not_follow(self, pool: StagedPool) -> None:
        """The round is decided again from lower sums, so its replay gives the same bytes."""
        snapshot = pool.rounds[4].snapshot
        claims = snapshot.service.claims
        lower = replace(claims[0], alloc_gpu_us=claims[0].alloc_gpu_us // 2)
        service = replace(snapshot.service, claims=(lower, *claims[1:]))
        pool.rounds[4] = decided(replace(snapshot, service=service))
        pool.seal()
        broken = wrong(verified(pool))
        assert any(text.startswith("follows: The sums of tenant") for text in broken[5])
        assert any(text.startswith("follows: the portal says: ") for text in broken[5])
        assert not any(text.startswith("decision") for text in broken[5])

    def test_reports_upgraded_certificate_verdict(self, pool: StagedPool) -> None:
        row = pool.rounds[2]
        assert row.certificate is not None
        certificate = json.loads(json.dumps(row.certificate))
        line = next(
            line for line in certificate["findings"] if line["verdict"] not in ("holds", "noted")
        )
        before, line["verdict"] = line["verdict"], "holds"
        pool.rounds[2] = StagedRound(row.snapshot, row.decision, certificate)
        pool.seal()
        text = f"certificate: {line['name']}: holds there, {before} here"
        assert wrong(verified(pool)) == {3: [text]}

    def test_reports_changed_certificate_number(self, pool: StagedPool) -> None:
        """A number of the certificate is changed so that all verdicts stay equal."""
        row = pool.rounds[4]
        assert row.certificate is not None
        first, *rest = row.certificate["findings"]
        certificate = {**row.certificate, "findings": [{**first, "checked": 77777}, *rest]}
        pool.rounds[4] = StagedRound(row.snapshot, row.decision, certificate)
        pool.seal()
        assert any("77,777" in text or "77777" in text for text in wrong(verified(pool))[5])

    def test_reports_bundle_of_other_pool(self, pool: StagedPool) -> None:
        pool.seal(lambda _, data: data.replace(b'"pool":"lab"', b'"pool":"lub"', 1))
        text = "record: pool is lub in the bundle, lab is due"
        assert wrong(verified(pool))[5] == [text]

    def test_reports_lease_with_other_tenant_than_job(self, pool: StagedPool) -> None:
        read = read_bundle(pool.bundles[5])
        first, *rest = read.snapshot.leases
        other = 1 + first.tenant % 3
        leases = (replace(first, tenant=other), *rest)
        bent = dataclasses.replace(read, snapshot=replace(read.snapshot, leases=leases))
        (text,) = name_breaks(bent, OwnNames({}, {}))
        assert text == f"the lease {read.names.leases[0]} is of another tenant than its job"

    def test_reports_swapped_job_pseudonyms(self, pool: StagedPool) -> None:
        """A job of the reader gets the pseudonym of another row, and the hashes match."""

        def swap(number: int, data: bytes) -> bytes:
            if number != 5:
                return data
            document = json.loads(data)
            jobs = {job["id"]: job["tenant"] for job in document["snapshot"]["jobs"]}
            mine, other = (next(j for j, owner in jobs.items() if owner == t) for t in (1, 2))
            names = document["names"]["jobs"]
            names[mine - 1], names[other - 1] = names[other - 1], names[mine - 1]
            return msgspec.json.encode(document)

        pool.seal(swap)
        broken = wrong(verified(pool))
        named = [text for text in broken[5] if text.startswith("names: ")]
        assert any("of ada has the pseudonym of another tenant" in text for text in named)
        assert any("is said to be of ada, which has none of this name" in text for text in named)

    def test_reports_swapped_tenant_pseudonyms(self, pool: StagedPool) -> None:
        def swap(_: int, data: bytes) -> bytes:
            document = json.loads(data)
            names = document["names"]["tenants"]
            names[0], names[1] = names[1], names[0]
            return msgspec.json.encode(document)

        pool.seal(swap)
        broken = wrong(verified(pool))
        assert any("of ada has the pseudonym of another" in text for text in broken[5])

    def test_reports_job_with_fewer_gpus_than_requested(self, pool: StagedPool) -> None:
        mine = next(job for job in pool.rounds[5].snapshot.jobs if job.tenant == 1)
        files = pool.files()
        jobs = json.loads(files["jobs.json"])
        row = next(row for row in jobs["jobs"] if row["id"].startswith(f"{mine.id:08x}"))
        row["gpus"] += 1
        files["jobs.json"] = json.dumps(jobs).encode()
        broken = wrong(list(RoundHistory(files.get).rounds(lambda _: "")))
        assert any(f"asked for {mine.gpus + 1} GPUs" in text for text in broken[6])

    def test_reports_job_with_changed_submission_time(self, pool: StagedPool) -> None:
        mine = next(job for job in pool.rounds[5].snapshot.jobs if job.tenant == 1)
        files = pool.files()
        jobs = json.loads(files["jobs.json"])
        row = next(row for row in jobs["jobs"] if row["id"].startswith(f"{mine.id:08x}"))
        row["submitted_at"] = "2030-03-17T17:00:00Z"
        files["jobs.json"] = json.dumps(jobs).encode()
        broken = wrong(list(RoundHistory(files.get).rounds(lambda _: "")))
        assert any(f"asked for {mine.gpus} GPUs at " in text for text in broken[6])

    def test_remarks_omitted_own_job(self, pool: StagedPool) -> None:
        """It is a remark and not a problem, because a round may leave jobs out."""
        files = pool.files()
        jobs = json.loads(files["jobs.json"])
        jobs["jobs"][-1] |= {"id": str(uuid.UUID(int=1)), "ended_at": None}
        files["jobs.json"] = json.dumps(jobs).encode()
        findings = list(RoundHistory(files.get).rounds(lambda _: ""))
        assert findings[6].remarks == ["own jobs that are not in it: 00000000"]
        # A job that ended after the round should still be in the round.
        ended = from_us(findings[6].at_us + 1).isoformat()
        jobs["jobs"][-1]["ended_at"] = ended
        files["jobs.json"] = json.dumps(jobs).encode()
        findings = list(RoundHistory(files.get).rounds(lambda _: ""))
        assert findings[6].remarks == ["own jobs that are not in it: 00000000"]
        assert findings[7].remarks == []

    def test_edited_record_breaks_chain(self, pool: StagedPool) -> None:
        record = read_record(pool.records[3])
        pool.records[3] = record_bytes(replace(record, at_us=record.at_us + 1))
        broken = wrong(verified(pool))
        assert any("at_us is" in text for text in broken[4])
        assert broken[5][0].startswith("record: its record names ")

    def test_reports_changed_previous_bundle(self, pool: StagedPool) -> None:
        """The previous round itself is not verified, but it must be the round that was sealed."""
        files = pool.files(4)
        bundle = json.loads(files["bundles/3.json"])
        bundle["versions"]["evenshare-core"] = "9"
        files["bundles/3.json"] = json.dumps(bundle, separators=(",", ":")).encode()
        findings = list(RoundHistory(files.get).rounds(lambda _: ""))
        assert wrong(findings) == {4: [f"bytes: {OTHER_BEFORE}"]}

    def test_removed_record_breaks_chain(self, pool: StagedPool) -> None:
        del pool.records[3]
        history = RoundHistory(pool.files().get)
        broken = wrong(list(history.rounds(lambda _: "")))
        assert broken[5][0] == "record: the round before it in the log is 3"
        assert broken[5][1].startswith("record: its record names ")

    def test_reports_damage_admitted_by_portal(self, pool: StagedPool) -> None:
        record = replace(read_record(pool.records[7]), damage="its snapshot is gone", bundle="")
        finding = verify_round(None, record, read_record(pool.records[6]), None)
        assert [problem.check for problem in finding.problems] == [RoundCheck.DAMAGE]
        assert finding.remarks == []

    def test_reports_invalid_bundle(self, pool: StagedPool) -> None:
        pool.bundles[6] = b"{}"
        broken = wrong(verified(pool))
        assert broken[6][1].startswith("bytes: is no bundle: ")

    @pytest.mark.parametrize(
        ("old", "new", "place"),
        [
            (b'"snapshot":{', b'"snapshot":{"newer":1,', "snapshot"),
            (b'"item":"grant"', b'"item":"loan"', "superseded[0].item"),
        ],
    )
    def test_newer_bundle_is_not_proven(
        self, pool: StagedPool, old: bytes, new: bytes, place: str
    ) -> None:
        row = b'"superseded":[{"item":"grant","id":1,"why":"gone"}]'
        bundle = pool.bundles[6].replace(b'"superseded":[]', row).replace(old, new, 1)
        record = replace(read_record(pool.records[6]), bundle=sha256_hex(bundle))
        finding = verify_record(bundle, record, read_record(pool.records[5]))
        assert finding.problems == []
        assert [gap for gap, _ in finding.unproven] == [Gap.VERSION]
        assert f"cannot be read here: {place}: " in finding.unproven[0].text
        assert finding.verdict() is ProofVerdict.NOT_PROVEN


class TestEveryPolicy:
    @pytest.mark.parametrize("policy", sorted(registry.POLICIES))
    def test_rounds_and_outcomes_are_recomputed(self, policy: str) -> None:
        rounds = staged_rounds(6, policy=policy)
        assert all(with_outcomes(row.snapshot, row.decision) == row.decision for row in rounds)
        assert wrong(verified(StagedPool(rounds))) == {}
