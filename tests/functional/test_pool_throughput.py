"""The pool page's section of throughput: shown only for mixed pools with job types."""

from __future__ import annotations

import pytest

from scheduling.models import Job
from tests.functional.queue_stages import text
from tests.functional.visitors import Town, town

pytestmark = pytest.mark.usefixtures("committed_db")
SAID = "the work of"


def played(place: Town, **speeds: int) -> str:
    """Return the pool's history page after a round with a job of a job type."""
    profile = place.cluster.profile("north", "gru", **speeds)
    job = place.submit(1, 5_000, "north")
    Job.objects.filter(pk=job.pk).update(profile=profile)
    place.play()
    return text(place.owner.get("/pools/pool-1/history/"))


def test_throughput_is_omitted_with_one_gpu_type() -> None:
    assert SAID not in played(town(), v100=1000)


def test_throughput_is_shown_with_two_gpu_types() -> None:
    place = town()
    place.cluster.add_type("k80", nodes=2, gpus=4, quotas={"north": 4, "south": 4})
    assert SAID in played(place, k80=1000, v100=4000)
