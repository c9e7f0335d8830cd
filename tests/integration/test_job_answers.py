"""Test the answers that rounds give to jobs with deadlines, which stay stored."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connections, transaction

from evenshare_core.domain.deadlines import DeadlineLimit, DeadlineState
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.policies import registry
from scheduling.models import Job, JobAnswer, Pool, Round
from scheduling.selectors.deadlines.answers import read_deadline_story
from scheduling.selectors.rounds.replay import replay_stored_round
from tests.factories import Cluster, cluster
from tests.toy_policy.deadlines import CHANCE_MILLI, POLICY, REWARD

pytestmark = pytest.mark.usefixtures("committed_db")
LEASE_S = 300


@pytest.fixture(autouse=True)
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)


def lab(**fields: Any) -> Cluster:
    return cluster({"a": 4, "b": 4}, nodes=2, gpus=4, policy=POLICY.name, lease_s=LEASE_S, **fields)


def due(place: Cluster, gpus: int = 1, *, within_s: int, work_s: int = 60, who: str = "a") -> Job:
    """Submit a job with a deadline `within_s` after its submission."""
    return place.submit(
        who, gpus, work_s, job_class="strict_slo", estimate_s=work_s,
        deadline_at=place.at + timedelta(seconds=within_s),
    )  # fmt: skip


def answers_of(job: Job) -> list[JobAnswer]:
    return list(JobAnswer.objects.filter(job=job).order_by("round"))


class TestRoundAnswers:
    def test_stores_all_fields_of_plan(self) -> None:
        place = lab()
        job = due(place, 2, within_s=900)
        place.round(after_s=10)
        (row,) = answers_of(job)
        assert (row.tenant_id, row.round, row.at) == (job.tenant_id, 1, place.at)
        assert (row.state, row.by_at, row.reward_micro) == ("planned", job.deadline_at, REWARD)
        assert (row.gpu_type, row.gpus, row.one_node) == ("v100", 2, True)
        begin_us = to_us(place.at)
        assert row.leases == [[begin_us, begin_us + LEASE_S * 10**6]]
        assert (row.chance_milli, row.limited_by, row.blocked) == (CHANCE_MILLI, "", [])
        assert (row.earliest_at, row.cause) == (None, "")

    def test_stores_reason_of_refusal_and_earliest_alternative(self) -> None:
        place = lab()
        long = due(place, within_s=400, work_s=600)
        large = due(place, 5, within_s=900)
        place.round(after_s=10)
        (row,), (other,) = answers_of(long), answers_of(large)
        assert (row.state, row.limited_by) == (DeadlineState.REFUSED, DeadlineLimit.LENGTH)
        assert row.earliest_at == place.at + timedelta(seconds=2 * LEASE_S)
        assert from_us(row.blocked[0][0]) == place.at
        assert (row.by_at, row.leases) == (None, [])
        assert (other.limited_by, other.earliest_at) == (DeadlineLimit.QUOTA, None)

    def test_adds_rows_for_changes_only(self) -> None:
        place = lab()
        holder = place.submit("b", 8, 10_000)
        place.round(after_s=10)
        job = due(place, within_s=900)
        for _ in range(3):
            place.round(after_s=10)
        rows = answers_of(job)
        assert [row.cause for row in rows] == ["", "it waits for GPUs", "it waits for GPUs"]
        place.round(after_s=1000)
        assert [row.state for row in answers_of(job)][-1] == "missed"
        count = JobAnswer.objects.count()
        place.round(after_s=10)
        assert JobAnswer.objects.count() == count
        assert not answers_of(holder)

    def test_omit_jobs_without_deadline_and_policies_without_answers(self) -> None:
        place = lab()
        place.submit("a", 1, 60)
        Pool.objects.update(policy="fifo")
        place.pool.refresh_from_db()
        due(place, within_s=900)
        place.round(after_s=10)
        assert not JobAnswer.objects.exists()

    def test_replay_to_same_bytes(self) -> None:
        place = lab()
        due(place, within_s=900)
        place.rounds(2, every_s=10)
        for number in (1, 2):
            assert replay_stored_round(Round.objects.get(number=number)).same


class TestDeadlineStatus:
    def test_is_missed_only_after_deadline(self) -> None:
        place = lab()
        job = due(place, within_s=900)
        standings = []
        for after_s in (900, 901):
            story = read_deadline_story(job, at=place.at + timedelta(seconds=after_s))
            standings.append(story and story.standing.value)
        assert standings == ["unanswered", "missed"]


class TestAnswerRow:
    def test_is_immutable(self) -> None:
        place = lab()
        job = due(place, within_s=900)
        place.round(after_s=10)
        for using, said in (("default", "permission denied"), ("owner", "append-only")):
            for statement in ("UPDATE {} SET cause = 'x'", "DELETE FROM {}"):
                with (
                    pytest.raises(DatabaseError, match=said),
                    transaction.atomic(using=using),
                    connections[using].cursor() as cursor,
                ):
                    cursor.execute(statement.format("scheduling_jobanswer"))
        (row,) = answers_of(job)
        row.pk = None
        with pytest.raises(IntegrityError, match="job_answer_once_a_round"):
            row.save(force_insert=True)
