"""The market through the real engine: the simulator's leases, terms and charges, and its replay.

The seeded hour has jobs with utilities of every kind, default bids, and some estimates.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from django.core.management import call_command

from evenshare_core.domain.instants import to_us
from evenshare_core.domain.utilities import read_utility, utility_data
from evenshare_core.simulation.workloads import SimJob
from evenshare_core.units import SECOND_US
from scheduling.models import JobPlan, Round
from scheduling.selectors.rounds.replay import find_rounds, replay_stored_round
from scheduling.selectors.rounds.stored import round_decision
from tests.factories import BEGIN, Cluster, cluster
from tests.simulation.test_live_equals_simulated import (
    GPUS,
    HOUR_S,
    LEASE_S,
    NODES,
    QUOTAS,
    ROUND_S,
    live_hour,
    live_leases,
    live_terms,
    simulated_hour,
    simulated_leases,
    simulated_terms,
)

pytestmark = pytest.mark.usefixtures("committed_db")

UTILITIES = (
    None,
    "bid per_gpu_hour=0.35",
    "bid per_gpu_hour=1.4",
    "linear k=-1.5 g=0.6",
    "convex e=0.02 kappa=1.2",
)


def submit_valued(lab: Cluster, seed: int, count: int = 60) -> list[SimJob]:
    """Submit jobs over the hour that request more GPUs than `QUOTAS`."""
    rng = Random(seed)  # noqa: S311 - a history, not a secret
    rows = []
    for after_s in sorted(rng.randrange(HOUR_S) for _ in range(count)):
        tenant, gpus = rng.choice("abcd"), rng.choice((1, 1, 2, 4))
        duration_s = max(5, int(rng.lognormvariate(5.2, 1.0)))
        text = rng.choice(UTILITIES)
        fields: dict[str, Any] = {}
        if text is not None:
            fields["utility"] = utility_data(read_utility(0, text))
        if rng.random() < 0.6:
            fields["estimate_s"] = duration_s
        job = lab.submit(tenant, gpus, duration_s, after_s=after_s, **fields)
        estimate_s = fields.get("estimate_s")
        rows.append(
            SimJob(
                id=job.pk, tenant=lab.tenants[tenant].pk, gpus=gpus,
                submitted_us=to_us(BEGIN) + after_s * SECOND_US,
                duration_us=duration_s * SECOND_US,
                estimate_us=None if estimate_s is None else estimate_s * SECOND_US,
                utility=None if text is None else read_utility(job.pk, text),
            )
        )  # fmt: skip
    return rows


class TestSeededHour:
    @pytest.mark.parametrize(
        ("seed", "options", "reason"),
        [
            (1, {"theta": "fixed", "horizon_s": LEASE_S}, "price_above_value"),
            (2, {}, "planned_later"),
        ],
    )
    def test_leases_terms_and_charges_match_live_pool(
        self, seed: int, options: dict[str, Any], reason: str
    ) -> None:
        """With a horizon of one lease, jobs are refused that a longer horizon plans for later."""
        lab = cluster(
            QUOTAS, nodes=NODES, gpus=GPUS, round_s=ROUND_S, lease_s=LEASE_S, policy="market",
            options=options,
        )  # fmt: skip
        jobs = submit_valued(lab, seed)
        rounds = live_hour(lab, {})
        outcome = simulated_hour(lab, jobs, "market")
        assert len(live_leases()) > 30
        assert simulated_leases(outcome) == live_leases()
        assert simulated_terms(outcome) == live_terms()
        assert sum(row.charge_micro for row in outcome.books.terms) > 0
        assert outcome.rounds == rounds
        assert reason in self._replayed_reasons(lab)
        call_command("check_ledger")

    @staticmethod
    def _replayed_reasons(lab: Cluster) -> set[str]:
        """Replay every round from its bytes, and compare its plans with their rows."""
        newest: dict[int, tuple[int, str]] = {}
        reasons = set()
        for row in Round.objects.order_by("number"):
            decision = round_decision(row)
            newest |= {plan.job: (row.number, plan.kind.value) for plan in decision.plans}
            reasons |= {skip.reason.value for skip in decision.skips}
        plans = JobPlan.objects.values_list("job_id", "round", "kind")
        assert {job: (number, kind) for job, number, kind in plans} == newest
        for stored in find_rounds(lab.pool.name, (), every=True):
            replay = replay_stored_round(stored)
            assert replay.same
            assert replay.certified is True
            assert stored.certificate is not None
            assert stored.certificate["violated"] == []
        return reasons
