"""Test a long queue: its first jobs have positions, and later jobs follow in order of arrival."""

from __future__ import annotations

import pytest

from scheduling.models import Job, RoundSealing
from scheduling.selectors.jobs import queue_order
from scheduling.selectors.jobs.queue_order import BEHIND, NOT_YET, read_queue_order
from scheduling.selectors.jobs.tenant_jobs import JobFilter, jobs_page
from tests.functional.api_stage import ApiStage
from tests.functional.queue_stages import queue, queue_stage

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> ApiStage:
    """Return a stage with five queued jobs, of which only two get positions."""
    stage = queue_stage()
    whole = read_queue_order(stage.cluster.pool.pk).jobs
    monkeypatch.setattr(queue_order, "FIRST_JOBS", 2)
    stage.cluster.seal()
    assert RoundSealing.objects.get().queues[0]["jobs"] == whole[:2]
    return stage


def wanted() -> list[int]:
    """Return the jobs in the expected order."""
    first = RoundSealing.objects.get().queues[0]["jobs"]
    behind = Job.objects.filter(state="pending").exclude(pk__in=first)
    return [*first, *behind.order_by("submitted_at", "id").values_list("pk", flat=True)]


class TestLongQueue:
    def test_is_listed_completely_across_pages(self, stage: ApiStage) -> None:
        uids = {str(job.uid): job.pk for job in Job.objects.all()}
        for limit in (1, 2, 3, 5):
            ids, positions, cursor = [], [], ""
            while True:
                answer = stage.get(f"pools/{stage.pool}/queue?limit={limit}{cursor}", as_="eve")
                page = answer.json()
                ids += [uids[row["id"]] for row in page["results"]]
                positions += [row["position"] for row in page["results"]]
                if page["next"] is None:
                    break
                cursor = f"&cursor={page['next']}"
            assert ids == wanted()
            assert positions == [1, 2, None, None, None]
            assert page["round"] == 2
            assert page["order"].endswith(BEHIND.format(count=2))

    def test_tenant_queue_is_listed_completely_across_pages(self, stage: ApiStage) -> None:
        tenant = stage.cluster.tenants["aa"].pk
        mine = set(Job.objects.filter(tenant=tenant, state="pending").values_list("pk", flat=True))
        assert len(mine) == 3
        for limit in (1, 2, 3):
            seen, after = [], None
            while True:
                page = jobs_page(tenant, JobFilter("pending", after=after), limit=limit)
                seen += [row.job.pk for row in page.rows]
                after = page.next_after
                if after is None:
                    break
            assert seen == [job for job in wanted() if job in mine]

    def test_positions_close_up_after_a_job_leaves(self, stage: ApiStage) -> None:
        first, second = wanted()[:2]
        Job.objects.filter(pk=first).update(state="cancelled", ended_at=stage.cluster.at)
        rows = queue(stage, as_="eve")["results"]
        assert (rows[0]["id"], rows[0]["position"]) == (str(Job.objects.get(pk=second).uid), 1)
        assert len(rows) == 4

    def test_has_order_of_last_sealed_round(self, stage: ApiStage) -> None:
        stage.cluster.round(after_s=10)
        assert queue(stage, as_="eve")["round"] == 2
        stage.cluster.seal()
        assert queue(stage, as_="eve")["round"] == 3
        RoundSealing.objects.update(queues=[])
        assert queue(stage, as_="eve")["order"] == NOT_YET
