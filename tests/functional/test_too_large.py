"""A job that is larger than the pool, or than its nodes that are not drained."""

from __future__ import annotations

import pytest

from evenshare_core.domain.reasons import Reason
from scheduling.models import Job, Node, Profile
from scheduling.selectors.jobs.too_large import TypeSize, why_now, why_too_large
from tests.functional.visitors import Town, reads, town
from tests.stages import staged

LATER = "larger than the schedulable GPUs now"
NEVER = "larger than the pool"


def played_town() -> Town:
    """Create two nodes of 4 GPUs, one of them drained, and a job of north that needs 6."""
    place = town()
    place.cluster.pool.policy = "fifo"
    place.cluster.pool.save()
    place.submit(6)
    Node.objects.filter(name="n0001", pool=place.cluster.pool).update(
        state="drained", effective_state="drained"
    )
    place.play(2)
    return place


there = staged(played_town)


def _page(place: Town, path: str) -> str:
    answer = place.owner.get(path)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


class TestTooLargeJob:
    def test_waits_for_unavailable_nodes(self, there: Town) -> None:
        job = Job.objects.get()
        assert job.reason_code == Reason.TOO_LARGE
        page = _page(there, f"/jobs/{job.uid}/")
        assert f": {LATER}." in page.split("<h1>")[1].split("</h1>")[0]
        assert "It needs 6 GPUs; of the 8 of v100, 4 are drained, down or in maintenance." in page
        assert "It starts when enough of them are up again" in page
        for path in ("/t/north/jobs/", "/t/north/jobs/?state=pending", "/t/north/"):
            shown = _page(there, path)
            assert LATER in shown
            assert NEVER not in shown
        why = there.owner.get(f"/api/v1/jobs/{job.uid}/why").json()
        assert (why["reason_code"], why["numbers"]["capacity"]) == ("too_large", 4)
        assert "4 are drained, down or in maintenance" in why["words"]

    def test_beyond_the_whole_pool_can_never_start(self, there: Town) -> None:
        job = Job.objects.get()
        Job.objects.update(gpus=9)
        page = _page(there, f"/jobs/{job.uid}/")
        assert "It needs 9 GPUs; the pool has 8." in page
        assert "It can never start" in page
        assert NEVER in _page(there, "/t/north/jobs/")

    def test_counts_only_accepted_gpu_types(self, there: Town) -> None:
        there.cluster.add_type("a100", nodes=1, gpus=8, quotas={})
        job = Job.objects.get()
        assert why_now(job, "too_large").text == LATER
        job.gpu_types = ["v100"]
        job.gpus = 8
        assert "8 of v100" in why_now(job, "too_large").sentence
        job.profile = Profile(name="p", speedups={"v100": 0, "a100": 1000})
        assert why_now(job, "too_large").text == NEVER

    def test_query_count_does_not_grow_with_rows(self, there: Town) -> None:
        path = "/t/north/jobs/"
        few = len(reads(there.owner, path))
        for _ in range(5):
            job = there.submit(7)
            Job.objects.filter(pk=job.pk).update(reason_code="too_large")
        assert len(reads(there.owner, path)) == few


class TestReasonText:
    SIZES = {"v100": TypeSize(8, 4), "k80": TypeSize(16, 0)}

    @pytest.mark.parametrize(
        ("needed", "accepted", "text", "sentence"),
        [
            (6, {"v100"}, LATER, "of the 8 of v100, 4 are drained"),
            (9, {"v100"}, NEVER, "the most available to it are 8 of v100"),
            (20, {"v100", "k80"}, NEVER, "the most available to it are 16 of k80"),
            (2, set(), NEVER, "the pool has 0"),
            (12, {"k80"}, LATER, "It needs more GPUs than are schedulable now: nodes are drained"),
        ],
    )
    def test_depends_on_accepted_gpu_types(
        self, needed: int, accepted: set[str], text: str, sentence: str
    ) -> None:
        reason = why_too_large(needed, accepted, self.SIZES)
        assert (reason.code, reason.text) == ("too_large", text)
        assert sentence in reason.sentence

    def test_counts_maintenance_like_the_round(self) -> None:
        numbers = {"gpu_type": "k80", "capacity": 10, "needed": 12}
        reason = why_too_large(12, {"k80"}, self.SIZES, numbers)
        assert "of the 16 of k80, 6 are drained, down or in maintenance" in reason.sentence
