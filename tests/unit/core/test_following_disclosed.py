"""Test consecutive rounds in the disclosed form, matched by name, also over a change of day."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.disclosure.bundle import Disclosed, Naming, ids_of, make_bundle, read_bundle
from evenshare_core.policies.registry import POLICIES
from evenshare_core.verification.following import breaks
from evenshare_core.verification.following_ids import StoredRound
from tests.unit.core.following_rounds import history


def disclosed(stored: StoredRound, day: str = "") -> Disclosed:
    """Return a round in the disclosed form. The names show the id, and differ on another `day`."""
    ids = ids_of(stored.snapshot)
    naming = Naming(
        *({id_: f"{day}{kind[0]}{id_}" for id_ in getattr(ids, kind)} for kind in Naming._fields)
    )
    data = make_bundle(
        stored.snapshot, stored.decision, pool="lab", naming=naming, certificate=None,
        superseded=stored.superseded, versions={},
    )  # fmt: skip
    read = read_bundle(data)
    return Disclosed(**{**_fields(read), "day": day or read.day})


def _fields(stored: Disclosed) -> dict[str, Any]:
    return {name: getattr(stored, name) for name in Disclosed.__dataclass_fields__}


def bent(stored: Disclosed, **fields: Any) -> Disclosed:
    """Return the round with changed fields of its snapshot."""
    return Disclosed(**{**_fields(stored), "snapshot": replace(stored.snapshot, **fields)})


@pytest.mark.parametrize("policy", sorted(POLICIES))
class TestHistory:
    def test_rounds_of_one_day_have_no_breaks(self, policy: str) -> None:
        rounds = [disclosed(stored) for stored in history(policy)]
        assert [breaks(*two) for two in pairwise(rounds)] == [(), (), ()]

    def test_rounds_across_days_have_no_breaks(self, policy: str) -> None:
        rounds = [disclosed(stored, f"day{n}") for n, stored in enumerate(history(policy))]
        assert [breaks(*two) for two in pairwise(rounds)] == [(), (), ()]


@pytest.mark.parametrize("days", [("", ""), ("one", "two")])
class TestManipulation:
    """Manipulations are reported whether both rounds' names are of one day or of two days."""

    def pair(self, days: tuple[str, str], number: int = 2) -> tuple[Disclosed, Disclosed]:
        rounds = history()
        before, after = rounds[number - 2], rounds[number - 1]
        return disclosed(before, days[0]), disclosed(after, days[1])

    def test_reports_changed_sums(self, days: tuple[str, str]) -> None:
        before, after = self.pair(days)
        first, second = after.snapshot.service.claims
        claims = (first, replace(second, fair_gpu_us=7))
        service = replace(after.snapshot.service, claims=claims)
        (found,) = breaks(before, bent(after, service=service))
        assert found.startswith(f"The sums of tenant {days[1]}t2 for v100 are not those that")

    def test_reports_swapped_sums_of_two_jobs(self, days: tuple[str, str]) -> None:
        """The sums of two jobs are exchanged, so both rounds have the same rows except for ids."""
        before, after = self.pair(days)
        one, two, *rest = after.snapshot.service.jobs
        jobs = (replace(two, job=one.job), replace(one, job=two.job), *rest)
        service = replace(after.snapshot.service, jobs=jobs)
        found = breaks(before, bent(after, service=service))
        assert any(text.startswith(f"The sums of job {days[1]}j11 are not") for text in found)

    def test_reports_changed_lease(self, days: tuple[str, str]) -> None:
        before, after = self.pair(days, 3)
        (lease,) = after.snapshot.leases
        (found,) = breaks(before, bent(after, leases=(replace(lease, own=0, borrowed=2),)))
        assert found.startswith(f"The lease of job {days[1]}j12 is not as round 2 left it: own 0")

    def test_reports_changed_arrival_order(self, days: tuple[str, str]) -> None:
        before, after = self.pair(days)
        jobs = tuple(
            replace(row, submitted_us=1) if row.submitted_us == 13 else row
            for row in after.snapshot.jobs
        )
        (found,) = breaks(before, bent(after, jobs=jobs))
        assert found.startswith(f"Job {days[1]}j13 differs from the job in round 1: submitted_us 1")

    def test_reports_changed_memory(self, days: tuple[str, str]) -> None:
        before, after = self.pair(days, 3)
        ((job, at_us),) = after.snapshot.memory["passed"].items()
        (found,) = breaks(before, bent(after, memory={"passed": {job: at_us + 1}}))
        assert found.startswith("The policy's memory is not what round 2 left")

    def test_reports_removed_rows(self, days: tuple[str, str]) -> None:
        before, after = self.pair(days)
        service = after.snapshot.service
        service = replace(service, jobs=service.jobs[1:], claims=service.claims[1:])
        assert breaks(before, bent(after, service=service))
