"""Test terms whose lengths a policy sets: the engine and the simulator agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evenshare_core.domain.instants import to_us
from evenshare_core.domain.invariants import InvariantViolation
from evenshare_core.policies import registry
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.units import SECOND_US
from scheduling.models import LeaseTerm
from tests.factories import BEGIN, cluster
from tests.simulation.test_live_equals_simulated import (
    GPUS,
    HOUR_S,
    NODES,
    QUOTAS,
    ROUND_S,
    live_hour,
    live_leases,
    live_terms,
    simulated_cluster,
    simulated_leases,
    simulated_terms,
    submit_all,
)
from tests.toy_policy.lengths import POLICY

pytestmark = pytest.mark.usefixtures("committed_db")
LEASE_S, LEAST_S, MOST_S = 120, 60, 300


@pytest.fixture(autouse=True)
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)
    monkeypatch.setattr(POLICY, "bounds_us", (LEAST_S * SECOND_US, MOST_S * SECOND_US))


class TestSeededHourWithTermLengths:
    def test_leases_terms_and_charges_match_live_pool(self) -> None:
        lab = cluster(
            QUOTAS, nodes=NODES, gpus=GPUS, round_s=ROUND_S, lease_s=LEASE_S, policy=POLICY.name,
            least_lease_s=LEAST_S, most_lease_s=MOST_S,
        )  # fmt: skip
        jobs = submit_all(lab, 7, limited=False)
        rounds = live_hour(lab, {})
        rules = Rules(
            POLICY.name, round_us=ROUND_S * SECOND_US, lease_us=LEASE_S * SECOND_US,
            lease_bounds_us=(LEAST_S * SECOND_US, MOST_S * SECOND_US),
        )  # fmt: skip
        expected = live_leases()
        for fast_forward in (True, False):
            outcome = simulate(
                simulated_cluster(lab), tuple(jobs), rules, start_us=to_us(BEGIN),
                until_us=to_us(BEGIN) + HOUR_S * SECOND_US, fast_forward=fast_forward,
            )  # fmt: skip
            assert simulated_leases(outcome) == expected
            assert simulated_terms(outcome) == live_terms()
            assert outcome.rounds == rounds
        given = {
            (term.lease.gpus, (term.expires_at - term.starts_at).total_seconds())
            for term in LeaseTerm.objects.select_related("lease")
        }
        assert given >= {(1, MOST_S), (2, LEASE_S), (4, LEAST_S)}
        assert {length for _, length in given} == {LEAST_S, LEASE_S, MOST_S}
        assert LeaseTerm.objects.filter(number__gt=1).exists()
        # Without bounds of lease lengths, the same jobs have other terms.
        plain = simulate(
            simulated_cluster(lab), tuple(jobs), replace(rules, lease_bounds_us=()),
            start_us=to_us(BEGIN), until_us=to_us(BEGIN) + HOUR_S * SECOND_US, fast_forward=False,
        )  # fmt: skip
        assert simulated_terms(plain) != live_terms()

    def test_rejects_term_lengths_outside_pool_bounds(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tests.toy_policy.lengths.length_us", lambda *_: SECOND_US)
        lab = cluster(
            QUOTAS, nodes=NODES, gpus=GPUS, policy=POLICY.name, lease_s=LEASE_S,
            least_lease_s=LEAST_S,
        )  # fmt: skip
        lab.submit("a", 1, 100)
        with pytest.raises(InvariantViolation, match="lasts 1 s, the pool allows 60 to 120 s"):
            lab.round()
        assert not LeaseTerm.objects.exists()
