"""Pools of before rounds left rows: what they carried is the first row, and nothing is lost."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connections

from billing.checks import run_checks
from scheduling.models import Round, RoundState
from tests.integration import database_rights as rights
from tests.integration.test_guards import running_cluster
from tests.round_states import left_by

BEFORE = "0032_profiling_runs"


@pytest.mark.usefixtures("committed_db")
class TestPoolsOfBefore:
    def test_go_on_from_what_they_carried_and_there_is_a_way_back(self) -> None:
        lab = running_cluster()
        whole = left_by(lab.pool)
        self._migrate(BEFORE)
        with connections["owner"].cursor() as cursor:
            cursor.execute(
                "SELECT round, at, policy, policy_version, service, memory"
                " FROM scheduling_poolstate"
            )
            (row,) = cursor.fetchall()
            assert row[:4] == (whole.number, whole.at, whole.policy, whole.policy_version)
            assert (bytes(row[4]), bytes(row[5])) == (whole.service, whole.memory)
        self._migrate()
        assert left_by(lab.pool) == whole
        assert RoundState.objects.count() == 1
        assert rights.wrong_rights() == []
        assert rights.unguarded_tables() == []
        lab.submit("a", 1, 100)
        lab.round(after_s=10)
        row_after = Round.objects.latest("number")
        assert (row_after.number, row_after.state_note) == (whole.number + 1, "")
        assert len(row_after.state_sha256) == 64
        assert [result.name for result in run_checks() if not result.ok] == []

    @staticmethod
    def _migrate(*target: str) -> None:
        app = ("scheduling", *target) if target else ()
        call_command("migrate", *app, database="owner", verbosity=0, interactive=False)
        connections["default"].close()
