"""Test which properties a round's certificate reports as holding, violated or not promised."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from evenshare_core.domain.decision import Decision, Grant, Key
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import ClaimService, Service
from evenshare_core.fairness import measure, pareto
from evenshare_core.fairness.allocations import Allocation
from evenshare_core.fairness.certificate import (
    MAX_ROWS,
    Basis,
    Property,
    Verdict,
    plain,
    read,
)
from evenshare_core.fairness.properties import envy_matrix
from evenshare_core.policies.base import certify_round, decide_round
from evenshare_core.units import HOUR_US
from tests.unit.core import snapshots
from tests.unit.core.certificates import (
    AT_US,
    FAST,
    FAST_NODE,
    SLOW,
    answer,
    grant,
    line,
    times,
    two_types,
)

P = Property
# Example E6 of OEF: W = (1,2), (1,5), one GPU of each type.
E6 = {1: 2.0, 2: 5.0}
COOPERATIVE = {1: (1, 0.25), 2: (0, 0.75)}
EQUAL = {1: (1, 4 / 7), 2: (0, 3 / 7)}
NONCOOPERATIVE: dict[str, Any] = {"options": {"environment": "noncooperative"}}


class TestCooperativeRound:
    def test_papers_optimum_has_no_violation(self) -> None:
        found = certify_round(two_types(E6), answer(COOPERATIVE))
        assert found.failure == ""
        assert found.violated == ()
        envy, alone = line(found, P.ENVY_FREE), line(found, P.SHARING_INCENTIVE)
        assert (envy.verdict, envy.basis, envy.checked) == (Verdict.HOLDS, Basis.IDEALS, 2)
        # Neither the other tenant's share nor the equal split is better or worse for the first
        # tenant.
        assert (envy.worst, envy.tenant, envy.other) == (0, 1, 2)
        assert (alone.verdict, alone.worst, alone.tenant) == (Verdict.HOLDS, 1, 1)
        assert line(found, P.PARETO).worst == 0

    def test_envy_is_violated_if_share_is_preferred(self) -> None:
        found = certify_round(two_types(E6), answer({1: (1, 0), 2: (0, 1)}))
        envy = line(found, P.ENVY_FREE)
        assert found.violated == (P.ENVY_FREE, P.SHARING_INCENTIVE)
        assert (envy.count, envy.broken, envy.worst) == (1, (1,), 1)
        alone = line(found, P.SHARING_INCENTIVE)
        assert (alone.worst, alone.broken) == (0.666667, (1,))

    def test_tenant_with_satisfied_demand_is_not_envious(self) -> None:
        """The first tenant wants one GPU and has it. It could not use the faster GPU as well."""
        snapshot = two_types(E6, demand=1)
        found = certify_round(snapshot, answer({1: (1, 0), 2: (0, 1)}))
        assert found.violated == ()
        assert line(found, P.ENVY_FREE).why.startswith("each is bounded by what its jobs can use")
        assert all(row.capped for row in found.rows)

    def test_envy_is_noted_if_another_tenant_is_capped(self) -> None:
        """The third tenant has all that it can use. Its cap may explain the first tenant's envy."""
        speeds = {1: 2.0, 2: 5.0, 3: 2.0}
        snapshot = two_types(speeds, gpus=2, demand=3)
        shares = {1: (0.5, 0), 2: (0, 1.5), 3: (1.5, 0.5)}
        assert certify_round(snapshot, answer(shares)).violated == (
            P.ENVY_FREE,
            P.SHARING_INCENTIVE,
        )
        jobs = tuple(job for job in snapshot.jobs if job.tenant != 3 or job.gpus == 2)
        capped = certify_round(msgspec.structs.replace(snapshot, jobs=jobs), answer(shares))
        row = line(capped, P.ENVY_FREE)
        assert (row.verdict, row.tenant) == (Verdict.NOTED, 1)
        assert capped.violated == (P.SHARING_INCENTIVE,)

    def test_compares_shares_per_weight(self) -> None:
        twice = {1: 2, 2: 1}
        snapshot = two_types({1: 2.0, 2: 2.0}, gpus=3, weights=twice)
        assert certify_round(snapshot, answer({1: (2, 2), 2: (1, 1)})).violated == ()
        assert line(
            certify_round(snapshot, answer({1: (1.5, 1.5), 2: (1.5, 1.5)})), P.ENVY_FREE
        ).broken == (1,)

    def test_shows_envy_of_whole_gpus_without_violation(self) -> None:
        """Because of rounding, only the second tenant gets the fast GPU.

        The promise is about the ideals before rounding.
        """
        decision = answer(times(COOPERATIVE, 8), grants=(grant(1, 2, ((FAST_NODE, 8),)),))
        envy = line(certify_round(two_types(E6, gpus=8, demand=20), decision), P.ENVY_FREE)
        assert (envy.verdict, envy.in_gpus) == (Verdict.HOLDS, 16)


