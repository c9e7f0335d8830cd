"""Test use and rho over time: each viewer's view, in a single query."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from scheduling.models import Round
from scheduling.selectors.rounds.histories import claim_history, joined, pool_history
from scheduling.selectors.visibility import read_visibility
from tenants.models import User
from tenants.scopes import site_scope
from tenants.selectors.access import access_of
from tests.factories import BEGIN
from tests.functional.pool_stage import Stage

DAY = timedelta(days=1)


@pytest.fixture
def there(settled: Stage) -> Stage:
    return settled


def seen_by(there: Stage, name: str) -> Any:
    return read_visibility(there.lab.pool.pk, access_of(User.objects.get(username=name)))


class TestPoolHistory:
    def test_matches_claim_history_of_tenant(self, there: Stage) -> None:
        pool = there.lab.pool.pk
        with site_scope():
            history = pool_history(pool, seen_by(there, "operator"), since=BEGIN - DAY)
            claims = claim_history(pool, there.tenant("alpha").pk, since=BEGIN - DAY)
        alpha = next(one for one in history.tenants if one.tenant and one.tenant.slug == "alpha")
        assert history.at == tuple(point.at for point in claims)
        assert list(alpha.use) == [point.use for point in claims]
        rhos = [point.rho for point in claims]
        assert [value is None for value in alpha.rho] == [value is None for value in rhos]
        pairs = [(a, b) for a, b in zip(alpha.rho, rhos, strict=True) if a is not None]
        assert pairs
        assert all(a == pytest.approx(b) for a, b in pairs)

    def test_sums_other_tenants_if_pool_hides_them(self, there: Stage) -> None:
        pool = there.lab.pool.pk
        with site_scope():
            whole = pool_history(pool, seen_by(there, "operator"), since=BEGIN - DAY)
        there.see("own")
        with site_scope():
            part = pool_history(pool, seen_by(there, "owner"), since=BEGIN - DAY)
        assert [one.tenant and one.tenant.slug for one in part.tenants] == ["alpha", None]
        assert set(part.tenants[-1].rho) == {None}
        sums = [
            [sum(uses) for uses in zip(*(c.use for c in h.tenants), strict=True)]
            for h in (whole, part)
        ]
        assert sums[0] == sums[1]

    def test_reads_each_period_in_one_query_and_joins_periods(
        self, there: Stage, django_assert_num_queries: Any
    ) -> None:
        pool, visibility = there.lab.pool.pk, seen_by(there, "operator")
        with site_scope():
            whole = pool_history(pool, visibility, since=BEGIN - DAY)
            middle = whole.at[5]
            with django_assert_num_queries(2):
                parts = [
                    pool_history(pool, visibility, since=BEGIN - DAY, until=middle),
                    pool_history(pool, visibility, since=middle),
                ]
            assert joined(parts) == whole
            few = pool_history(pool, visibility, since=BEGIN - DAY, points=4)
        assert len(few.at) <= 4
        assert few.at[-1] == whole.at[-1]

    def test_filters_by_gpu_type_with_quota_after_trades(self, there: Stage) -> None:
        last = Round.objects.filter(pool=there.lab.pool).latest("number")
        alpha, beta = there.tenant("alpha").pk, there.tenant("beta").pk
        gpus = {alpha: {"own": 1, "quota": 2, "swapped": -2}, beta: {"own": 0, "quota": 3}}
        empty = {
            "borrowed": 0,
            "got": 0,
            "demand": 0,
            "deserved": 0,
            "rho_before": None,
            "alloc_gpu_us": 10**9,
            "fair_gpu_us": 0,
        }
        last.shares += [
            {"tenant": tenant, "gpu_type": "k80", **row, **empty} for tenant, row in gpus.items()
        ]
        last.pk, last.number, last.at = None, last.number + 1, last.at + DAY
        last.save(force_insert=True)
        read = {"visibility": seen_by(there, "operator"), "since": BEGIN - DAY}
        with site_scope():
            whole = pool_history(there.lab.pool.pk, **read)
            k80 = pool_history(there.lab.pool.pk, gpu_type="k80", **read)
            v100 = pool_history(there.lab.pool.pk, gpu_type="v100", **read)
        rounds = len(whole.at)
        assert k80.at == v100.at == whole.at
        rows = {one.tenant.slug: one for one in k80.tenants if one.tenant}
        assert set(rows) == {"alpha", "beta", "gamma"}
        assert rows["alpha"].use == (*[0] * (rounds - 1), 1)
        assert rows["alpha"].quota == (*[0] * (rounds - 1), 0)
        assert rows["alpha"].swapped == (*[0] * (rounds - 1), -2)
        assert (rows["beta"].quota[-1], rows["beta"].swapped[-1]) == (3, 0)
        for all_types, one, other in zip(whole.tenants, k80.tenants, v100.tenants, strict=True):
            for name in ("use", "quota", "swapped"):
                parts = zip(getattr(one, name), getattr(other, name), strict=True)
                assert getattr(all_types, name) == tuple(map(sum, parts))
            # A rho of a single type would be relative to the quota before trades.
            assert all_types.rho == one.rho == other.rho
            assert all_types.sums == one.sums == other.sums

    def test_is_empty_without_rounds(self, there: Stage) -> None:
        with site_scope():
            history = pool_history(
                there.lab.pool.pk, seen_by(there, "operator"), since=BEGIN + 900 * DAY
            )
        assert (history.at, history.tenants) == ((), ())
