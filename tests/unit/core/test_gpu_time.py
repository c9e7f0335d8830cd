"""Test the LTGF integrals: exact for tenants, within a stated bound for jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.snapshot import Change, ChangeKind, Service
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.fairness.gpu_time import ServiceView, advance, claim_rho

QUOTA, ACTIVE, HOLD = ChangeKind.QUOTA, ChangeKind.ACTIVE, ChangeKind.HOLD
RELEASE, INACTIVE = ChangeKind.RELEASE, ChangeKind.INACTIVE


def quota(at_us: int, gpus: int, tenant: int = 1, gpu_type: str = "v100") -> Change:
    return Change(at_us, QUOTA, tenant, gpus=gpus, gpu_types=(gpu_type,))


def active(
    at_us: int, job: int, gpus: int, types: tuple[str, ...] = ("v100",), weight: int = 1
) -> Change:
    return Change(at_us, ACTIVE, 1, job, gpus, types, weight)


@dataclass
class Plain:
    """The same sums, computed by their definition in fractions, for each job separately."""

    quota: dict[tuple[int, str], int] = field(default_factory=dict)
    alloc: dict[tuple[int, str], int] = field(default_factory=dict)
    fair: dict[tuple[int, str], int] = field(default_factory=dict)
    entitled: dict[tuple[int, str], int] = field(default_factory=dict)
    jobs: dict[int, Change] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)
    job_alloc: dict[int, int] = field(default_factory=dict)
    job_fair: dict[int, Fraction] = field(default_factory=dict)
    intervals: dict[int, int] = field(default_factory=dict)
    now_us: int = 0

    def go_to(self, at_us: int) -> None:
        span, self.now_us = at_us - self.now_us, at_us
        for key, gpus in self.quota.items():
            mine = [j for j in self.jobs.values() if (j.tenant, j.gpu_types[0]) == key]
            share = min(sum(job.gpus for job in mine), gpus)
            held = sum(self.held[job.job] for job in mine)
            self.alloc[key] = self.alloc.get(key, 0) + held * span
            self.fair[key] = self.fair.get(key, 0) + share * span
            self.entitled[key] = self.entitled.get(key, 0) + gpus * span
            weights = sum(job.weight for job in mine)
            for job in mine:
                part = min(Fraction(job.gpus), Fraction(share * job.weight, weights))
                self.job_fair[job.job] += part * span
                self.job_alloc[job.job] += self.held[job.job] * span
                self.intervals[job.job] += 1

    def apply(self, change: Change) -> None:
        self.go_to(change.at_us)
        if change.kind is QUOTA:
            self.quota[change.tenant, change.gpu_types[0]] = change.gpus
        elif change.kind is ACTIVE:
            self.jobs[change.job] = change
            self.held[change.job] = self.job_alloc[change.job] = self.intervals[change.job] = 0
            self.job_fair[change.job] = Fraction(0)
        elif change.kind is INACTIVE:
            del self.jobs[change.job]
        else:
            self.held[change.job] = change.gpus if change.kind is HOLD else 0


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """Return valid changes of two tenants and two GPU types in time order."""
    changes = [quota(0, draw(st.integers(0, 9)), t, g) for t in (1, 2) for g in "ab"]
    # tenant, GPU type, gang, whether it holds GPUs
    jobs: dict[int, tuple[int, str, int, bool]] = {}
    at_us = 0
    for number in range(1, draw(st.integers(1, 25))):
        at_us += draw(st.integers(0, 1000))
        kind = draw(st.sampled_from([QUOTA, ACTIVE, ACTIVE, HOLD, HOLD, RELEASE, INACTIVE]))
        fitting = [
            job
            for job, row in jobs.items()
            if kind is INACTIVE or (kind in {HOLD, RELEASE} and row[3] is (kind is RELEASE))
        ]
        if kind is QUOTA:
            row = (draw(st.integers(0, 9)), draw(st.integers(1, 2)), draw(st.sampled_from("ab")))
            changes.append(quota(at_us, *row))
        elif kind is ACTIVE:
            tenant, gpu_type = draw(st.integers(1, 2)), draw(st.sampled_from("ab"))
            gpus, weight = draw(st.integers(1, 5)), draw(st.integers(1, 3))
            jobs[number] = (tenant, gpu_type, gpus, False)
            changes.append(Change(at_us, ACTIVE, tenant, number, gpus, (gpu_type,), weight))
        elif fitting:
            job = draw(st.sampled_from(fitting))
            tenant, gpu_type, gpus, _ = jobs[job]
            changes.append(Change(at_us, kind, tenant, job, gpus))
            jobs[job] = (tenant, gpu_type, gpus, kind is HOLD)
            if kind is INACTIVE:
                del jobs[job]
    return changes


class TestExactFractions:
    """Random histories, whose sums equal a recomputation by definition in exact fractions."""

    @given(histories(), st.integers(0, 1000), st.data())
    def test_integrals_match_exact_fractions_within_bound(
        self, changes: list[Change], rest_us: int, data: st.DataObject
    ) -> None:
        end_us = changes[-1].at_us + rest_us
        cut = data.draw(st.integers(0, len(changes)))
        cut_us = max([0, *(change.at_us for change in changes[:cut])])
        service = advance(Service(at_us=0), changes[:cut], cut_us)
        service = advance(decode(canonical_bytes(service), Service), changes[cut:], end_us)
        plain = Plain()
        for change in changes[:cut]:
            plain.apply(change)
        plain.go_to(cut_us)
        for change in changes[cut:]:
            plain.apply(change)
        plain.go_to(end_us)
        for claim in service.claims:
            key = (claim.tenant, claim.gpu_type)
            sums = (claim.alloc_gpu_us, claim.fair_gpu_us, claim.entitled_gpu_us)
            assert sums == tuple(
                rows.get(key, 0) for rows in (plain.alloc, plain.fair, plain.entitled)
            )
        view = ServiceView(service)
        assert view.jobs.keys() == plain.jobs.keys()
        for job in view.jobs.values():
            assert (
                job.alloc_gpu_us + job.held * (end_us - job.held_since_us)
                == (plain.job_alloc[job.job])
            )
            short = plain.job_fair[job.job] - view.job_deserved(job.job)
            assert -1 < short < 1 + plain.intervals[job.job]


class TestAdvance:
    def test_change_older_than_sums_counts_from_their_instant(self) -> None:
        service = advance(Service(at_us=0), [quota(0, 4)], 100)
        service = advance(service, [active(40, 1, 2)], 200)
        assert service.claims[0].fair_gpu_us == 2 * 100

    def test_finished_job_stops_deserved_and_received_time(self) -> None:
        hold, gone = Change(0, HOLD, 1, 1, 2), Change(50, INACTIVE, 1, 1)
        service = advance(Service(at_us=0), [quota(0, 4), active(0, 1, 2), hold, gone], 200)
        claim = service.claims[0]
        assert (claim.fair_gpu_us, claim.alloc_gpu_us, claim.held, claim.demand) == (100, 100, 0, 0)
        assert (service.classes, service.jobs) == ((), ())

    def test_unchanged_jobs_are_not_rebuilt(self) -> None:
        service = advance(Service(at_us=0), [quota(0, 4), active(0, 1, 2)], 100)
        assert advance(service, [active(150, 2, 1)], 200).jobs[0] is service.jobs[0]

    def test_job_deserves_gpu_time_by_weight(self) -> None:
        """Eq. (13): weights 3 and 1 on 4 GPUs give 3 and 1."""
        changes = [quota(0, 4), active(0, 1, 4, weight=3), active(0, 2, 4)]
        view = ServiceView(advance(Service(at_us=0), changes, 100))
        assert (view.job_deserved(1), view.job_deserved(2)) == (300, 100)

    def test_rho_at_later_instant_matches_advance_without_changes(self) -> None:
        changes = [quota(0, 3), active(0, 1, 2), Change(0, HOLD, 1, 1, 2), active(0, 2, 4)]
        view = ServiceView(advance(Service(at_us=0), changes, 100))
        later = ServiceView(advance(view.service, [], 300))
        for job in (1, 2):
            assert view.job_rho(job, 300) == later.job_rho(job)
        assert view.tenant_rho(1, "v100", 300) == later.tenant_rho(1, "v100")

    def test_rho_is_none_if_nothing_was_deserved(self) -> None:
        view = ServiceView(advance(Service(at_us=0), [quota(0, 0), active(0, 1, 2)], 100))
        assert view.tenant_rho(1, "v100") is None
        assert view.tenant_rho(2, "v100") is None
        assert view.job_rho(1) is None


class TestClaimedType:
    """A job that accepts several types, which claims the type with its tenant's lowest rho."""

    BASE = (
        quota(0, 4, gpu_type="a"),
        quota(0, 4, gpu_type="b"),
        active(0, 1, 2, ("a",)),
        active(0, 2, 2, ("b",)),
        Change(0, HOLD, 1, 1, 2),
    )  # rho is 1 on type a and 0 on type b

    @pytest.mark.parametrize(
        ("types", "claimed"), [(("a",), "a"), (("a", "b"), "b"), ((), "b"), (("c", "a"), "c")]
    )
    def test_has_lowest_rho(self, types: tuple[str, ...], claimed: str) -> None:
        service = advance(Service(at_us=0), [*self.BASE, active(50, 3, 1, types)], 100)
        assert service.jobs[2].gpu_type == claimed

    def test_prefers_type_with_unclaimed_quota(self) -> None:
        # On a, rho stays 1. On b it is lower, but the demand there already fills the quota.
        changes = [*self.BASE, active(20, 3, 2, ("b",)), Change(30, INACTIVE, 1, 1)]
        service = advance(Service(at_us=0), [*changes, active(50, 4, 2, ("a", "b"))], 100)
        assert [job.gpu_type for job in service.jobs if job.job == 4] == ["a"]

    def test_breaks_ties_by_name(self) -> None:
        changes = [quota(0, 4, gpu_type="b"), quota(0, 4, gpu_type="a"), active(0, 1, 1, ())]
        assert advance(Service(at_us=0), changes, 10).jobs[0].gpu_type == "a"

    def test_avoids_type_that_is_too_small_for_gang(self) -> None:
        changes = [*self.BASE, active(50, 3, 16, ())]
        service = advance(Service(at_us=0), changes, 100, capacity={"a": 16, "b": 8})
        assert service.jobs[2].gpu_type == "a"

    def test_raises_if_pool_has_no_gpu_type(self) -> None:
        with pytest.raises(ValueError, match="the pool has none"):
            advance(Service(at_us=0), [active(0, 1, 1, ())], 10)


