"""Test that a policy that decides in batches misses no job that arrives between two batches."""

from __future__ import annotations

import pytest

from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import Cluster, SimJob, make_nodes
from evenshare_core.units import MINUTE_US, SECOND_US

BATCHED = "market"


@pytest.mark.parametrize("round_s", [0, 1, 10, 60])
def test_job_arriving_between_batches_starts_at_next(round_s: int) -> None:
    """The first job ends before the second one arrives, and no other event occurs."""
    jobs = (
        SimJob(1, 1, 1, 0, 5 * SECOND_US),
        SimJob(2, 1, 1, 10 * SECOND_US, 5 * SECOND_US),
    )
    quotas = (Entitlement(1, "v100", 0), Entitlement(2, "v100", 8))
    rules = Rules(
        BATCHED, {"interval_s": 60}, round_us=round_s * SECOND_US, lease_us=10 * MINUTE_US
    )
    result = simulate(Cluster(make_nodes({"v100": 1}, 8), quotas), jobs, rules)
    assert result.stranded == ()
    starts_s = [row.start_us // SECOND_US for row in result.books.leases]
    assert starts_s == [0, 60 if round_s else 10]
