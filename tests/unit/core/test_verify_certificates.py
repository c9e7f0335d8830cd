"""Test missing or outdated certificates, absent tenants, and withheld records.

If readers did not check these, a portal could leave out or replace any of them.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from evenshare_core.disclosure.pseudonyms import day_of
from evenshare_core.fairness.certificate import SEARCH_VERSION, VERSION
from evenshare_core.policies import registry
from evenshare_core.verification.certificates import NONE, NOT_RECOMPUTED
from evenshare_core.verification.heads import HeadCheck
from evenshare_core.verification.history import RoundHistory
from evenshare_core.verification.rounds import RoundCheck, RoundFinding
from evenshare_core.verification.texts import Tally, summary
from evenshare_core.verification.verdict import Gap
from tests.unit.core.test_verify_rounds import gaps, verified, wrong
from tests.unit.verified_rounds import ADA, BEGIN_US, StagedPool, StagedRound, staged_rounds


@pytest.fixture
def pool() -> StagedPool:
    return StagedPool()


def certified(pool: StagedPool, number: int, **fields: Any) -> None:
    """Change fields of a round's certificate, and seal the round again."""
    row = pool.rounds[number - 1]
    assert row.certificate is not None
    pool.rounds[number - 1] = StagedRound(row.snapshot, row.decision, {**row.certificate, **fields})
    pool.seal()


def last_line(findings: list[RoundFinding]) -> str:
    tally = Tally()
    for finding in findings:
        tally.add(finding)
    return summary(tally)