class TestNonCooperativeRound:
    def test_promises_equal_throughput_but_not_envy_freeness(self) -> None:
        found = certify_round(two_types(E6, **NONCOOPERATIVE), answer(EQUAL))
        assert found.violated == ()
        assert line(found, P.EQUAL_THROUGHPUT).verdict is Verdict.HOLDS
        envy = line(found, P.ENVY_FREE)
        assert (envy.verdict, envy.count) == (Verdict.NOT_PROMISED, 1)
        assert [(row.tenant, row.ideal) for row in found.rows] == [(1, 2.142857), (2, 2.142857)]

    def test_different_throughputs_are_a_violation(self) -> None:
        found = certify_round(two_types(E6, **NONCOOPERATIVE), answer(COOPERATIVE))
        assert found.violated == (P.EQUAL_THROUGHPUT,)
        assert line(found, P.EQUAL_THROUGHPUT).worst == pytest.approx(0.6)

    def test_promises_truthfulness_only_for_one_job_type_each(self) -> None:
        one = certify_round(two_types(E6, **NONCOOPERATIVE), answer(EQUAL))
        # The policy promises the property. It is not measured, because this registry has no policy
        # `oef`.
        assert line(one, P.OVERSTATING).verdict in (Verdict.UNKNOWN, Verdict.HOLDS)
        assert line(one, P.UNDERSTATING).verdict is Verdict.NOT_PROMISED
        snapshot = two_types(E6, **NONCOOPERATIVE)
        second = Profile(3, 1, ((SLOW, 1000), (FAST, 4000)))
        more = msgspec.structs.replace(
            snapshot,
            profiles=(*snapshot.profiles, second),
            jobs=(*snapshot.jobs, Job(id=3, tenant=1, gpus=1, submitted_us=3, profile=3)),
        )
        several = certify_round(more, answer(EQUAL))
        assert line(several, P.OVERSTATING).verdict is Verdict.NOT_PROMISED


class TestLeases:
    def test_exceeding_node_capacity_is_a_violation(self) -> None:
        grants = (grant(1, 1, ((FAST_NODE, 8),)), grant(2, 2, ((FAST_NODE, 8),)))
        found = certify_round(two_types(E6, gpus=8), answer(times(COOPERATIVE, 8), grants=grants))
        row = line(found, P.CAPACITY)
        assert (row.verdict, row.broken) == (Verdict.VIOLATED, (FAST_NODE,))

    def test_ideal_shares_above_capacity_are_a_violation(self) -> None:
        found = certify_round(two_types(E6), answer({1: (1, 0.5), 2: (0, 0.75)}))
        row = line(found, P.CAPACITY)
        assert (row.verdict, row.count, row.worst) == (Verdict.VIOLATED, 0, 0.25)

    def test_partial_gang_is_a_violation(self) -> None:
        decision = answer(times(COOPERATIVE, 8), grants=(grant(1, 1, ((FAST_NODE, 3),)),))
        found = certify_round(two_types(E6, gpus=8), decision)
        assert (found.violated, line(found, P.GANG).broken) == ((P.GANG,), (1,))

    def test_two_leases_of_one_job_are_a_violation(self) -> None:
        grants = (grant(1, 1, ((FAST_NODE, 8),)), grant(2, 1, ((FAST_NODE, 8),)))
        found = certify_round(two_types(E6, gpus=16), answer(times(COOPERATIVE, 16), grants=grants))
        assert (found.violated, line(found, P.SINGLE_HOLD).broken) == ((P.SINGLE_HOLD,), (1,))

    def test_running_lease_on_drained_node_is_no_violation(self) -> None:
        kept = snapshots.lease(1, 1, (9, 4), expires_us=AT_US + 1)
        snapshot = snapshots.snapshot([snapshots.job(1, 4)], [kept], nodes={9: 0})
        assert certify_round(snapshot, decide_round(snapshot)).violated == ()


