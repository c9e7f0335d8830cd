"""Jobs of before a utility had one form of nothing: it is NULL afterwards, and all others stay."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connections

from scheduling.models import Job
from tests.factories import cluster

BEFORE = "0039_node_engine_state"
BID = {"kind": "bid", "per_gpu_hour": "0.8"}


@pytest.mark.usefixtures("committed_db")
class TestJobsOfBefore:
    def test_that_stored_an_empty_utility_state_none(self) -> None:
        _migrate(BEFORE)
        lab = cluster({"a": 4})
        empty, stated = (lab.submit("a", 1, 60, utility=one) for one in ({}, BID))
        _migrate()
        found = dict(Job.objects.values_list("pk", "utility"))
        assert found == {empty.pk: None, stated.pk: BID}


def _migrate(*target: str) -> None:
    app = ("scheduling", *target) if target else ()
    call_command("migrate", *app, database="owner", verbosity=0, interactive=False)
    connections["default"].close()