class TestCertificate:
    def test_missing_certificate_is_wrong(self, pool: StagedPool) -> None:
        row = pool.rounds[2]
        pool.rounds[2] = StagedRound(row.snapshot, row.decision, None)
        pool.seal()
        assert wrong(verified(pool)) == {3: [f"certificate: {NONE}"]}

    def test_older_version_than_previous_round_is_wrong(self, pool: StagedPool) -> None:
        certified(pool, 5, version=3)
        due = SEARCH_VERSION
        text = f"its version is 3; {due} is due, and a round before it has {due}"
        assert wrong(verified(pool)) == {5: [f"certificate: {text}"]}
        # The result is the same if the previous round itself is not verified.
        assert wrong(verified(pool, first=5)) == {5: [f"certificate: {text}"]}

    def test_older_version_is_not_proven(self, pool: StagedPool) -> None:
        """It may come from an older portal, which could not measure the newer lines."""
        for number in range(1, 5):
            certified(pool, number, version=3)
        findings = verified(pool)
        assert wrong(findings) == {}
        assert all(RoundCheck.CERTIFICATE not in row.recomputed for row in findings[:4])
        text = f"{NOT_RECOMPUTED}: its version is 3 there, {SEARCH_VERSION} here"
        assert gaps(findings[3]) == {Gap.CERTIFICATE: [text]}
        assert last_line(findings) == "4 of 8 rounds proven; 4 not proven (1, 2, 3, 4)"

    def test_unknown_version_is_not_proven(self, pool: StagedPool) -> None:
        certified(pool, 5, version=99)
        findings = verified(pool)
        assert wrong(findings) == {}
        assert last_line(findings) == "7 of 8 rounds proven; 1 not proven (5)"

    def test_version_that_contradicts_its_lines_is_wrong(self, pool: StagedPool) -> None:
        certified(pool, 5, version=VERSION)
        text = f"its version is {VERSION} there, {SEARCH_VERSION} here, by the lines that it has"
        assert wrong(verified(pool)) == {5: [f"certificate: {text}"]}

    @pytest.mark.parametrize("version", [None, "6", True, 0])
    def test_invalid_version_is_wrong(self, pool: StagedPool, version: object) -> None:
        certified(pool, 5, version=version)
        assert wrong(verified(pool)) == {5: ["certificate: its version is no number"]}

    def test_other_policy_version_may_have_different_lines(
        self, pool: StagedPool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        certified(pool, 5, version=3)
        monkeypatch.setattr(type(registry.POLICIES["ltgf"]), "version", "99")
        finding = verified(pool)[4]
        assert [row for row in finding.problems if row.check is RoundCheck.CERTIFICATE] == []
        assert finding.lacks_certificate

    def test_older_version_is_allowed_if_other_solver_failed(self) -> None:
        """If that solver failed, the certificate has fewer lines and an older version."""
        pool = StagedPool(staged_rounds(6, policy="oef"))
        row = pool.rounds[4]
        own, _, _ = row.snapshot.policy_version.partition(" highs ")
        version = f"{own} highs 9.9 glop 9.99"
        for failure, broken in (("", True), ("UnsolvedError", False)):
            snapshot = replace(row.snapshot, policy_version=version)
            assert row.certificate is not None
            certificate = {**row.certificate, "version": 3, "failure": failure}
            pool.rounds[4] = StagedRound(snapshot, row.decision, certificate)
            pool.seal()
            finding = verified(pool)[4]
            checks = [problem.check for problem in finding.problems]
            assert (RoundCheck.CERTIFICATE in checks) is broken
            assert finding.lacks_certificate is not broken

    def test_is_wrong_if_recomputation_raises(
        self, pool: StagedPool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(*_: object) -> None:
            raise ValueError("no such lease")

        monkeypatch.setattr("evenshare_core.verification.certificates.certify_round", refused)
        text = "certificate: it cannot be certified here: ValueError: no such lease"
        assert wrong(verified(pool))[5] == [text]
        monkeypatch.setattr(type(registry.POLICIES["ltgf"]), "version", "99")
        assert verified(pool)[4].lacks_certificate


class TestOwnTenant:
    def test_tenant_under_unknown_name_is_reported_missing(self, pool: StagedPool) -> None:
        """If a portal hides a tenant by renaming it and all its jobs, no other check fails."""

        own = RoundHistory(pool.files().get).own(day_of(BEGIN_US))

        def hidden(_: int, data: bytes) -> bytes:
            for name in (*own.tenants, *own.jobs):
                data = data.replace(name.encode(), name[::-1].encode())
            return data

        pool.seal(hidden)
        findings = verified(pool)
        # A round must contain the tenant only if one of its jobs was submitted earlier.
        assert [row.absent for row in findings] == [[]] * 4 + [[ADA]] * 4
        text = "own tenants are not in it, but have jobs or had quota: ada"
        assert gaps(findings[5]) == {Gap.NAMES: [text]}
        assert wrong(findings) == {}
        assert last_line(findings) == "4 of 8 rounds proven; 4 not proven (5, 6, 7, 8)"

    def test_tenant_with_earlier_quota_is_reported_missing(self, pool: StagedPool) -> None:
        def hidden(number: int, data: bytes) -> bytes:
            return data if number < 5 else data.replace(own, b"f" * 16)

        own = json.loads(pool.bundles[5])["names"]["tenants"][0].encode()
        pool.seal(hidden)
        files = {**pool.files(), "jobs.json": b'{"jobs":[],"complete":false}'}
        findings = list(RoundHistory(files.get).rounds(lambda _: ""))
        assert [row.round for row in findings if row.absent] == [5]

    def test_tenant_without_jobs_and_quota_is_not_expected(self, pool: StagedPool) -> None:
        """The reader has a key of a tenant that has nothing in the pool."""
        files = pool.files()
        for name in [name for name in files if name.startswith("names/")]:
            answer = json.loads(files[name])
            answer["tenants"].append({"tenant": "idle", "key": "00" * 32, "name": "t0"})
            files[name] = json.dumps(answer).encode()
        findings = list(RoundHistory(files.get).rounds(lambda _: ""))
        assert [row.absent for row in findings] == [[]] * len(findings)
        assert wrong(findings) == {}


class TestJobType:
    def test_reports_swapped_pseudonyms(self, pool: StagedPool) -> None:
        def swap(number: int, data: bytes) -> bytes:
            document = json.loads(data)
            names = document["names"]["profiles"]
            if number == 5:
                names[0], names[1] = names[1], names[0]
            return msgspec.json.encode(document)

        pool.seal(swap)
        named = [text for text in wrong(verified(pool))[5] if text.startswith("names: ")]
        assert named
        assert all(" of ada is of the job type p1, " in text for text in named)

    def test_ignores_undisclosed_job_type(self, pool: StagedPool) -> None:
        files = pool.files()
        jobs = json.loads(files["jobs.json"])
        jobs["jobs"] = [{**row, "profile": None} for row in jobs["jobs"]]
        files["jobs.json"] = json.dumps(jobs).encode()
        assert wrong(list(RoundHistory(files.get).rounds(lambda _: ""))) == {}


class TestNewestRecord:
    def held_back(self, pool: StagedPool, newest: int) -> dict[str, bytes]:
        """Return an answer that presents an older round as the newest, with a proof for it."""
        chain = {**pool.chain(), "round": newest}
        return {**pool.files(last=5), "chain.json": json.dumps(chain).encode()}

    def test_reports_withheld_records(self, pool: StagedPool) -> None:
        head = RoundHistory(self.held_back(pool, 5).get).head()
        (problem,) = head.problems
        assert problem.check is HeadCheck.RECORDS
        assert problem.text == (
            "the portal calls round 5 its newest, entry 4 of a head of 8 entries:"
            " it holds back those after it"
        )
        assert head.pin is None

    def test_reports_newest_round_older_than_records(self, pool: StagedPool) -> None:
        problems = RoundHistory(self.held_back(pool, 4).get).head().problems
        assert problems[-1].text == "round 5 is in it; the portal calls 4 its newest"

    def test_may_be_newer_than_head(self, pool: StagedPool) -> None:
        """A round may be sealed between two requests."""
        assert RoundHistory(self.held_back(pool, 9).get).head().problems == []


class TestRecords:
    def test_are_verified_without_recomputing_decisions(self, pool: StagedPool) -> None:
        files = pool.files()
        del files["bundles/4.json"]
        findings = list(RoundHistory(files.get).records())
        assert wrong(findings) == {}
        assert [row.round for row in findings] == list(range(1, 9))
        assert [row.round for row in findings if row.disclosed is None] == [4]
        assert {check for row in findings for check in row.recomputed} == {
            RoundCheck.RECORD,
            RoundCheck.BYTES,
        }

    def test_report_admitted_damage_and_manipulated_bytes(self, pool: StagedPool) -> None:
        files = pool.files()
        files["bundles/6.json"] = files["bundles/6.json"].replace(b'"day":', b'"day" :', 1)
        rows = json.loads(files["records.json"])
        record = json.loads(rows[3]["record"])
        record |= {"damage": "its snapshot is gone", "breaks": ["sums moved"]}
        rows[3]["record"] = json.dumps(record, separators=(",", ":"))
        files["records.json"] = json.dumps(rows).encode()
        named = wrong(list(RoundHistory(files.get).records()))
        assert named[4] == [
            "damage: the portal says: its snapshot is gone",
            "follows: the portal says: sums moved",
        ]
        assert named[5][0].startswith("record: its record names ")
        assert named[6][0].startswith("bytes: the record commits to the SHA-256 ")

    def test_own_rows_are_checked_by_digest(self, pool: StagedPool) -> None:
        pool.visibility = "own"
        files = pool.files()
        findings = list(RoundHistory(files.get).records())
        assert wrong(findings) == {}
        answer = json.loads(files["bundles/4.json"])
        answer["own"][0]["excerpt"]["round"] = 5
        files["bundles/4.json"] = json.dumps(answer).encode()
        assert list(wrong(list(RoundHistory(files.get).records()))) == [4]
