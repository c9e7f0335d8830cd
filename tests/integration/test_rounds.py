"""Test rounds on a real database: grants, renewals, ends, charges and replays."""

from __future__ import annotations

import threading
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from msgspec.structs import replace

from billing.models import Book
from evenshare_core.domain.decision import Decision, End, Grant, Key
from evenshare_core.domain.reasons import EndReason
from evenshare_core.domain.snapshot import Service, Snapshot
from evenshare_core.money.fixed_point import charge_micro, to_credits, to_micro, worst_case_micro
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.ltgf.policy import Ltgf
from evenshare_core.policies.registry import policy as policy_named
from evenshare_core.units import SECOND_US
from scheduling.engine import rounds as engine
from scheduling.engine.rounds import RoundOutcome
from scheduling.models import Job, Lease, LeaseEvent, LeaseSlot, LeaseTerm, Pool, Round
from scheduling.selectors.rounds.replay import find_rounds, replay_stored_round
from tenants.models import Budget
from tenants.scopes import site_scope
from tests.factories import BEGIN, cluster
from tests.round_states import left_by, sums_of
from tests.tools import PATIENCE_S

pytestmark = pytest.mark.usefixtures("committed_db")


def kinds(job: Job) -> list[str]:
    return [event.kind for event in LeaseEvent.objects.filter(job=job).order_by("number")]


def service_of(pool_id: int) -> Service:
    return sums_of(Pool.objects.get(pk=pool_id))


class TestLease:
    def test_is_granted_started_and_ended_with_its_job(self) -> None:
        lab = cluster({"a": 8})
        job = lab.submit("a", 2, 25)
        lab.rounds(4, every_s=10)
        lease = Lease.objects.get(job=job)
        job.refresh_from_db()
        assert (lease.started_at, lease.ended_at) == (BEGIN, BEGIN + timedelta(seconds=25))
        assert (lease.state, lease.end_reason) == ("ended", "finished")
        assert (job.state, job.ended_at) == ("succeeded", lease.ended_at)
        assert kinds(job) == ["granted", "started", "ended"]
        assert not LeaseSlot.objects.filter(holding=True).exists()

    def test_is_renewed_on_same_gpus_at_expiry(self) -> None:
        lab = cluster({"a": 8}, lease_s=20, policy="ltgf")
        job = lab.submit("a", 3, 1000)
        first = lab.round()
        before = sorted(LeaseSlot.objects.values_list("node", "slot"))
        second = lab.round(after_s=20)
        lease = Lease.objects.get(job=job)
        assert first.round
        assert second.round
        assert (second.round.summary["granted"], second.round.summary["renewed"]) == (0, 1)
        assert lease.term == 2
        assert lease.expires_at == BEGIN + timedelta(seconds=40)
        assert sorted(LeaseSlot.objects.filter(holding=True).values_list("node", "slot")) == before
        terms = LeaseTerm.objects.filter(lease=lease).order_by("number")
        assert [(term.number, term.starts_at) for term in terms] == [
            (1, BEGIN),
            (2, BEGIN + timedelta(seconds=20)),
        ]

    def test_handover_never_holds_a_slot_twice(self) -> None:
        lab = cluster({"a": 4, "b": 4}, nodes=1, gpus=8, lease_s=20, policy="ltgf")
        hog = lab.submit("a", 8, 1000)
        lab.round()
        claim = lab.submit("b", 8, 1000)
        lab.round(after_s=20)
        old, new = Lease.objects.get(job=hog), Lease.objects.get(job=claim)
        assert (old.state, old.end_reason, old.ended_at) == ("ended", "not_renewed", lab.at)
        assert (new.state, new.started_at) == ("running", lab.at)
        hog.refresh_from_db()
        assert (hog.state, hog.reason_code) == ("pending", "lease_turn")
        assert LeaseSlot.objects.filter(holding=True, lease=new).count() == 8

    def test_resumes_with_completed_work(self) -> None:
        lab = cluster({"a": 4, "b": 4}, nodes=1, gpus=8, lease_s=20, policy="ltgf")
        job = lab.submit("a", 8, 50)
        lab.round()
        lab.submit("b", 8, 20)
        lab.rounds(2, every_s=20)
        lab.rounds(10, every_s=10)
        job.refresh_from_db()
        held = sum(
            (lease.ended_at - lease.started_at).total_seconds()
            for lease in Lease.objects.filter(job=job)
            if lease.ended_at and lease.started_at
        )
        assert job.state == "succeeded"
        assert held == 50
        assert job.leases_held >= 2


def _remembering(snapshot: Snapshot) -> Decision:
    """Decide like another version of the policy, which stores a memory."""
    return replace(decide_round(snapshot), memory={"other": 1})