def served(
    rhos: dict[int, float], order: list[int], note: str = "", passed_us: int | None = None
) -> tuple[Any, Decision]:
    """Return a round of ltgf in which tenants with these rhos get one GPU each, in this order."""
    hour = 3_600_000_000
    claims = tuple(
        ClaimService(t, FAST, AT_US, quota=1, demand=9, alloc_gpu_us=round(rho * hour * 100),
                     fair_gpu_us=hour * 100)
        for t, rho in sorted(rhos.items())
    )  # fmt: skip
    jobs = tuple(
        Job(id=place, tenant=tenant, gpus=1, submitted_us=place)
        for place, tenant in enumerate(order, start=1)
    )
    passed = {} if passed_us is None else {"passed": {str(job.id): passed_us for job in jobs}}
    snapshot = two_types(
        dict.fromkeys(rhos, 1.0), gpus=8, policy="ltgf", jobs=jobs, profiles=(), memory=passed
    )
    grants = tuple(
        Grant(job.id, job.id, job.tenant, FAST, ((FAST_NODE, 1),), Key(None, None, note))
        for job in jobs
    )
    service = Service(at_us=AT_US, claims=claims)
    return snapshot, Decision(at_us=AT_US, grants=grants, service=service)


class TestLongTermOrder:
    def test_holds_if_lower_rho_was_served_first(self) -> None:
        found = certify_round(*served({1: 0.5, 2: 0.9}, [1, 1, 2]))
        row = line(found, P.LONG_TERM_ORDER)
        assert (row.verdict, row.checked, row.basis) == (Verdict.HOLDS, 3, Basis.SUMS)

    def test_counts_leases_granted_in_the_round(self) -> None:
        """Each lease adds 0.01 to rho, so a lease would move the first tenant behind the second."""
        assert certify_round(*served({1: 0.500, 2: 0.505}, [1, 2, 1])).violated == ()
        assert certify_round(*served({1: 0.500, 2: 0.505}, [1, 1, 2])).violated == (
            P.LONG_TERM_ORDER,
        )

    def test_is_violated_if_higher_rho_was_served_first(self) -> None:
        found = certify_round(*served({1: 0.5, 2: 0.9}, [2, 1]))
        assert (found.violated, line(found, P.LONG_TERM_ORDER).broken) == (
            (P.LONG_TERM_ORDER,),
            (2,),
        )

    def test_allows_long_skipped_gang_with_reservation_first(self) -> None:
        rhos = {1: 0.5, 2: 0.9}
        late_us = AT_US - 3 * HOUR_US
        assert certify_round(*served(rhos, [2, 1], "reserved", late_us)).violated == ()
        # The job was skipped for only one lease length, so it must not go first.
        soon_us = AT_US - HOUR_US
        said = [served(rhos, [2, 1], "reserved", soon_us), served(rhos, [2, 1], "reserved")]
        assert [certify_round(*one).violated for one in said] == [(P.LONG_TERM_ORDER,)] * 2

    def test_holds_in_rounds_of_ltgf(self) -> None:
        jobs = [snapshots.job(n, 1 + n % 3, tenant=1 + n % 3) for n in range(1, 40)]
        quotas = [Entitlement(1, "v100", 4), Entitlement(2, "v100", 8), Entitlement(3, "v100", 2)]
        held = [snapshots.lease(n, n, (n, 1 + n % 3), tenant=1 + n % 3) for n in range(1, 8)]
        snapshot = snapshots.snapshot(
            jobs, held, nodes=dict.fromkeys(range(1, 8), 4), quotas=quotas
        )
        found = certify_round(snapshot, decide_round(snapshot))
        assert (found.failure, found.violated) == ("", ())
        assert line(found, P.LONG_TERM_ORDER).checked > 10

    def test_is_not_promised_by_other_policies(self) -> None:
        snapshot, decision = served({1: 0.5, 2: 0.9}, [2, 1])
        found = certify_round(msgspec.structs.replace(snapshot, policy="fifo"), decision)
        assert line(found, P.LONG_TERM_ORDER).verdict is Verdict.NOT_PROMISED


