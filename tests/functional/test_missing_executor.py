"""A pool whose executor is not installed: pages, REST and rounds name it, and none fails."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from scheduling.engine.executors import base
from scheduling.models import Lease, Pool, PoolClock, RoundFailure
from scheduling.services.pool_creation import open_pool
from scheduling.tasks import run_round
from tests.factories import cluster
from tests.fake_executor.engine import FakeEngine
from tests.functional.test_operator import page
from tests.functional.visitors import Town, town
from tests.outside_package import install_executor

WHY = "executor 'ray' is not installed; installed are virtual, local, slurm"


@pytest.fixture
def there(request: pytest.FixtureRequest) -> Town:
    """Return a pool whose executor is not installed, and its people."""
    request.getfixturevalue("db")
    there = town()
    Pool.objects.filter(pk=there.cluster.pool.pk).update(executor="ray")
    return there


class TestOperatorPages:
    @pytest.mark.parametrize("name", ["settings", "nodes", "health"])
    def test_state_that_no_round_is_decided(self, there: Town, name: str) -> None:
        shown = page(there.operator, f"/operate/pools/{there.cluster.pool.name}/{name}/")
        assert "No round is decided" in shown
        assert WHY.capitalize().replace("'", "&#x27;") in shown


class TestRest:
    def test_refuses_options_of_missing_executor(self, there: Town) -> None:
        path = f"/api/v1/operate/pools/{there.cluster.pool.name}"
        tag = there.operator.get(path).headers["ETag"]
        answer = there.operator.patch(
            path, {"executor_options": {}}, content_type="application/json", HTTP_IF_MATCH=tag
        )
        assert answer.status_code == 409, answer.content
        assert f"{WHY}." in answer.content.decode()

    def test_dry_run_predicts_no_start(self, there: Town) -> None:
        job = {"pool": there.cluster.pool.name, "name": "a", "gpus": 1, "command": ["true"]}
        path = "/api/v1/jobs/dry-run"
        body = {**job, "tenant": "north"}
        answer = there.owner.post(path, body, content_type="application/json")
        assert answer.status_code == 200, answer.content
        assert answer.json()["detail"] == f"No round of this pool is decided: {WHY}."


class TestWorker:
    def test_records_why_round_failed(self, there: Town) -> None:
        pool = there.cluster.pool
        later = there.cluster.at + timedelta(days=1)
        PoolClock.objects.filter(pool=pool).update(anchor_pool=later)
        with pytest.raises(base.ExecutorError, match="'ray' is not installed"):
            run_round(pool.pk)
        assert RoundFailure.objects.get(pool=pool).error == f"ExecutorError: {WHY}"


@pytest.mark.usefixtures("db")
class TestPoolCreation:
    def test_refuses_missing_executor(self) -> None:
        pool = Pool.objects.create(name="north", executor="ray")
        with pytest.raises(LookupError, match="'ray' is not installed"):
            open_pool(pool, datetime(2026, 1, 1, tzinfo=UTC), scale=1)


class TestExternalExecutor:
    @pytest.mark.usefixtures("committed_db")
    def test_runs_jobs_of_live_pool(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: object
    ) -> None:
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(settings, "FAKE_ENGINE", str(tmp_path), raising=False)
        install_executor(tmp_path, name="ray", value="tests.fake_executor.executor:FakeExecutor")
        entries, _ = base.GROUP.read(base.EXECUTORS)
        monkeypatch.setitem(base.EXECUTORS, "ray", entries["ray"])
        lab = cluster({"a": 4}, executor="ray")
        job = lab.submit("a", 1, 1, command=["60", "0"])
        lab.round()
        token = base.lease_token(job.pk, 1, "es")
        assert FakeEngine(tmp_path / "engine.json").submissions == [token]
        assert Lease.objects.get(job=job).state == "running"
