"""Test the calls of dispatch and reconcile, and what they do if the executor refuses."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from evenshare_core.domain.instants import to_us
from evenshare_core.units import SECOND_US
from scheduling.engine import rounds as engine
from scheduling.engine.dispatch import dispatch
from scheduling.engine.executors.base import (
    ExecutorError,
    Launch,
    Report,
    ReportState,
    Stop,
    lease_token,
)
from scheduling.engine.executors.virtual import VirtualExecutor
from scheduling.engine.fence import take_fence
from scheduling.engine.observe import observe
from scheduling.engine.reconcile import reconcile
from scheduling.models import Intent, Job, Lease
from tests.factories import Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")

STOP, LAUNCH = Intent.Kind.STOP, Intent.Kind.LAUNCH


class WatchedExecutor(VirtualExecutor):
    """An executor that records its calls, and refuses those that the test names."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.asked: dict[str, list[Any]] = {"list": [], "launch": [], "stop": [], "forget": []}

    def note(self, call: str, what: Sequence[Any]) -> None:
        """Record a call with its arguments, and refuse it if the test requests this."""
        if call in self.refused:
            raise ExecutorError("x" * 500)
        self.asked[call] += what

    def list(self, pool_id: int, at_us: int) -> builtins.list[Report]:
        self.note("list", [(pool_id, at_us)])
        return super().list(pool_id, at_us)

    def launch(self, launches: Sequence[Launch]) -> builtins.list[Report]:
        self.note("launch", launches)
        return super().launch(launches)

    def stop(self, stops: Sequence[Stop]) -> builtins.list[Report]:
        self.note("stop", stops)
        return super().stop(stops)

    def forget(self, tokens: Sequence[str]) -> None:
        self.note("forget", tokens)
        super().forget(tokens)


class Stage:
    """A running job with a stop intent, and two launch intents, one for an ended lease."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lab: Cluster = cluster({"a": 8}, grace_s=7)
        self.runs = self.lab.submit("a", 2, 1000)
        self.lab.round()
        self.waits, void = (self.lab.submit("a", 2, 1000) for _ in range(2))
        monkeypatch.setattr(engine, "dispatch", lambda *_, **__: 0)
        self.lab.round(after_s=10)
        lease = Lease.objects.get(job=self.runs)
        lease.state, lease.end_reason = Lease.State.STOPPING, "not_renewed"
        lease.save()
        Job.objects.filter(pk=self.runs.pk).update(state="stopping")
        Intent.objects.create(
            pool=self.lab.pool, lease=lease, kind=STOP, term=lease.term, at=self.lab.at
        )
        Lease.objects.filter(job=void).update(state="ended", ended_at=self.lab.at)
        token = take_fence(self.lab.pool.pk, holder="test")
        assert token is not None
        self.fence = token

    def at_us(self) -> int:
        return to_us(self.lab.at)

    def run(self, step: Any, executor: WatchedExecutor) -> int:
        done: int = step(self.lab.pool, executor, self.fence, installation="es", at=self.lab.at)
        return done

    def intents(self) -> dict[str, tuple[str, int, int]]:
        rows = Intent.objects.filter(lease__state__in=["stopping", "launching"], kind=LAUNCH)
        rows |= Intent.objects.filter(kind=STOP)
        rows = rows.exclude(lease__job=self.runs, kind=LAUNCH)
        return {row.kind: (row.state, row.attempts, len(row.last_error)) for row in rows}


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


class TestDispatch:
    def test_sends_each_order_once(self, stage: Stage) -> None:
        executor = WatchedExecutor()
        ends, begins = (lease_token(job.pk, 1, "es") for job in (stage.runs, stage.waits))
        assert stage.run(dispatch, executor) == 3
        assert executor.asked == {
            "list": [],
            "stop": [Stop(ends, stage.runs.pk, stage.at_us(), 7 * SECOND_US)],
            "launch": [Launch(begins, stage.waits.pk, stage.at_us())],
            "forget": [ends],
        }
        assert stage.run(dispatch, executor) == 0
        assert len(executor.asked["stop"] + executor.asked["launch"]) == 2
        states = [lease.state for lease in Lease.objects.order_by("job")]
        assert states == ["ended", "running", "ended"]

    @pytest.mark.parametrize(
        ("refused", "done", "intents"),
        [
            # The delivered intents are done, and the refused one is retried at once.
            ("stop", 1, {"stop": ("open", 2, 400), "launch": ("open", 2, 400)}),
            ("launch", 2, {"stop": ("done", 0, 0), "launch": ("open", 2, 400)}),
        ],
    )
    def test_keeps_refused_orders_open_with_error(
        self, stage: Stage, refused: str, done: int, intents: dict[str, tuple[str, int, int]]
    ) -> None:
        assert stage.run(dispatch, WatchedExecutor(refused)) == done
        assert stage.intents() == intents
        assert stage.run(dispatch, WatchedExecutor()) == 3 - done


class TestReconcile:
    def test_unanswered_listing_changes_nothing(self, stage: Stage) -> None:
        before = list(Lease.objects.order_by("pk").values())
        assert stage.run(reconcile, WatchedExecutor("list")) == 0
        assert list(Lease.objects.order_by("pk").values()) == before

    def test_stops_process_without_lease_with_grace_of_pool(self, stage: Stage) -> None:
        orphan = lease_token(stage.runs.pk, 1, "es")
        Lease.objects.filter(job=stage.runs).update(state="ended", ended_at=stage.lab.at)
        refuses, executor = WatchedExecutor("stop"), WatchedExecutor()
        assert stage.run(reconcile, refuses) == 0
        assert refuses.asked["forget"] == []
        assert stage.run(reconcile, executor) == 1
        assert executor.asked == {
            "list": [(stage.lab.pool.pk, stage.at_us())],
            "stop": [Stop(orphan, stage.runs.pk, stage.at_us(), 7 * SECOND_US)],
            "launch": [],
            "forget": [orphan],
        }
        assert stage.run(reconcile, WatchedExecutor()) == 0


def test_repeated_losses_increase_backoff() -> None:
    lab = cluster({"a": 8})
    job, other = lab.submit("a", 2, 1000), lab.submit("a", 2, 1000)
    lab.round()
    Job.objects.filter(pk=job.pk).update(losses=2)
    at = to_us(lab.at)
    reports = [
        Report(lease_token(one.pk, 1, "es"), ReportState.STOPPED, at, at) for one in (job, other)
    ]
    fence = take_fence(lab.pool.pk, holder="test")
    assert fence is not None
    assert len(observe(lab.pool.pk, fence, reports, installation="es", at=lab.at)) == 2
    kept = Job.objects.order_by("pk").values_list("state", "losses", "backoff_until")
    assert list(kept) == [
        ("pending", 3, lab.at + timedelta(seconds=40)),
        ("pending", 1, lab.at + timedelta(seconds=10)),
    ]