class TestContradictions:
    """Changes that contradict the state; each raises an error that names the change."""

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (active(5, 1, 2), "active already"),
            (active(5, 3, 0), "at least 1"),
            (Change(5, HOLD, 1, 9, 2), "not active"),
            (Change(5, HOLD, 1, 1, 2), "holds 2 GPUs already"),
            (Change(5, HOLD, 1, 2, 0), "at least 1 GPU"),
            (Change(5, RELEASE, 1, 2), "holds nothing"),
            (Change(5, RELEASE, 2, 1), "belongs to tenant 1"),
            (Change(5, INACTIVE, 1, 9), "not active"),
            (Change(5, QUOTA, 1, gpus=3), "one GPU type"),
            (Change(11, INACTIVE, 1, 1), "after the round"),
        ],
    )
    def test_error_names_contradictory_change(self, change: Change, problem: str) -> None:
        base = [quota(0, 4), active(0, 1, 2), active(0, 2, 2), Change(0, HOLD, 1, 1, 2)]
        with pytest.raises(ValueError, match=problem) as caught:
            advance(Service(at_us=0), [*base, change], 10)
        assert change.kind.value in str(caught.value).lower()

    def test_rejects_decreasing_time(self) -> None:
        with pytest.raises(ValueError, match="cannot go back"):
            advance(Service(at_us=10), [], 9)
        with pytest.raises(ValueError, match="out of time order"):
            advance(Service(at_us=0), [quota(5, 1), quota(4, 1)], 10)


class TestFairnessWindow:
    def test_forgets_use_before_window(self) -> None:
        """The tenant held 4 of 4 GPUs for one window, then none for two windows.

        Rho falls from 1 to 0.
        """
        window_us = 1600
        changes = [quota(0, 4), active(0, 1, 4), Change(0, HOLD, 1, 1, 4)]
        service = advance(Service(at_us=0), changes, 0, window_us=window_us)
        rhos = []
        for at_us in range(100, 4900, 100):
            end = [Change(1600, RELEASE, 1, 1)] if at_us == 1600 else []
            service = advance(service, end, at_us, window_us=window_us)
            rhos.append(claim_rho(service.claims[0], at_us))
        assert rhos[15] == 1.0
        # the tenant held its GPUs for half of the last window
        assert rhos[23] == pytest.approx(0.5)
        assert rhos[-1] == 0.0
        assert len(service.claims[0].marks) <= 18

    def test_keeps_no_marks_without_window(self) -> None:
        service = advance(Service(at_us=0), [quota(0, 4)], 10, window_us=100)
        assert service.claims[0].marks
        assert not advance(service, [], 20).claims[0].marks