class TestRound:
    def test_counts_gpu_time_exactly(self) -> None:
        lab = cluster({"a": 6, "b": 2})
        lab.submit("a", 4, 33)
        lab.submit("b", 1, 1000, after_s=3)
        lab.rounds(6, every_s=10)
        claims = {claim.tenant: claim for claim in service_of(lab.pool.pk).claims}
        a, b = claims[lab.tenants["a"].pk], claims[lab.tenants["b"].pk]
        # Tenant a held 4 GPUs for 33 s and deserved the same. Tenant b deserved GPUs from 3 s to 40
        # s and held them from 10 s to 40 s. The round at 50 s was quiet and not stored.
        assert (a.alloc_gpu_us, a.fair_gpu_us) == (4 * 33_000_000, 4 * 33_000_000)
        assert (b.alloc_gpu_us, b.fair_gpu_us) == (30_000_000, 37_000_000)

    def test_is_not_stored_if_nothing_happens(self) -> None:
        lab = cluster({"a": 8})
        lab.submit("a", 2, 1000)
        outcomes = [result.outcome for result in lab.rounds(4, every_s=10)]
        assert outcomes == [
            RoundOutcome.COMMITTED,
            RoundOutcome.COMMITTED,
            RoundOutcome.QUIET,
            RoundOutcome.QUIET,
        ]

    def test_runs_once_per_grid_time(self) -> None:
        lab = cluster({"a": 8})
        lab.submit("a", 2, 1000)
        assert lab.round().outcome is RoundOutcome.COMMITTED
        assert lab.round(after_s=9).outcome is RoundOutcome.NOT_DUE
        assert lab.round(after_s=1).outcome is RoundOutcome.COMMITTED

    def test_replays_to_same_bytes(self) -> None:
        lab = cluster({"a": 5, "b": 3}, lease_s=20, policy="ltgf")
        for gpus in (1, 2, 4, 3, 1, 2):
            lab.submit("a", gpus, 45)
            lab.submit("b", gpus, 70)
        lab.rounds(12, every_s=10)
        rounds = find_rounds(lab.pool.name, [], every=True)
        assert len(rounds) >= 10
        assert all(replay_stored_round(round_).same for round_ in rounds)

    def test_replay_names_other_version_of_policy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lab = cluster({"a": 2}, nodes=1, policy="ltgf")
        lab.submit("a", 1, 100)
        lab.round()
        name, decided = lab.pool.name, policy_named("ltgf").version

        def replayed() -> str:
            said = StringIO()
            call_command("replay_round", pool=name, all=True, stdout=said)
            return said.getvalue()

        monkeypatch.setattr(Ltgf, "version", "next")
        assert "same bytes" in replayed()  # a new version need not change every round
        monkeypatch.setattr("scheduling.selectors.rounds.replay.decide_round", _remembering)
        assert f"another version: {decided} decided, here is next" in replayed()
        assert "1 decided by another version" in replayed()
        monkeypatch.setattr(Ltgf, "version", decided)
        with pytest.raises(CommandError, match="1 of 1 rounds gave a different result"):
            replayed()

    def test_reports_reason_for_waiting_until_job_runs(self) -> None:
        lab = cluster({"a": 8}, nodes=1, gpus=8)
        lab.submit("a", 8, 15)
        waits = lab.submit("a", 8, 15)
        lab.round()
        waits.refresh_from_db()
        assert waits.reason_code == "lease_turn"
        lab.rounds(3, every_s=10)
        waits.refresh_from_db()
        assert (waits.state, waits.reason_code) == ("running", "")

    def test_records_quotas_once_and_after_changes(self) -> None:
        lab = cluster({"a": 4, "b": 4}, lease_s=20, policy="ltgf")
        lab.submit("a", 2, 100)
        lab.rounds(3, every_s=20)
        told = LeaseEvent.objects.filter(kind="entitled")
        assert (Round.objects.count(), told.count()) == (3, 1)
        lab.pool.nodes.filter(pk=lab.pool.nodes.earliest("pk").pk).update(state="drained")
        lab.round(after_s=20)
        assert told.count() == 2

    def test_reserves_from_budget_of_its_own_book(self) -> None:
        lab = cluster({"a": 4, "b": 4})
        Book.objects.create(slug="other", currency="credit", clock_domain=Book.ClockDomain.REAL)
        Budget.objects.create(tenant=lab.tenants["a"], book="other")
        lab.submit("a", 4, 1000)
        lab.round()
        lab.submit("a", 2, 1000)  # the job borrows at the price posted by the first round
        lab.round(after_s=10)
        reserved = dict(
            Budget.objects.filter(tenant=lab.tenants["a"]).values_list("book", "reserved")
        )
        assert reserved["main"] > 0
        assert reserved["other"] == 0

    def test_reserves_at_least_what_admission_required(self) -> None:
        """Rounding half to even would reserve less than the cost that admission requires."""
        lab = cluster({"a": 4, "b": 4}, lease_s=11, policy="ltgf")
        lab.submit("a", 4, 1000)
        lab.round()
        lab.submit("a", 2, 1000)
        lab.round(after_s=10)
        term = LeaseTerm.objects.get(borrowed__gt=0)
        price_micro = to_micro(term.price)
        worst = worst_case_micro(term.borrowed, price_micro, lab.pool.lease_s * SECOND_US)
        assert worst > charge_micro(term.borrowed, price_micro, lab.pool.lease_s * SECOND_US)
        assert Budget.objects.get(tenant=lab.tenants["a"]).reserved == to_credits(worst)

    def test_foreign_key_locks_on_jobs_do_not_block_it(self) -> None:
        lab = cluster({"a": 8})
        job = lab.submit("a", 1, 100)
        holds, done = threading.Event(), threading.Event()

        def refer() -> None:
            # The meter's foreign key takes this lock when it writes a line about the job.
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT FROM scheduling_job WHERE id = %s FOR KEY SHARE", [job.pk])
                holds.set()
                done.wait(PATIENCE_S)
            connection.close()

        thread = threading.Thread(target=refer)
        thread.start()
        assert holds.wait(PATIENCE_S)
        assert lab.round().outcome is RoundOutcome.COMMITTED
        done.set()
        thread.join()

    def test_numbers_events_without_gaps(self) -> None:
        lab = cluster({"a": 4, "b": 4}, lease_s=20, policy="ltgf")
        for _ in range(6):
            lab.submit("a", 2, 35)
            lab.submit("b", 3, 25)
        lab.rounds(10, every_s=10)
        numbers = list(LeaseEvent.objects.order_by("number").values_list("number", flat=True))
        assert numbers == list(range(1, len(numbers) + 1))
        assert Round.objects.count() == left_by(lab.pool).number


