"""Test `GET /quotas/use`: GPUs held within and above the quotas, by tenant."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from scheduling.selectors.sharing.quota_use import list_quota_use
from tenants.models import Quota, User
from tests.functional.api_stage import ApiStage, api_stage


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("committed_db")
    return api_stage()


def row(stage: ApiStage, tenant: str, **use: int) -> object:
    return {
        "tenant": tenant, "pool": stage.pool, "gpu_type": stage.cluster.gpu_type.name,
        **use,
    }  # fmt: skip # rows of what belongs together


class TestQuotaUse:
    def test_splits_held_gpus_by_quota(self, stage: ApiStage) -> None:
        assert stage.get("quotas/use").json() == {
            "results": [row(stage, "aa", gpus=3, own=0, traded=0, idle=3, borrowed=0)],
            "next": None,
        }
        stage.cluster.submit("aa", 4, 60)
        stage.cluster.round()
        assert stage.get("quotas/use").json()["results"] == [
            row(stage, "aa", gpus=3, own=3, traded=0, idle=0, borrowed=1)
        ]
        # Leases of other tenants do not count.
        assert stage.get("quotas/use", as_="bob").json()["results"] == [
            row(stage, "bb", gpus=5, own=0, traded=0, idle=5, borrowed=0)
        ]

    def test_states_own_gpus_above_quota_as_traded(self, stage: ApiStage) -> None:
        """Regression: "used 3 of quota 1, borrowed 1" does not add up."""
        stage.cluster.submit("aa", 4, 60)
        stage.cluster.round()
        Quota.objects.filter(tenant__slug="aa").update(gpus=1)
        assert stage.get("quotas/use").json()["results"] == [
            row(stage, "aa", gpus=1, own=3, traded=2, idle=0, borrowed=1)
        ]

    def test_lists_all_tenants_for_operator(self, stage: ApiStage) -> None:
        stage.person("olga", site_role=User.SiteRole.OPERATOR)
        rows = stage.get("quotas/use", as_="olga").json()["results"]
        assert [one["tenant"] for one in rows] == ["aa", "bb"]

    def test_hides_other_pools_and_tenants(self, stage: ApiStage) -> None:
        assert stage.get("quotas/use?pool=none").status_code == 404
        assert stage.get("quotas/use?tenant=bb").status_code == 404
        assert stage.get(f"quotas/use?pool={stage.pool}&tenant=aa").status_code == 200

    def test_takes_two_queries(self, stage: ApiStage, django_assert_num_queries: Any) -> None:
        times = {stage.cluster.pool.pk: stage.cluster.now().pool_at}
        with django_assert_num_queries(2):
            assert len(list_quota_use(None, times)) == 2

    def test_leaves_out_ended_quotas(self, stage: ApiStage) -> None:
        end = stage.cluster.now().pool_at + timedelta(seconds=1)
        Quota.objects.update(valid_until=end)
        pool = stage.cluster.pool.pk
        assert len(list_quota_use(None, {pool: end - timedelta(microseconds=1)})) == 2
        assert list_quota_use(None, {pool: end}) == []
