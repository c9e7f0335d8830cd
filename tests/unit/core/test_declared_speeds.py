"""Test the certificate's line about declared and measured speeds."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from evenshare_core.domain.measured_speeds import MeasuredProfile, MeasuredSpeed
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes
from evenshare_core.fairness.certificate import (
    SEARCH_VERSION,
    Basis,
    Certificate,
    CertificateItem,
    Overclaim,
    Property,
    Verdict,
    plain,
    read,
)
from evenshare_core.fairness.declared import DeclaredCheck, declared_item
from evenshare_core.policies.base import certify_round, decide_round
from tests.unit.core.certificates import FAST, SLOW, answer, line, two_types

SPEEDS = Property.MEASURED_SPEEDS


def measured(
    number: int, declared: int, fast: int, *, spread: int = 10, reports: int = 12
) -> MeasuredProfile:
    """Return a job type with a declared and a measured speed on the fast type."""
    speeds = ((SLOW, MeasuredSpeed(1000, spread, 9)), (FAST, MeasuredSpeed(fast, spread, reports)))
    return MeasuredProfile(number, ((SLOW, 1000), (FAST, declared)), speeds)


def asked(*rows: MeasuredProfile, **fields: Any) -> Snapshot:
    """Return a round in which tenants 1 and 2 have speeds of 2 and 5 on fast GPUs."""
    return two_types({1: 2.0, 2: 5.0}, measured=rows, **fields)


def certified(snapshot: Snapshot) -> Certificate:
    return certify_round(snapshot, decide_round(snapshot))


def speeds_line(found: Certificate) -> CertificateItem:
    return line(found, SPEEDS)


class TestOverclaim:
    SNAPSHOT = asked(measured(1, 4500, 2000), measured(2, 5000, 5000))

    def test_is_noted_with_excess_and_tenant(self) -> None:
        found = certified(self.SNAPSHOT)
        row = speeds_line(found)
        assert (row.verdict, row.basis, found.violated) == (Verdict.NOTED, Basis.SPEEDS, ())
        assert (row.checked, row.count, row.broken) == (2, 1, (1,))
        assert (row.worst, row.tenant, row.tolerance) == (1.25, 1, 0.05)

    def test_lists_gpu_type_and_report_count(self) -> None:
        found = certified(self.SNAPSHOT)
        assert found.overclaims == (Overclaim(1, 1, FAST, 4500, 2000, 1250, 50, 12),)
        assert read(plain(found)) == found

    def test_larger_overclaims_come_first(self) -> None:
        found = certified(asked(measured(1, 2400, 2000), measured(2, 10_000, 5000)))
        assert [(row.profile, row.excess_milli) for row in found.overclaims] == [
            (2, 1000),
            (1, 200),
        ]
        row = speeds_line(found)
        assert (row.count, row.broken, row.worst, row.tenant) == (2, (1, 2), 1.0, 2)

    def test_ignores_excess_within_measured_spread(self) -> None:
        found = certified(asked(measured(1, 2390, 2000, spread=100)))
        assert (speeds_line(found).verdict, found.overclaims) == (Verdict.HOLDS, ())
        assert speeds_line(found).checked == 1
        found = certified(asked(measured(1, 2410, 2000, spread=100)))
        assert found.overclaims[0].excess_milli == 205

    def test_ignores_understated_speed(self) -> None:
        assert speeds_line(certified(asked(measured(1, 1500, 2000)))).verdict is Verdict.HOLDS


class TestMeasuredSpeedsProperty:
    def test_is_violated_if_round_used_declared_speeds(self) -> None:
        """The snapshot uses the speed 2 for the job type, although 1.2 was measured."""
        found = certified(asked(measured(1, 2000, 1200), measured(2, 5000, 5000)))
        row = speeds_line(found)
        assert found.violated == (SPEEDS,)
        assert (row.verdict, row.checked, row.count, row.broken) == (Verdict.VIOLATED, 2, 1, (1,))

    def test_lists_tenant_of_several_job_types_once(self) -> None:
        row = declared_item(DeclaredCheck(3, (), (2, 1, 2)))
        assert (row.verdict, row.count, row.broken) == (Verdict.VIOLATED, 3, (1, 2))

    def test_counts_job_type_with_two_overclaims_once(self) -> None:
        claims = tuple(Overclaim(1, 7, name, 4500, 2000, 1250, 50, 12) for name in ("a100", FAST))
        assert declared_item(DeclaredCheck(2, claims, ())).count == 1

    def test_does_not_apply_with_one_measured_gpu_type(self) -> None:
        one = MeasuredProfile(1, ((SLOW, 1000), (FAST, 9000)), ((FAST, MeasuredSpeed(1000, 1, 9)),))
        row = speeds_line(certified(asked(one)))
        assert (row.verdict, row.checked) == (Verdict.NOT_APPLICABLE, 0)
        assert "two GPU types" in row.why

    def test_is_absent_if_policy_reads_no_speeds(self) -> None:
        snapshot = asked(measured(1, 4500, 2000), policy="ltgf")
        found = certify_round(snapshot, answer({}))
        assert SPEEDS not in {row.name for row in found.findings}
        assert (found.version, found.overclaims) == (SEARCH_VERSION, ())


class TestRoundsWithoutMeasurements:
    def test_have_no_measured_speeds_property(self) -> None:
        before = asked()
        found = certified(before)
        assert SPEEDS not in {row.name for row in found.findings}
        assert found.version == SEARCH_VERSION  # the version that its lines of misreports need
        assert "overclaims" not in plain(found)

    def test_keep_old_encoding(self) -> None:
        before = asked(schema=2)
        data = canonical_bytes(before)
        assert data.endswith(b"]]]")  # the profiles are the last encoded field
        after = replace(before, measured=(measured(1, 2000, 2000),))
        # Nine empty fields, then the new one.
        assert canonical_bytes(after).startswith(data[:-1] + b",[]" * 9 + b",[[1,")

    def test_decision_is_unaffected_by_measurements(self) -> None:
        rows = (measured(1, 4500, 2000), measured(2, 5000, 5000))
        assert decide_round(asked()) == decide_round(asked(*rows))
        assert certified(asked(*rows)).version == SEARCH_VERSION