class TestCertificate:
    def test_marks_speed_properties_not_applicable_without_speeds(self) -> None:
        snapshot = snapshots.snapshot([snapshots.job(1, 2)], nodes={1: 4})
        found = certify_round(snapshot, decide_round(snapshot))
        assert line(found, P.OVERSTATING).verdict is Verdict.NOT_APPLICABLE
        assert line(found, P.ENVY_FREE).why == "only one has jobs"

    def test_empty_pool_has_no_violation(self) -> None:
        snapshot = snapshots.snapshot([], nodes={}, quotas=())
        found = certify_round(snapshot, decide_round(snapshot))
        assert (found.failure, found.violated, found.rows) == ("", (), ())

    def test_round_trips_through_json(self) -> None:
        found = certify_round(two_types(E6), answer({1: (1, 0), 2: (0, 1)}))
        text = msgspec.json.encode(plain(found))
        assert read(msgspec.json.decode(text)) == found
        assert plain(found)["violated"] == ["envy_free", "sharing_incentive"]
        assert plain(certify_round(two_types(E6), answer(COOPERATIVE)))["violated"] == []

    def test_limits_rows_and_size(self) -> None:
        speeds = dict.fromkeys(range(1, 301), 2.0)
        even = dict.fromkeys(speeds, (1 / 300, 1 / 300))
        found = certify_round(two_types(speeds), answer(even))
        assert (len(found.rows), found.left_out) == (MAX_ROWS, 100)
        assert len(msgspec.json.encode(plain(found))) < 40_000

    def test_measures_only_leases_if_rows_exceed_limit(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(measure, "MAX_MEASURED", 1)
        found = certify_round(two_types(E6), answer({1: (1, 0), 2: (0, 1)}))
        assert found.violated == ()
        row = line(found, P.ENVY_FREE)
        assert (row.verdict, row.why[:11]) == (Verdict.UNKNOWN, "2 job types")
        assert line(found, P.GANG).verdict is Verdict.HOLDS

    def test_shows_that_solver_found_no_optimum(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pareto, "OPTIONS", (("simplex_iteration_limit", 0),))
        found = certify_round(two_types(E6), answer({1: (0.5, 0), 2: (0, 0.5)}))
        row = line(found, P.PARETO)
        assert (row.verdict, row.worst) == (Verdict.NOT_PROMISED, None)
        assert "solver ended" in row.why

    def test_records_failure_without_raising(self) -> None:
        broken = msgspec.structs.replace(two_types(E6), entitlements=None)
        found = certify_round(broken, answer(COOPERATIVE))
        assert found.failure.startswith("TypeError")
        assert plain(found)["violated"] == []


class TestRoundingNoise:
    def test_scales_tolerance_by_weight_of_small_share(self) -> None:
        """8 GPUs are split 1000 : 1, and the small share is a micro-GPU too large.

        By weight this is a thousandth of a GPU.
        """
        found = Allocation(
            rows=((1, 0), (2, 0)),
            gpu_types=("k80",),
            speedups=np.ones((2, 1)),
            shares=np.array([[7.992007], [0.007993]]),
            capacity=np.array([8.0]),
            weights=np.array([1000.0, 1.0]),
            demand=np.array([100.0, 100.0]),
        )
        gain = envy_matrix(found.speedups, found.shares, found.weights, found.demand)
        assert found.noise[0] < gain[0, 1] < found.noise_against[0, 1]
        assert found.noise_against[1, 0] == pytest.approx(found.noise[1])
