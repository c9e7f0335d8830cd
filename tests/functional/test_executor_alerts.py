"""Test how operators see an executor that is down, and leases that vanished at once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scheduling.engine.clock import wall_now
from scheduling.models import ExecutorHealth, Intent, Job, Lease
from scheduling.selectors.pools.executors import is_refusal
from tenants.models import Quota
from tests.factories import BEGIN
from tests.functional.test_operator import page
from tests.functional.visitors import Town, town
from tests.stages import staged

LABELS = ("Executor refuses", "Executor does not answer", "Calls waiting", "Executor down")


class TestExecutorError:
    @pytest.mark.parametrize(
        ("error", "refuses"),
        [
            ("", False),
            ("squeue did not answer within 5 s", False),
            ("squeue: error: Unable to contact slurm controller (connect failure)", False),
            ("sbatch: error: Batch job submission failed: Socket timed out on send/recv", False),
            ("ConnectionRefusedError: [Errno 111] Connection refused", False),
            ("the engine does not answer", False),
            ("sbatch: error: Zero Bytes were transmitted or received", False),
            ("slurm_load_jobs error: Unable to establish controller machine", False),
            ("squeue: error: Transport endpoint is not connected", False),
            ("squeue: fatal: Could not establish a configuration source", False),
            ("BrokenPipeError: [Errno 32] Broken pipe", False),
            ("scontrol: slurm_update error: Access/permission denied", True),
            ("sbatch: error: Invalid partition specified: gpu", True),
            ("executor_options of the pool p are wrong: `partition`", True),
            ("squeue is not installed here: the portal needs Slurm's client tools", True),
        ],
    )
    def test_is_classified_as_refusal_or_timeout(self, error: str, *, refuses: bool) -> None:
        assert is_refusal(error) is refuses


there = staged(town)


class TestExecutorAlert:
    def test_shows_error_of_failing_executor_to_operators(self, there: Town) -> None:
        pool = there.cluster.pool
        ExecutorHealth.objects.create(
            pool=pool,
            failures=7,
            failing_since=wall_now(),
            open_until=wall_now(),
            error="<no route>",
        )
        queue, health = self._pages(there)
        assert f"The executor of {pool.name} failed 7 times in a row" in queue
        assert "<b>7 calls</b> in a row failed" in health
        assert "&lt;no route&gt;" in health
        assert "accept_losses" not in health
        ExecutorHealth.objects.update(error="squeue did not answer within 5 s")
        for path in ("/operate/", f"/operate/pools/{pool.name}/health/"):
            german = there.operator.get(path, headers={"Accept-Language": "de"}).content.decode()
            assert "squeue antwortete nicht innerhalb von 5 s" in german

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            ("sbatch: error: Invalid account", "Executor refuses"),
            ("squeue did not answer within 5 s", "Executor does not answer"),
            ("", "Calls waiting"),
        ],
    )
    def test_refusal_or_silence_is_shown_exactly_once(
        self, there: Town, error: str, said: str
    ) -> None:
        pool = there.cluster.pool
        there.submit()
        there.play(1)
        long_ago = there.cluster.at - timedelta(days=1)
        failed = {"at": long_ago, "state": "open", "attempts": 4, "last_error": error}
        Intent.objects.filter(lease=Lease.objects.get()).update(**failed)
        for failures in (0, 7):
            label = said
            if failures:
                label = said if error else "Executor does not answer"
                ExecutorHealth.objects.create(
                    pool=pool, failures=failures, error=error,
                    failing_since=wall_now(), open_until=wall_now(),
                )  # fmt: skip
            queue, health = self._pages(there)
            for shown in (queue, health):
                assert [one for one in LABELS if one in shown] == [label]
                assert shown.count(label) == 1
                assert error in shown
        assert "1 call waits until it answers" in " ".join(health.split())

    def test_tenants_see_outage_without_its_error(self, there: Town) -> None:
        pool = there.cluster.pool
        path = f"/pools/{pool.name}/"
        assert "Cluster does not answer" not in page(there.owner, path)
        ExecutorHealth.objects.create(
            pool=pool, failures=7, failing_since=wall_now(), open_until=wall_now(), error="<none>"
        )
        shown = page(there.owner, path)
        assert "Cluster does not answer" in shown
        assert "&lt;none&gt;" not in shown

    def test_outage_is_shown_on_nodes_page(self, there: Town) -> None:
        pool = there.cluster.pool
        path = f"/operate/pools/{pool.name}/nodes/"
        assert "Cluster does not answer" not in page(there.operator, path)
        ExecutorHealth.objects.create(
            pool=pool, failures=7, failing_since=wall_now(), open_until=wall_now(), error="<none>"
        )
        assert page(there.operator, path).count("Cluster does not answer") == 1

    def test_outage_is_shown_on_pages_of_queued_jobs(self, there: Town) -> None:
        pool, job = there.cluster.pool, there.submit()
        over = there.submit()
        Job.objects.filter(pk=over.pk).update(state="succeeded", ended_at=there.cluster.at)
        said = ("/t/north/", "/t/north/jobs/", "/t/north/jobs/?state=pending", f"/jobs/{job.uid}/")
        unsaid = ("/t/north/jobs/?state=failed", f"/jobs/{over.uid}/")
        for path in (*said, *unsaid):
            assert "Cluster does not answer" not in page(there.owner, path)
        for one in (pool, there.elsewhere.pool):
            ExecutorHealth.objects.create(
                pool=one, failures=7, failing_since=wall_now(), open_until=wall_now(), error="<no>"
            )
        for path in said:
            shown = page(there.owner, path)
            assert shown.count("Cluster does not answer") == 1
            assert "&lt;no&gt;" not in shown
            assert there.elsewhere.pool.name not in shown
        for path in unsaid:
            assert "Cluster does not answer" not in page(there.owner, path)

    def test_names_pool_for_tenant_with_several_pools(self, there: Town) -> None:
        other = there.elsewhere
        Quota.objects.create(
            tenant=there.tenant, pool=other.pool, gpu_type=other.gpu_type, gpus=1, valid_from=BEGIN
        )
        ExecutorHealth.objects.create(
            pool=other.pool, failures=7, failing_since=wall_now(), open_until=wall_now()
        )
        shown = " ".join(page(there.owner, "/t/north/jobs/").split())
        assert f"The cluster of <b>{other.pool.name}</b> has not answered since" in shown
        narrowed = f"/t/north/jobs/?pool={there.cluster.pool.name}"
        assert "Cluster does not answer" not in page(there.owner, narrowed)

    def test_missing_leases_can_be_accepted_as_lost(self, there: Town) -> None:
        pool = there.cluster.pool
        row = ExecutorHealth.objects.create(
            pool=pool, frozen_since=wall_now(), launched=10, missing=dict.fromkeys("abcd", "")
        )
        queue, health = self._pages(there)
        assert f"4 of 10 leases of {pool.name} are not listed by its executor." in queue
        assert "An operator can accept their loss" in queue
        assert "does not list <b>4</b>" in health
        assert "Accept the loss of 4 leases" in health
        for accepted, said in (
            ("a", "The loss of 1 lease is accepted"),
            ("abcd", "Their loss is accepted"),
        ):
            row.accepted = list(accepted)
            row.save()
            queue, health = self._pages(there)
            assert said in " ".join(health.split())
            assert ("Their loss is accepted" in queue) == (accepted == "abcd")
            assert ("An operator can accept their loss" in queue) == (accepted == "a")
        assert "Accept the loss of" not in health

    def _pages(self, there: Town) -> tuple[str, str]:
        path = f"/operate/pools/{there.cluster.pool.name}/health/"
        return page(there.operator, "/operate/"), page(there.operator, path)
