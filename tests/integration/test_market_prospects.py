"""Test that the start's cost on pages equals the price posted later, if the policy sets theta."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from billing.metering import meter_pool
from billing.models import PostedPrice
from evenshare_core.money.fixed_point import to_credits
from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.units import CREDIT_MICRO
from portal.pools.text.one_more import one_more_gpu
from scheduling.selectors.tenants.prospects import StartProspect, prospects
from scheduling.services.dry_run import dry_run_job
from tests.factories import Cluster, cluster
from tests.round_states import add_state, left_by

pytestmark = pytest.mark.usefixtures("committed_db")

THETA = Decimal(9)  # 1 + the highest value of an hour in base rates, which is 8
BID = {"kind": "bid", "per_gpu_hour": "8"}


def market() -> Cluster:
    """Return a pool of 8 GPUs, 4 of which are used by a job worth 8 credits an hour."""
    lab = cluster({"a": 4, "b": 4}, policy="market")
    lab.submit("b", 4, 10_000, utility=BID)
    lab.round()
    lab.round(after_s=60)
    return lab


def eta(used: int) -> Decimal:
    return to_credits(posted_price_micro(CREDIT_MICRO, int(THETA) * 1000, used, 8))


def first(lab: Cluster, tenant: str) -> StartProspect:
    (start,) = prospects(lab.pool.pk, lab.tenants[tenant].pk, at=lab.at)
    return start


def test_price_uses_posted_theta() -> None:
    lab = market()
    start = first(lab, "b")
    assert (start.price, start.theta) == (eta(4), THETA)
    meter_pool(lab.pool.pk)
    newest = PostedPrice.objects.filter(pool=lab.pool).latest("valid_from_round")
    assert start.theta == newest.theta
    (more,) = one_more_gpu([start], lab.pool.lease_s)
    assert more.after == eta(5)
    run = dry_run_job(
        tenant=lab.tenants["b"],
        spec={"pool": lab.pool.name, "gpus": 2, "command": ["true"], "duration_s": 60},
        now=lambda _: lab.now(),
    )
    assert (run.price, run.price_after) == (eta(4), eta(6))


def test_price_defaults_to_theta_of_operator() -> None:
    lab = market()
    left = left_by(lab.pool)
    kept = [{k: v for k, v in one.items() if k != "theta_milli"} for one in left.prices]
    add_state(lab.pool, left.number + 1, kept)
    assert first(lab, "b").theta == 2


TOO_DEAR = ("price_above_max", "")


@pytest.mark.parametrize(
    ("more", "code", "value"),
    [
        ({"utility": {"kind": "bid", "per_gpu_hour": "8"}}, "", ""),
        ({"utility": {"kind": "bid", "per_gpu_hour": "4"}}, "price_above_value", "4"),
        ({"max_price": "5"}, "", ""),
        ({"utility": {"kind": "bid", "per_gpu_hour": "8"}, "max_price": "4"}, *TOO_DEAR),
        ({"max_price": "4"}, *TOO_DEAR),
        ({}, "price_above_value", "1"),  # the default bid is the base rate
    ],
)
def test_dry_run_predicts_result_of_next_batch(more: dict[str, Any], code: str, value: str) -> None:
    """With 2 more GPUs than the 4 in use, eta(6) is 4.196152, so a bid of 4 is too low."""
    lab = market()
    spec = {"pool": lab.pool.name, "gpus": 2, "command": ["true"], "duration_s": 600, **more}
    run = dry_run_job(tenant=lab.tenants["b"], spec=spec, now=lambda _: lab.now())
    assert (run.feasible, run.reason_code) == (True, code)
    sentence = f"The job values a GPU-hour of v100 at {value}"
    if code == "price_above_max":
        sentence = f"A GPU-hour costs {eta(6)} credits; the maximum of the job or its tenant is 4"
    assert sentence in run.detail or not code
    job = lab.submit("b", 2, 600, **more)
    lab.round(after_s=60)
    job.refresh_from_db()
    # With a long horizon the job is planned for later, when the price may have fallen.
    assert job.reason_code == (code and "planned_later")
    assert job.state == ("pending" if code else "running")
