"""Test that a dry run under `unisched` shows the next round's answer and its probability."""

from __future__ import annotations

from datetime import timedelta

import pytest

from evenshare_core.domain.estimates import EstimateSource
from scheduling.models import Job, JobAnswer, Round, VirtualSpeeds
from scheduling.requests.jobs import JobRequest
from scheduling.selectors.pools.offers import pool_offer
from scheduling.selectors.rounds.stored import round_values
from scheduling.services.deadline_preview import preview_deadline
from tenants.scopes import site_scope
from tests.factories import Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")

DURATIONS_S = (560, 600, 660)


@pytest.fixture
def lab() -> Cluster:
    """Return a pool in which three jobs of a type have run, each declared to take 600 s."""
    lab = cluster({"a": 8, "b": 8}, nodes=2, gpus=8, round_s=10, lease_s=60, policy="unisched")
    profile = lab.profile("a", "nightly", v100=1000)
    VirtualSpeeds.objects.create(
        profile=profile, tenant=profile.tenant, speedups={"v100": 1000}, iteration_us=10**6
    )
    for seconds in DURATIONS_S:
        lab.submit("a", 2, seconds, profile=profile, estimate_s=600)
    lab.rounds(14, every_s=60)
    assert not Job.objects.exclude(state="succeeded").exists()
    return lab


def test_dry_run_matches_answer_of_next_round(lab: Cluster) -> None:
    tenant = lab.tenants["a"]
    request = JobRequest(
        pool=lab.pool.name, gpus=2, profile="nightly", estimate_s=600, job_class="strict_slo",
        deadline="11m",
    )  # fmt: skip
    with site_scope():
        offer = pool_offer(lab.pool.name, tenant.pk)
    assert offer is not None
    preview = preview_deadline(tenant_id=tenant.pk, request=request, offer=offer, now=lab.now())
    assert not JobAnswer.objects.exists()
    profile = VirtualSpeeds.objects.get().profile
    job = lab.submit(
        "a", 2, 620, profile=profile, estimate_s=600, job_class="strict_slo",
        deadline_at=lab.at + timedelta(minutes=11),
    )  # fmt: skip
    lab.round(after_s=10)
    seen = round_values(Round.objects.latest("number"))[0]
    (estimate,) = [row for row in seen.estimates if row.id == job.pk]
    assert estimate.source is EstimateSource.DECLARED
    assert 50 <= estimate.error_milli <= 100
    answer = JobAnswer.objects.get(job=job)
    assert preview.answer is not None
    assert (preview.number, preview.answer.state) == (answer.round, answer.state)
    assert preview.answer.chance_milli == answer.chance_milli
    # The job has one minute of eleven to spare, and the declared durations were wrong by 7 %.
    assert answer.chance_milli in range(800, 980)
