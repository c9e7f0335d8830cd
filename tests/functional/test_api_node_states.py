"""Test the states of nodes that the engine reports, in the operator's REST API."""

from __future__ import annotations

import pytest

from scheduling.models import Node
from tests.factories import BEGIN
from tests.functional.api_stage import ApiStage
from tests.functional.operate_stage import edit, operate_stage, tag


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    return operate_stage()


class TestNodes:
    def test_show_engine_state_apart_from_operator_state(self, stage: ApiStage) -> None:
        nodes = f"operate/nodes?pool={stage.pool}"
        seen = tag(stage, nodes)
        row = stage.get(nodes, as_="otto").json()["results"][0]
        said = {"engine_state": "up", "engine_reason": "", "engine_since": None}
        assert {key: row[key] for key in said} == said
        Node.objects.filter(name=row["name"], pool__name=stage.pool).update(
            engine_state="down", engine_reason="by Slurm: dead", engine_since=BEGIN
        )
        row = stage.get(nodes, as_="otto").json()["results"][0]
        assert (row["state"], row["engine_state"]) == ("lost", "down")
        assert (row["reason"], row["engine_reason"]) == ("", "by Slurm: dead")
        assert row["engine_since"].startswith(f"{BEGIN:%Y-%m-%d}")
        # A changed state of the engine does not count as an edit.
        path = f"operate/nodes/{stage.pool}/{row['name']}/drain"
        assert edit(stage, "POST", path, {"reason": "fan"}, seen=seen).status_code == 200
