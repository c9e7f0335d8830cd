"""Test each query of a tenant's scope against the same query for all tenants (tests/scope.py)."""

from __future__ import annotations

import pytest
from django.db import connection

from scheduling.models import Job
from tenants.scopes import site_scope, tenant_scope
from tests.factories import Cluster, cluster
from tests.scope import uncompared

pytestmark = pytest.mark.django_db


@pytest.fixture
def lab() -> Cluster:
    made = cluster({"a": 1, "b": 1})
    for tenant in "ab":
        made.submit(tenant, 1, 60)
    return made


class TestQueryInTenantScope:
    def test_missing_filter_raises_if_site_scope_finds_more(self, lab: Cluster) -> None:
        tenant = lab.tenants["a"].pk
        with tenant_scope(tenant), pytest.raises(AssertionError, match="finds less in the scope"):
            Job.objects.count()
        with tenant_scope(tenant), uncompared():
            assert Job.objects.count() == 1

    def test_missing_filter_raises_after_rollback_of_wider_scope(self, lab: Cluster) -> None:
        def fail() -> None:
            with site_scope():
                raise LookupError

        with tenant_scope(lab.tenants["a"].pk):
            with pytest.raises(LookupError):
                fail()
            with pytest.raises(AssertionError, match="finds less in the scope"):
                Job.objects.count()

    def test_keeps_its_scope_after_comparison(self, lab: Cluster) -> None:
        tenant = lab.tenants["a"].pk
        with tenant_scope(tenant):
            mine = Job.objects.filter(tenant=tenant, name__contains="%")
            assert (mine.count(), Job.objects.filter(tenant=tenant).count()) == (0, 1)
            with connection.cursor() as cursor:
                cursor.execute("SELECT current_setting('evenshare.scope')")
                assert cursor.fetchone() == (f"{{{tenant}}}",)
        with site_scope():
            assert Job.objects.count() == 2
