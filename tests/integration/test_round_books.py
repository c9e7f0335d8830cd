"""Test that a round's data is equal in all places that store it."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from evenshare_core.domain.instants import to_us
from evenshare_core.money.fixed_point import to_credits, to_micro, worst_case_micro
from evenshare_core.money.revenue.records import LATE_ROUNDS
from evenshare_core.units import SECOND_US
from scheduling.engine import rounds as engine
from scheduling.models import Intent, Job, Lease, LeaseEvent, LeaseTerm, Round
from tenants.models import Budget
from tests.factories import Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")


def played() -> Cluster:
    """Play grants, renewals, ends and moves; a has several borrowed terms in one round."""
    made = cluster({"a": 2, "b": 6}, lease_s=20, policy="ltgf")
    made.submit("a", 2, 1000)
    made.round()
    for _ in range(3):
        made.submit("a", 1, 1000)
    made.submit("b", 1, 25)
    made.rounds(3, every_s=10)
    made.submit("b", 4, 1000)
    made.rounds(4, every_s=10)
    return made


def test_data_of_story_agrees_in_all_tables() -> None:
    lab = played()
    check_that_a_term_and_its_event_say_the_same()
    check_that_counts_are_those_of_events()
    check_that_the_worst_case_is_reserved(lab)
    check_that_a_lease_and_its_events_say_the_same()
    check_that_jobs_know_their_leases()
    # The executor refused no call. Intents of rounds and of waiting leases look the same.
    assert set(Intent.objects.values_list("state", "attempts", "last_error")) == {("done", 0, "")}


def check_that_a_term_and_its_event_say_the_same() -> None:
    kinds = {"granted": 0, "renewed": 0}
    for term in LeaseTerm.objects.select_related("lease__gpu_type"):
        kind = "granted" if term.number == 1 else "renewed"
        kinds[kind] += 1
        event = LeaseEvent.objects.get(kind=kind, lease=term.lease, term=term.number)
        assert (event.job_id, event.tenant_id) == (term.lease.job_id, term.lease.tenant_id)
        assert (event.round, event.at) == (term.round, term.starts_at)
        assert event.data == {
            "own": term.own,
            "borrowed": term.borrowed,
            "price": str(term.price),
            "gpu_type": term.lease.gpu_type.name,
            "expires_us": to_us(term.expires_at),
            "late_us": LATE_ROUNDS * term.lease.pool.round_s * SECOND_US,
        }
    assert min(kinds.values()) > 2


def check_that_counts_are_those_of_events() -> None:
    counted = {"granted": "granted", "renewed": "renewed", "stop_asked": "ended"}
    events: dict[int | None, Counter[str]] = defaultdict(Counter)
    for row in LeaseEvent.objects.filter(kind__in=counted).values_list("round", "kind"):
        events[row[0]][counted[row[1]]] += 1
    summaries = {
        row.number: Counter({name: row.summary[name] for name in counted.values()})
        for row in Round.objects.all()
    }
    assert summaries == {number: events[number] for number in summaries}
    assert all(sum(events.values(), Counter())[name] for name in counted.values())


def check_that_the_worst_case_is_reserved(lab: Cluster) -> None:
    reserved: dict[int, int] = defaultdict(int)
    borrowed: Counter[tuple[int, int]] = Counter()
    for term in LeaseTerm.objects.select_related("lease"):
        span_us = to_us(term.expires_at) - to_us(term.starts_at)
        reserved[term.lease.tenant_id] += worst_case_micro(
            term.borrowed, to_micro(term.price), span_us
        )
        borrowed[term.lease.tenant_id, term.round] += term.price > 0 and term.borrowed > 0
    assert max(borrowed.values()) > 1
    kept = Budget.objects.filter(book=lab.pool.book).values_list("tenant_id", "reserved")
    assert dict(kept) == {
        tenant.pk: to_credits(reserved[tenant.pk]) for tenant in lab.tenants.values()
    }


def check_that_a_lease_and_its_events_say_the_same() -> None:
    reasons = set()
    for lease in Lease.objects.select_related("gpu_type", "job"):
        who = {"lease": lease, "job": lease.job, "tenant_id": lease.tenant_id}
        started = LeaseEvent.objects.filter(kind="started", **who).first()
        assert (started.at if started else None) == lease.started_at
        if started:
            term = LeaseTerm.objects.get(lease=lease, number=started.term or 0)
            assert started.data == {
                "own": term.own,
                "borrowed": term.borrowed,
                "price": str(term.price),
                "gpu_type": lease.gpu_type.name,
            }
        ended = LeaseEvent.objects.filter(kind="ended", **who).first()
        assert (ended.at if ended else None) == lease.ended_at
        if ended:
            reasons.add(lease.end_reason)
            assert ended.term == lease.term
            assert ended.data == {
                "reason": lease.end_reason,
                "exit_code": 0 if lease.end_reason == "finished" else None,
                "started": started is not None,
                "gpu_type": lease.gpu_type.name,
            }
    assert reasons == {"finished", "not_renewed"}


def check_that_jobs_know_their_leases() -> None:
    for job in Job.objects.all():
        begun = job.leases.filter(started_at__isnull=False).order_by("started_at").first()
        assert job.first_started_at == (begun.started_at if begun else None)
        assert job.leases_held == job.leases.count()
        assert job.terms == LeaseTerm.objects.filter(lease__job=job).count()


def test_new_intent_has_expected_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "dispatch", lambda *_, **__: 0)
    lab = cluster({"a": 8})
    lab.submit("a", 2, 1000)
    lab.round()
    lease = Lease.objects.get()
    assert Intent.objects.values(
        "pool_id", "lease_id", "kind", "term", "at", "state", "attempts", "last_error"
    ).get() == {
        "pool_id": lab.pool.pk,
        "lease_id": lease.pk,
        "kind": "launch",
        "term": 1,
        "at": lab.at,
        "state": "open",
        "attempts": 0,
        "last_error": "",
    }
