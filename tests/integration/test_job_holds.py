"""Test holds on real rounds: no demand while held, then a new arrival, replayed and verified."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.job_ranks import KEEPS_PLACE
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from scheduling.engine.clock import wall_now
from scheduling.engine.due import due_rounds
from scheduling.engine.job_holds import add_hold, remove_hold
from scheduling.models import EqualPeople, Job, Lease, PoolClock, Round, RoundSealing
from scheduling.selectors.rounds.replay import replay_stored_round
from scheduling.selectors.rounds.stored import round_values
from tenants.models import User
from tenants.scopes import tenant_scope
from tests.factories import BEGIN, Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")
TENANT = Job.Hold.TENANT


def hold(job: Job, code: Job.Hold = TENANT) -> list[int]:
    with tenant_scope(job.tenant_id):
        return add_hold([job.pk], code)


def release(job: Job, at: datetime, code: Job.Hold = TENANT) -> list[int]:
    with tenant_scope(job.tenant_id):
        return remove_hold([job.pk], code, at)


def seconds(after_s: int) -> datetime:
    return BEGIN + timedelta(seconds=after_s)


def demand_of(lab: Cluster, tenant: str) -> int:
    """Return a tenant's demand in the last round's sums."""
    _, decision = last_values(lab)
    claims = decision.service.claims
    return sum(row.demand for row in claims if row.tenant == lab.tenants[tenant].pk)


def last_values(lab: Cluster) -> tuple[Snapshot, Decision]:
    return round_values(Round.objects.filter(pool=lab.pool).order_by("-number")[0])


def check_all(lab: Cluster) -> None:
    """Replay every round, seal them, and expect no break between two of them."""
    for row in Round.objects.filter(pool=lab.pool):
        assert replay_stored_round(row).same
    lab.seal()
    assert RoundSealing.objects.get(pool=lab.pool).findings == []


class TestHeldJob:
    def test_is_no_demand_and_arrives_at_its_release(self) -> None:
        lab = cluster({"a": 4, "b": 4}, nodes=1, gpus=4)
        first, waits = lab.submit("a", 4, 35), lab.submit("b", 4, 20)
        lab.round()
        assert hold(waits) == [waits.pk]
        assert hold(waits) == []
        lab.round(after_s=10)
        snapshot, decision = last_values(lab)
        assert demand_of(lab, "b") == 0
        assert [row.job for row in snapshot.holds] == [waits.pk]
        assert [row.jobs for row in decision.skips] == [(waits.pk,)]
        waits.refresh_from_db()
        assert (waits.reason_code, waits.received_gpu_us) == ("held_by_tenant", 0)
        assert release(waits, seconds(23)) == [waits.pk]
        lab.rounds(4, every_s=10)
        lab.rounds(3, every_s=10)
        waits.refresh_from_db()
        first.refresh_from_db()
        assert (first.state, waits.state) == ("succeeded", "succeeded")
        assert (waits.eligible_at, waits.submitted_at) == (seconds(23), BEGIN)
        values = [round_values(row) for row in Round.objects.order_by("number")]
        arrivals = {job.submitted_us for s, _ in values for job in s.jobs if job.id == waits.pk}
        assert arrivals == {to_us(BEGIN), to_us(seconds(23))}
        check_all(lab)

    def test_held_and_released_between_two_rounds_arrives_again(self) -> None:
        lab = cluster({"a": 4, "b": 4}, nodes=1, gpus=4)
        lab.submit("a", 4, 100)
        waits = lab.submit("b", 4, 20)
        lab.round()
        hold(waits)
        release(waits, seconds(4))
        lab.rounds(2, every_s=10)
        lab.round(after_s=10)
        snapshot, _ = last_values(lab)
        (row,) = (job for job in snapshot.jobs if job.id == waits.pk)
        assert row.submitted_us == to_us(seconds(4))
        assert demand_of(lab, "b") == 4
        check_all(lab)

    def test_waits_until_its_last_hold_ends(self) -> None:
        lab = cluster({"a": 4})
        job = lab.submit("a", 4, 20, holds=["sweep", "tenant"])
        release(job, seconds(1))
        job.refresh_from_db()
        assert (job.holds, job.reason_code, job.eligible_at) == (["sweep"], "held_for_sweep", None)
        release(job, seconds(2), Job.Hold.SWEEP)
        job.refresh_from_db()
        assert (job.holds, job.reason_code, job.eligible_at) == ([], "", seconds(2))

    def test_cancelled_while_held_was_never_demand(self) -> None:
        lab = cluster({"a": 4})
        job = lab.submit("a", 4, 20, holds=["tenant"])
        lab.submit("a", 1, 100)
        lab.round()
        Job.objects.filter(pk=job.pk).update(state="cancelled", ended_at=seconds(5))
        lab.submit("a", 1, 100, after_s=7)
        lab.round(after_s=10)
        snapshot, _ = last_values(lab)
        assert job.pk not in {change.job for change in snapshot.changes}
        check_all(lab)

    def test_cancelled_after_the_time_of_the_round_is_in_it(self) -> None:
        lab = cluster({"a": 4})
        job = lab.submit("a", 4, 20, holds=["tenant"])
        lab.submit("a", 1, 100)
        cancelled = {"state": "cancelled", "ended_at": seconds(5), "reason_code": ""}
        Job.objects.filter(pk=job.pk).update(**cancelled)
        lab.round()
        assert [row.job for row in last_values(lab)[0].holds] == [job.pk]
        job.refresh_from_db()
        assert {name: getattr(job, name) for name in cancelled} == cancelled
        lab.submit("a", 1, 100, after_s=7)
        lab.round(after_s=10)
        assert last_values(lab)[0].holds == ()
        check_all(lab)

    def test_running_job_cannot_be_held(self) -> None:
        lab = cluster({"a": 4})
        job = lab.submit("a", 4, 200)
        lab.round()
        assert hold(job) == []

    def test_hold_after_the_decision_leaves_out_the_grant(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lab = cluster({"a": 4})
        job = lab.submit("a", 4, 200)

        def held_meanwhile(snapshot: Snapshot) -> Decision:
            decision = decide_round(snapshot)
            hold(job)
            return decision

        monkeypatch.setattr("scheduling.engine.rounds.decide_round", held_meanwhile)
        result = lab.round()
        assert result.round is not None
        assert [row["item"] for row in result.round.superseded] == ["grant"]
        assert not Lease.objects.exists()
        monkeypatch.undo()
        lab.round(after_s=10)
        check_all(lab)


class TestEarliestStart:
    def test_job_arrives_at_its_time(self) -> None:
        lab = cluster({"a": 4})
        job = lab.submit("a", 4, 20, not_before=seconds(15), eligible_at=seconds(15))
        other = lab.submit("a", 1, 100)
        lab.round()
        snapshot, decision = last_values(lab)
        assert [(row.job, row.until_us) for row in snapshot.holds] == [(job.pk, to_us(seconds(15)))]
        assert [grant.job for grant in decision.grants] == [other.pk]
        lab.rounds(2, every_s=10)
        lab.round(after_s=10)
        job.refresh_from_db()
        assert job.first_started_at == seconds(20)
        check_all(lab)

    def test_release_does_not_move_it_forward(self) -> None:
        lab = cluster({"a": 4})
        job = lab.submit("a", 4, 20, not_before=seconds(50), holds=["tenant"])
        release(job, seconds(5))
        job.refresh_from_db()
        assert (job.eligible_at, job.reason_code) == (seconds(50), "not_before")

    def test_requests_round_of_pool_with_rounds_on_demand(self) -> None:
        lab = cluster({"a": 4}, on_demand=True, round_s=600)
        lab.submit("a", 4, 20, not_before=seconds(15), eligible_at=seconds(15))
        lab.round()
        for at_s, wanted in ((10, []), (16, [lab.pool.pk])):
            wall = wall_now()
            PoolClock.objects.filter(pool=lab.pool).update(
                anchor_wall=wall, anchor_pool=seconds(at_s), seen_wall=wall
            )
            assert [due.pool_id for due in due_rounds()] == wanted


class TestPriorities:
    def story(self, boost: int) -> tuple[Cluster, dict[str, Job]]:
        """Jobs of two tenants wait for one place; `boost` is the priority of the last job of a."""
        lab = cluster({"a": 4, "b": 4}, nodes=1, gpus=4, policy="fifo", lease_s=10)
        jobs = {"busy": lab.submit("b", 4, 15)}
        for after_s, name in enumerate(("a first", "b first", "a second", "b second", "a last")):
            priority = boost if name == "a last" else 0
            lab.at = seconds(after_s + 1)
            jobs[name] = lab.submit(name[0], 4, 5, priority=priority)
        lab.at = BEGIN
        lab.rounds(9, every_s=10)
        return lab, {name: Job.objects.get(pk=job.pk) for name, job in jobs.items()}

    def test_order_own_jobs_and_leave_other_tenants_alone(self) -> None:
        _, plain = self.story(0)
        _, boosted = self.story(50)
        starts = {name: job.first_started_at for name, job in plain.items()}
        places = ("a first", "a second", "a last")
        assert [boosted[name].first_started_at for name in ("b first", "b second")] == [
            starts["b first"],
            starts["b second"],
        ]
        assert [boosted[name].first_started_at for name in ("a last", "a first", "a second")] == [
            starts[name] for name in places
        ]

    def test_rounds_replay_and_follow_each_other(self) -> None:
        lab, jobs = self.story(50)
        assert jobs["a last"].place_at == jobs["a first"].submitted_at
        assert jobs["a second"].place_at == jobs["a last"].submitted_at
        check_all(lab)


class TestJobWithOwnPriceLimit:
    def test_keeps_its_place_and_lends_it_to_no_later_job(self) -> None:
        lab = cluster({"a": 4, "b": 4}, nodes=1, gpus=4, policy="fifo", lease_s=10)
        jobs = [lab.submit("b", 4, 15)]
        fields: tuple[dict[str, Any], ...] = (
            {"max_price": 0},
            {},
            {},
            {"utility": {"kind": "bid", "per_gpu_hour": "2"}},
        )
        for after_s, own in enumerate(fields, 1):
            jobs.append(lab.submit("a", 4, 5, after_s=after_s, priority=after_s, **own))
        lab.round(after_s=10)
        snapshot, _ = last_values(lab)
        first, second, third, last = (job.pk for job in jobs[1:])
        ranks = {row.job: row.priority for row in snapshot.ranks}
        assert ranks == {first: KEEPS_PLACE, second: 2, third: 3, last: KEEPS_PLACE}
        lab.rounds(3, every_s=10)
        places = {job.pk: job.place_at for job in Job.objects.all()}
        assert (places[first], places[last]) == (None, None)
        assert (places[second], places[third]) == (seconds(3), seconds(2))
        check_all(lab)


class TestPolicyThatReadsArrivals:
    def test_sees_no_exchange(self) -> None:
        lab = cluster({"a": 4, "b": 4}, nodes=1, gpus=4, policy="market")
        lab.submit("b", 4, 100)
        for after_s in (1, 2):
            lab.submit("a", 4, 5, after_s=after_s, priority=after_s)
        lab.round(after_s=10)
        assert last_values(lab)[0].ranks == ()


class TestPeople:
    def test_share_places_of_their_tenant_equally(self) -> None:
        lab = cluster({"a": 4}, nodes=1, gpus=4, policy="fifo", lease_s=10)
        EqualPeople.objects.create(pool=lab.pool, tenant=lab.tenants["a"])
        ann, ben = (User.objects.create(username=name) for name in ("ann", "ben"))
        lab.submit("a", 2, 100, submitted_by=ann)
        lab.round()
        jobs = []
        for after_s, who in enumerate((ann, ann, ben)):
            jobs.append(lab.submit("a", 2, 100, after_s=after_s + 1, submitted_by=who))
        lab.round(after_s=10)
        snapshot, _ = last_values(lab)
        assert {row.job: row.person for row in snapshot.ranks}[jobs[2].pk] == 2
        states = [Job.objects.get(pk=job.pk).state for job in jobs]
        assert states == ["pending", "pending", "running"]
        lab.rounds(2, every_s=10)
        check_all(lab)
