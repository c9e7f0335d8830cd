"""Test rounds verified from the files of an answer: only own rows, invalid files, the last line."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from evenshare_core.chain.records import RecordError, read_record, record_bytes
from evenshare_core.verification.excerpts import is_excerpt
from evenshare_core.verification.heads import HeadCheck, HeadFinding
from evenshare_core.verification.history import EvidenceError, RoundHistory
from evenshare_core.verification.rounds import RoundCheck
from evenshare_core.verification.texts import Tally, gap_lines, summary
from evenshare_core.verification.verdict import Gap, ProofProblem, ProofVerdict, Unproven
from tests.unit.core.test_verify_rounds import gaps, verified, wrong
from tests.unit.verified_rounds import LOG, StagedPool


@pytest.fixture
def pool() -> StagedPool:
    return StagedPool()


class TestOwnRows:
    def test_are_checked_by_digest_and_leave_rest_unproven(self, pool: StagedPool) -> None:
        pool.visibility = "own"
        findings = verified(pool)
        assert wrong(findings) == {}
        assert findings[3].recomputed == [RoundCheck.RECORD, RoundCheck.BYTES]
        assert findings[3].remarks
        assert set(gaps(findings[3])) == {Gap.OWN_ROWS}

    def test_missing_own_rows_are_not_proven(self, pool: StagedPool) -> None:
        pool.visibility = "own"
        files = pool.files()
        answer = json.loads(files["bundles/4.json"])
        files["bundles/4.json"] = json.dumps({**answer, "own": []}).encode()
        finding = list(RoundHistory(files.get).rounds(lambda _: ""))[3]
        assert finding.recomputed == [RoundCheck.RECORD]
        assert gaps(finding)[Gap.NAMES] == ["the portal gave no rows of ada"]

    def test_reports_record_that_differs_from_log(self, pool: StagedPool) -> None:
        pool.visibility = "own"
        files = pool.files()
        answer = json.loads(files["bundles/4.json"])
        answer["record"]["at_us"] += 1
        files["bundles/4.json"] = json.dumps(answer).encode()
        findings = list(RoundHistory(files.get).rounds(lambda _: ""))
        text = "bytes: the record sent with its own rows differs from the record of the log"
        assert wrong(findings) == {4: [text]}

    def test_reports_changed_rows(self, pool: StagedPool) -> None:
        pool.visibility = "own"
        files = pool.files()
        answer = json.loads(files["bundles/4.json"])
        answer["own"][0]["excerpt"]["round"] = 5
        files["bundles/4.json"] = json.dumps(answer).encode()
        findings = list(RoundHistory(files.get).rounds(lambda _: ""))
        text = "bytes: the record commits to none of the rows of ada that the portal gave"
        assert wrong(findings) == {4: [text]}

    @pytest.mark.parametrize("part", ["record", "excerpt"])
    @pytest.mark.parametrize("value", [b'"\xff"', b"1e999"])
    def test_reports_unreadable_json(self, pool: StagedPool, part: str, value: bytes) -> None:
        pool.visibility = "own"
        files = pool.files()
        answer = json.loads(files["bundles/4.json"])
        (answer if part == "record" else answer["own"][0])[part] = "odd"
        files["bundles/4.json"] = json.dumps(answer).encode().replace(b'"odd"', value)
        findings = list(RoundHistory(files.get).rounds(lambda _: ""))
        ((number, (text,)),) = wrong(findings).items()
        assert (number, text[:34]) == (4, "bytes: its own rows cannot be read")


class TestFiles:
    def test_error_names_missing_or_invalid_file(self, pool: StagedPool) -> None:
        files = pool.files()
        for name, data, text in (
            ("chain.json", None, "chain.json is missing"),
            ("records.json", b"[{}]", "records.json: "),
            ("records.json", b'[{"index":0,"record":"{}"}]', "records.json: entry 0: "),
            ("chain.json", b"\xff", "chain.json: "),
        ):
            broken = {**files, name: data}
            with pytest.raises(EvidenceError, match=text):
                RoundHistory(broken.get)

    def test_reports_options_rejected_by_policy(self, pool: StagedPool) -> None:
        files = dict(pool.files(1))
        document = json.loads(files["bundles/5.json"])
        document["snapshot"]["options"] = {"none": 1}
        files["bundles/5.json"] = msgspec.json.encode(document)
        found = wrong(list(RoundHistory(files.get).rounds(lambda _: "")))
        assert any("cannot be recomputed: OptionError" in text for text in found[6])

    def test_rejects_record_with_impossible_date(self, pool: StagedPool) -> None:
        record = read_record(pool.records[-1])
        with pytest.raises(RecordError, match="at_us: is 10"):
            read_record(record_bytes(replace(record, at_us=10**18)))

    def test_rejects_deeply_nested_json(self, pool: StagedPool) -> None:
        files = {**pool.files(1), "chain.json": b"[" * 100_000 + b"]" * 100_000}
        with pytest.raises(EvidenceError, match=r"chain\.json"):
            RoundHistory(files.get)
        assert not is_excerpt(b'{"a":' * 100_000)

    def test_summary_counts_verdicts_and_head(self) -> None:
        proven, wrong, left = ProofVerdict.PROVEN, ProofVerdict.WRONG, ProofVerdict.NOT_PROVEN
        fine = Tally(rows=[(1, proven), (2, proven)])
        assert summary(fine) == "2 rounds proven"
        tally = Tally(rows=[(1, proven), (2, wrong), (3, left)])
        tally.add_head(HeadFinding(LOG, problems=[ProofProblem(HeadCheck.KEY, "other")]))
        assert summary(tally) == (
            "1 of 3 rounds proven; 1 wrong (2); 1 not proven (3); the head is WRONG"
        )

    def test_gap_lines_have_one_sentence_per_gap(self, pool: StagedPool) -> None:
        del pool.bundles[4], pool.bundles[5]
        tally = Tally(accepted=["before"])
        for finding in verified(pool):
            tally.add(finding)
        lines = list(gap_lines(tally))
        assert [line.split(" (")[0] for line in lines] == [
            "NOT PROVEN: bundle: 2 rounds", "accepted, not proven: before: 1 round",
        ]  # fmt: skip
        assert (tally.verdict, tally.not_decided) == (ProofVerdict.NOT_PROVEN, 2)
        assert summary(tally) == "6 of 8 rounds proven; 2 not proven (4, 5)"

    def test_rounds_under_unproven_head_are_not_proven(self) -> None:
        tally = Tally(rows=[(1, ProofVerdict.PROVEN)])
        tally.add_head(HeadFinding(LOG, unproven=[Unproven(Gap.HEAD, "no proof")]))
        assert tally.verdict is ProofVerdict.NOT_PROVEN
        assert summary(tally) == "1 of 1 round proven; the head is not proven"
