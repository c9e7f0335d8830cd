"""Test that each event reaches exactly the subscribers who may read it, once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evenshare_core.domain.instants import to_us
from evenshare_core.domain.reasons import EndReason
from scheduling.models import (
    Job,
    JobAnswer,
    Lease,
    LeaseEvent,
    Message,
    MessageKind,
    OutboxCursor,
    PoolFence,
    VirtualWork,
)
from scheduling.outbox.budgets import announce_budgets
from scheduling.outbox.gather import gather_pool, roll_digests
from scheduling.outbox.texts import text_of
from tenants.models import Budget, Membership, User
from tests.factories import BEGIN, Cluster, cluster
from tests.integration.outbox_stage import WALL, person, subscribe
from tests.scope import nobody

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def lab() -> Cluster:
    return cluster({"a": 4, "b": 4})


def submit(lab: Cluster, user: User, duration_s: int = 5, exit_code: int = 0, **fields: Any) -> Job:
    name = fields.pop("name", "a-1")
    job = lab.submit("a", 1, duration_s, submitted_by=user, **fields)
    Job.objects.filter(pk=job.pk).update(name=name)
    VirtualWork.objects.filter(job=job).update(exit_code=exit_code)
    return job


def gather(lab: Cluster) -> int:
    with nobody():
        return gather_pool(lab.pool.pk, now=WALL)


def messages(user: User) -> list[tuple[str, str]]:
    rows = Message.objects.filter(subscription__person=user).order_by("at", "id")
    return [(row.kind, row.data["job"]["name"]) for row in rows]


class TestGathering:
    def test_makes_one_message_of_each_event_however_often_it_runs(self, lab: Cluster) -> None:
        ada = person("ada", lab.tenants["a"])
        subscribe(ada, lab.tenants["a"])
        submit(lab, ada, name="good")
        submit(lab, ada, name="bad", exit_code=3)
        lab.round()
        assert gather(lab) == 2
        assert gather(lab) == 0
        lab.round(after_s=10)
        OutboxCursor.objects.update(event_number=0)
        assert gather(lab) == 2
        assert sorted(messages(ada)) == [
            ("job_ended", "good"), ("job_failed", "bad"),
            ("job_started", "bad"), ("job_started", "good"),
        ]  # fmt: skip
        failed = Message.objects.get(kind="job_failed")
        assert text_of(failed.kind, failed.data).subject == "bad failed"
        assert "exit code 3" in text_of(failed.kind, failed.data).sentence

    def test_reaches_only_members_and_only_for_what_they_chose(self, lab: Cluster) -> None:
        a, b = lab.tenants["a"], lab.tenants["b"]
        other = cluster({"c": 1}).pool
        people = {name: person(name, a) for name in ("own", "all", "tag", "pool", "gone", "out")}
        foreign = person("foreign", b)
        subscribe(people["own"], a)
        subscribe(people["all"], a, is_own=False)
        subscribe(people["tag"], a, is_own=False, tag="paper")
        subscribe(people["pool"], a, is_own=False, pool=other)
        for name in ("gone", "out"):
            subscribe(people[name], a, is_own=False)
        subscribe(foreign, b, is_own=False)
        subscribe(foreign, a, is_own=False)  # a row that no service would make
        Membership.objects.filter(user=people["gone"]).delete()
        User.objects.filter(pk=people["out"].pk).update(is_active=False)
        submit(lab, people["own"], name="mine")
        submit(lab, people["all"], name="tagged", tags=["paper", "x"])
        lab.round()
        gather(lab)
        assert messages(people["own"]) == [("job_started", "mine")]
        assert sorted(messages(people["all"])) == [
            ("job_started", "mine"), ("job_started", "tagged"),
        ]  # fmt: skip
        assert messages(people["tag"]) == [("job_started", "tagged")]
        for name in ("pool", "gone", "out"):
            assert messages(people[name]) == []
        assert messages(foreign) == []

    def test_says_nothing_of_events_before_the_subscription_or_while_paused(
        self, lab: Cluster
    ) -> None:
        ada = person("ada", lab.tenants["a"])
        submit(lab, ada)
        lab.round()
        late = datetime(2100, 1, 1, tzinfo=UTC)
        subscribe(ada, lab.tenants["a"], created_at=late)
        subscribe(ada, lab.tenants["a"], address="https://b.example.org/", state="paused")
        assert gather(lab) == 0
        assert OutboxCursor.objects.get().event_number == PoolFence.objects.get().next_event - 1

    def test_takes_the_same_few_queries_for_a_thousand_events(self, lab: Cluster) -> None:
        ada = person("ada", lab.tenants["a"])
        subscribe(ada, lab.tenants["a"])
        jobs = [submit(lab, ada, 10**6) for _ in range(4)]
        lab.round()
        with CaptureQueriesContext(connection) as few:
            assert gather(lab) == 4
        fence = PoolFence.objects.get()
        LeaseEvent.objects.bulk_create(
            LeaseEvent(
                pool=lab.pool, number=fence.next_event + index, kind="promised", at=BEGIN,
                job=jobs[index % 4], tenant=lab.tenants["a"],
                data={"due_us": index, "gpu_type": "v100", "gpus": 1, "rate": "1"},
            )
            for index in range(1000)
        )  # fmt: skip
        PoolFence.objects.update(next_event=fence.next_event + 1000)
        Message.objects.all().delete()
        subscribe(ada, lab.tenants["a"], address="https://x.org/", kinds=["start_promised"])
        with CaptureQueriesContext(connection) as many:
            assert gather(lab) == 1000
        assert len(many) == len(few)

    def test_distinguishes_all_reasons_of_ends(self, lab: Cluster) -> None:
        ada = person("ada", lab.tenants["a"])
        subscribe(ada, lab.tenants["a"])
        job = submit(lab, ada, 10**6)
        lab.round()
        gather(lab)
        Message.objects.all().delete()
        lease = Lease.objects.get()
        Lease.objects.update(number=2)
        number = PoolFence.objects.get().next_event
        kinds = {
            EndReason.PREEMPTED: None,  # announced by its notice
            EndReason.MOVED: None,
            EndReason.NOT_RENEWED: "job_not_renewed",
            EndReason.FINISHED: "job_ended",
            EndReason.FAILED: "job_failed",
            EndReason.CANCELLED: "job_ended",
            EndReason.PROFILED: None,
            EndReason.NODE_LOST: "job_preempted",
            EndReason.DRAINED: "job_preempted",
            EndReason.PRICE_ABOVE_MAX: "job_not_renewed",
            EndReason.PRICE_ABOVE_VALUE: "job_not_renewed",
            EndReason.BUDGET: "job_not_renewed",
            EndReason.LOST: "job_preempted",
            EndReason.QUARANTINED: "job_preempted",
            EndReason.IDLE: "job_idle",
        }
        assert set(kinds) == set(EndReason)
        events = [("ended", {"reason": reason, "started": True}) for reason in kinds]
        events += [
            # Not the job's first lease.
            ("started", {"own": 1, "borrowed": 0, "price": "0"}),
            ("stop_asked", {"reason": "moved"}),
            ("ended", {"reason": "finished", "started": False}),
        ]
        for index, (kind, data) in enumerate(events):
            LeaseEvent.objects.create(
                pool=lab.pool, number=number + index, kind=kind, at=BEGIN, lease=lease, job=job,
                tenant=lab.tenants["a"], data={"exit_code": None, "gpu_type": "v100", **data},
            )  # fmt: skip
        PoolFence.objects.update(next_event=number + len(events))
        gather(lab)
        made = Message.objects.exclude(kind="job_started").order_by("id")
        wanted = {reason: kind for reason, kind in kinds.items() if kind}
        assert {row.data["reason"]: row.kind for row in made} == wanted
        assert Message.objects.count() == len(wanted)
        assert all(text_of(row.kind, row.data).sentence for row in made)

    def test_warns_of_idle_gpus(self, lab: Cluster) -> None:
        ada = person("ada", lab.tenants["a"])
        subscribe(ada, lab.tenants["a"])
        job = submit(lab, ada, 10**6)
        lab.round()
        fence = PoolFence.objects.get()
        LeaseEvent.objects.create(
            pool=lab.pool, number=fence.next_event, kind="idle", at=BEGIN, job=job,
            lease=Lease.objects.get(), tenant=job.tenant,
            data={"since_us": to_us(BEGIN), "gpus": 1},
        )  # fmt: skip
        PoolFence.objects.update(next_event=fence.next_event + 1)
        gather(lab)
        row = Message.objects.get(kind="job_idle")
        text = text_of(row.kind, row.data)
        assert text.subject == "a-1 does not use its GPUs"
        assert "1 v100 GPU was measured since 2030-01-01 00:00 UTC." in text.sentence

    def test_reports_a_job_that_was_lost_too_often_as_failed(self, lab: Cluster) -> None:
        ada = person("ada", lab.tenants["a"])
        subscribe(ada, lab.tenants["a"], kinds=["job_failed"])
        job = submit(lab, ada, 10**6)
        Job.objects.filter(pk=job.pk).update(state="failed", ended_at=BEGIN)
        data = {"reason": "lost", "started": True, "exit_code": None, "gpu_type": "v100"}
        LeaseEvent.objects.create(
            pool=lab.pool, number=1, kind="ended", at=BEGIN, job=job, tenant=job.tenant, data=data
        )
        PoolFence.objects.update(next_event=2)
        assert gather(lab) == 1
        row = Message.objects.get()
        assert text_of(row.kind, row.data).sentence.startswith("It is not started again: its")

    def test_names_no_other_tenant_of_a_preemption(self, lab: Cluster) -> None:
        ada = person("ada", lab.tenants["a"])
        subscribe(ada, lab.tenants["a"])
        job = submit(lab, ada, 10**6)
        lab.round()
        fence = PoolFence.objects.get()
        winner = lab.submit("b", 1, 5)
        data = {
            "reason": "preempted", "rule": "guarantee", "for_job": winner.pk, "for_tenant": "b",
            "numbers": {}, "notice_s": 30,
        }  # fmt: skip
        LeaseEvent.objects.create(
            pool=lab.pool, number=fence.next_event, kind="stop_asked", at=BEGIN, job=job,
            tenant=lab.tenants["a"], data=data,
        )  # fmt: skip
        PoolFence.objects.update(next_event=fence.next_event + 1)
        gather(lab)
        row = Message.objects.get(kind="job_preempted")
        facts = {"tenant", "pool", "at", "job", "event", "reason", "gpus"}
        assert set(row.data) == facts
        assert row.data["tenant"] == "a"

    def test_reports_changed_answers_to_deadlines(self, lab: Cluster) -> None:
        ada = person("ada", lab.tenants["a"])
        subscribe(ada, lab.tenants["a"], kinds=["deadline_moved"])
        at = BEGIN + timedelta(days=1)
        job = submit(lab, ada, 10**6, job_class="soft_slo", deadline_at=at)
        for number, by_at in enumerate((at, at, at + timedelta(hours=1)), start=1):
            JobAnswer.objects.create(
                job=job, tenant=job.tenant, round=number, at=BEGIN, state="planned", by_at=by_at,
                reward_micro=1, gpus=1, one_node=True, leases=[], blocked=[],
            )  # fmt: skip
        PoolFence.objects.update(next_round=4)
        assert gather(lab) == 1
        row = Message.objects.get()
        assert "done by 2030-01-02 01:00 UTC" in text_of(row.kind, row.data).sentence
        assert (
            "Before: planned, done by 2030-01-02 00:00 UTC." in text_of(row.kind, row.data).sentence
        )


class TestBudgets:
    def test_announce_each_step_once_in_a_period(self, lab: Cluster) -> None:
        ada = person("ada", lab.tenants["a"])
        subscribe(ada, lab.tenants["a"], kinds=[MessageKind.BUDGET_REACHED])
        budgets = Budget.objects.filter(tenant=lab.tenants["a"])
        now = {"main": BEGIN}

        def use(amount: int, reserved: int) -> list[int]:
            budgets.update(period_amount=amount, credit_limit=10**6, reserved=reserved, spendable=0)
            announce_budgets(now, now=WALL)
            return [row.data["percent"] for row in Message.objects.order_by("id")]

        assert use(100, 79) == []
        assert use(100, 80) == [80]
        assert use(100, 99) == [80]
        assert use(100, 101) == [80, 100]
        assert use(100, 130) == [80, 100]
        assert use(150, 130) == [80, 100, 80]
        now["main"] += timedelta(days=40)
        assert use(150, 130) == [80, 100, 80, 80]


class TestDigest:
    def test_collects_messages_until_its_hour(self, lab: Cluster) -> None:
        ada = person("ada", lab.tenants["a"])
        due = WALL + timedelta(hours=3)
        row = subscribe(
            ada, lab.tenants["a"], channel="mail", digest_hour=14, zone="Europe/Berlin",
            digest_at=due,
        )  # fmt: skip
        submit(lab, ada)
        lab.round()
        gather(lab)
        assert Message.objects.get().due_at == due
        assert roll_digests(WALL) == 0
        assert roll_digests(due) == 1
        row.refresh_from_db()
        assert row.digest_at == due + timedelta(days=1)
