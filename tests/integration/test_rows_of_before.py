"""Rows of before a migration are as they were, or in the form that replaced theirs."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connections

from billing.checks import run_checks
from scheduling.models import Job, Verification
from tenants.models import User
from tests.factories import Cluster, cluster

BEFORE = "0039_node_engine_state"
BID = {"kind": "bid", "per_gpu_hour": "0.8"}
SAID = """
INSERT INTO scheduling_verification (uid, tenant_id, pool_id, user_id, kind, size, root, first,
                                     last, checked, findings, client)
VALUES (%s, %s, %s, %s, 'rounds', 1, repeat('0', 64), 1, 1, 1, 0, 'c')
"""


@pytest.fixture
def lab(committed_db: str) -> Cluster:
    """A pool as of before the migrations."""
    assert committed_db
    _migrate(BEFORE)
    return cluster({"a": 4})


class TestMigrations:
    def test_keep_rows_and_their_seals(self, lab: Cluster) -> None:
        empty, stated = (lab.submit("a", 1, 60, utility=one) for one in ({}, BID))
        user = User.objects.create(username="otto")
        with connections["owner"].cursor() as cursor:
            cursor.execute(SAID, [UUID(int=1), lab.tenants["a"].pk, lab.pool.pk, user.pk])
        _migrate()
        utilities = dict(Job.objects.values_list("pk", "utility"))
        assert utilities == {empty.pk: None, stated.pk: BID}
        assert Verification.objects.get().unproven is None
        assert [result.name for result in run_checks() if not result.ok] == []


def _migrate(*target: str) -> None:
    app = ("scheduling", *target) if target else ()
    call_command("migrate", *app, database="owner", verbosity=0, interactive=False)
    connections["default"].close()
