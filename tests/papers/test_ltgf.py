"""Worked examples of LTGF (TPDS 2021) and its scheduler."""

from __future__ import annotations

import pytest

from scheduling.domain.cluster import Node
from scheduling.domain.entitlements import Entitlement
from scheduling.domain.jobs import Job
from scheduling.domain.snapshot import Change, ChangeKind, Service
from scheduling.fairness.gpu_time import ServiceView, advance
from tests.papers.pool_loop import MINUTE_US, Pool, Run


def fig6(order: str = "J1 J2 J3") -> Pool:
    """Fig. 6: one tenant, 6 GPUs; J1 needs 6, J2 and J3 need 3 each, 40 min each.

    Jobs have the ids 1, 2, 3 of their names; `order` is the order of submission.
    """
    arrival = {int(name[1]): place for place, name in enumerate(order.split())}
    gpus = {1: 6, 2: 3, 3: 3}
    runs = [
        Run(Job(id=i, tenant=1, gpus=gpus[i], submitted_us=arrival[i]), 40 * MINUTE_US)
        for i in (1, 2, 3)
    ]
    pool = Pool(
        nodes=(Node(1, "v100", 6),), entitlements=(Entitlement(1, "v100", 6),), runs=runs,
        options={"work_conserving": False, "reserve_after_leases": 0}, at_us=0,
    )  # fmt: skip
    for run in pool.runs:  # submitted together, told apart by the order of the changes
        pool.arrived.add(run.job.id)
        pool._change(ChangeKind.ACTIVE, 1, job=run.job.id, gpus=run.job.gpus)
    return pool


class TestGoldenCase1:
    """Fig. 6: J1 runs one round for every two rounds of J2 and J3."""

    @pytest.mark.parametrize("work_conserving", [False, True])
    def test_runs_j1_then_j2_and_j3_twice(self, work_conserving: bool) -> None:
        pool = fig6()
        pool.options["work_conserving"] = work_conserving
        rounds = []
        for _ in range(8):
            decision = pool.round()
            terms = [*decision.grants, *decision.renewals]
            rounds.append(" ".join(f"J{job}" for job in sorted(term.job for term in terms)))
        assert rounds == ["J1", "J2 J3", "J2 J3", "J1", "J2 J3", "J2 J3", "J1", "J1"]
        assert {run.job.id: run.ended_us for run in pool.runs} == {
            1: 80 * MINUTE_US, 2: 60 * MINUTE_US, 3: 60 * MINUTE_US,
        }  # fmt: skip

    def test_other_submission_order_does_not_give_the_figure(self) -> None:
        pool = fig6("J2 J1 J3")
        first = pool.round()
        assert [grant.job for grant in first.grants] == [2]
        for _ in range(9):
            pool.round()
        assert sorted(run.ended_us or 0 for run in pool.runs) == [
            60 * MINUTE_US, 70 * MINUTE_US, 90 * MINUTE_US,
        ]  # fmt: skip
