"""Test that surcharges in the live engine equal the simulator's, and replay to the byte."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from billing.models import PostedPrice
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.units import HOUR_US, SECOND_US
from scheduling.models import PriceSetting
from scheduling.selectors.rounds.replay import find_rounds, replay_stored_round
from tests.factories import cluster as live_cluster
from tests.simulation.test_live_equals_simulated import (
    HOUR_S,
    LEASE_S,
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
from tests.simulation.test_surcharges import ON


@pytest.mark.usefixtures("committed_db")
class TestSeededHour:
    def test_prices_leases_terms_and_charges_match_live_pool(self) -> None:
        policy = "evenshare"
        lab = live_cluster(QUOTAS, nodes=3, gpus=4, round_s=ROUND_S, lease_s=LEASE_S, policy=policy)
        PriceSetting.objects.update_or_create(
            pool=lab.pool, gpu_type=lab.gpu_type, defaults={"surcharge_cap": 3}
        )
        jobs = submit_all(lab, 2, limited=True)
        rounds = live_hour(lab, {})
        cluster = replace(simulated_cluster(lab, jobs), surcharges=ON[1:])
        rules = Rules(policy, lab.pool.options, ROUND_S * SECOND_US, lab.pool.lease_s * SECOND_US)
        start_us = jobs[0].submitted_us - jobs[0].submitted_us % HOUR_US
        outcome = simulate(
            cluster, tuple(jobs), rules, start_us=start_us, until_us=start_us + HOUR_S * SECOND_US
        )
        assert simulated_leases(outcome) == live_leases()
        assert simulated_terms(outcome) == live_terms()
        assert outcome.rounds == rounds
        posted = PostedPrice.objects.order_by("valid_from_round")
        surcharges = [to_micro(row.surcharge or Decimal(0)) for row in posted]
        assert len(set(surcharges)) > 20
        assert max(row.queued or 0 for row in posted) > 3
        replays = [replay_stored_round(row) for row in find_rounds(lab.pool.name, (), every=True)]
        assert len(replays) == rounds
        assert all(one.same for one in replays)