class TestSupersession:
    def test_omits_job_cancelled_since_snapshot(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lab = cluster({"a": 8})
        job, other = lab.submit("a", 2, 100), lab.submit("a", 2, 100)
        decide = decide_round

        def cancel_then_decide(snapshot: Snapshot) -> Decision:
            with site_scope():
                Job.objects.filter(pk=job.pk).update(state="cancelled", ended_at=lab.at)
            return decide(snapshot)

        monkeypatch.setattr(engine, "decide_round", cancel_then_decide)
        result = lab.round()
        assert result.round
        assert result.round.superseded == [
            {"item": "grant", "id": job.pk, "why": "the job no longer waited"}
        ]
        assert list(Lease.objects.values_list("job", flat=True)) == [other.pk]

    def test_omits_node_drained_since_snapshot(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lab = cluster({"a": 8}, nodes=1)
        job = lab.submit("a", 2, 100)
        decide = decide_round

        def drain_then_decide(snapshot: Snapshot) -> Decision:
            lab.pool.nodes.update(state="drained")
            return decide(snapshot)

        monkeypatch.setattr(engine, "decide_round", drain_then_decide)
        result = lab.round()
        job.refresh_from_db()
        assert result.round
        assert result.round.superseded == [
            {"item": "grant", "id": job.pk, "why": "a node was drained or lost"}
        ]
        assert (job.state, job.leases_held, job.terms) == ("pending", 0, 0)
        assert not Lease.objects.exists()

    def test_superseded_move_keeps_job_with_stopping_lease(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lab = cluster({"a": 8}, nodes=2, lease_s=20, policy="ltgf")
        job = lab.submit("a", 2, 1000)
        lab.round()
        old = Lease.objects.get(job=job)
        (node, _), *_ = old.placement
        other = lab.pool.nodes.exclude(pk=node).get()

        def move_there_but_it_is_drained(snapshot: Snapshot) -> Decision:
            lab.pool.nodes.filter(pk=other.pk).update(state="drained")
            tenant, key = lab.tenants["a"].pk, Key(None, None)
            return replace(
                decide_round(snapshot),
                renewals=(),
                ends=(End(old.pk, job.pk, tenant, EndReason.NOT_RENEWED),),
                grants=(Grant(1, job.pk, tenant, "v100", ((other.pk, 2),), key, own=2),),
            )

        monkeypatch.setattr(engine, "decide_round", move_there_but_it_is_drained)
        monkeypatch.setattr(engine, "dispatch", lambda *_, **__: 0)
        lab.round(after_s=20)
        job.refresh_from_db()
        # The job's process may still report that it finished. Then the job must not run again.
        assert (job.state, job.leases_held) == ("stopping", 1)
