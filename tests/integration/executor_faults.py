"""Tests of executors whose engines fail in every way: no program starts twice, no lease is lost.

A test file provides the fixture `stage`, as for `ExecutorContract`, and inherits
`FaultyExecutorContract`. Faults are injected between the portal's engine and the executor under
test, whose calls take effect.
"""

from __future__ import annotations

import builtins
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from evenshare_core.domain.instants import from_us
from scheduling.engine import breaker
from scheduling.engine.dispatch import dispatch
from scheduling.engine.executors.base import (
    Executor,
    ExecutorError,
    Extension,
    Launch,
    Report,
    ReportState,
    Stop,
    token_job,
    token_number,
)
from scheduling.engine.fence import take_fence
from scheduling.engine.reconcile import reconcile
from scheduling.models import ExecutorHealth, Intent, Job, Lease, LeaseEvent
from tenants.models import AuditRecord, User
from tests.integration.executor_contract import Stage
from tests.tools import PATIENCE_S

# In the class body, `list` would mean the protocol's method.
Reports = list[Report]
# Faults change only the answer, after the call took effect.
Fault = Callable[[Reports], Any]
OTHERS = "elsewhere-1-1"


def refuses(_: Reports) -> Reports:
    """Raise an error after the call took effect, so the portal cannot know whether it did."""
    raise ExecutorError("502 Bad Gateway")


def is_too_slow(_: Reports) -> Reports:
    """Answer too late."""
    raise ExecutorError("did not answer within 5 s")


def raises(_: Reports) -> Reports:
    """Raise like a bug of the adapter."""
    raise KeyError("no such field\0 in the answer")


def says_nothing(_: Reports) -> Reports:
    """Lose the answer, and return an empty one."""
    return []


def says_none(_: Reports) -> None:
    """Return None instead of a list."""


def reuses_ids(reports: Reports) -> Reports:
    """Reuse an id, so that the answer also lists jobs that had this id before."""
    strangers = [replace(one, token=_other_lease(one.token)) for one in reports]
    return [*reports, *strangers, Report(OTHERS, ReportState.RUNNING, 1)]


def talks_nonsense(reports: Reports) -> builtins.list[Any]:
    """Return malformed reports, each with a different fault."""
    wrong: builtins.list[Any] = [None, "running", 7, {"token": "es-1-1"}]
    for number, one in enumerate(reports):
        started: Any = one.started_us
        code: Any = 10**12
        progress: Any = {"a": float("nan")}
        wrong += (
            [Report(one.token, ReportState.FINISHED, started, None, 0)],
            [Report(one.token, ReportState.STOPPED, "yesterday", started)],  # type: ignore[arg-type]  # nonsense
            [Report(one.token, ReportState.RUNNING, started, started)],
            [Report(one.token, "gone", started, started)],  # type: ignore[arg-type]  # nonsense
            [Report(one.token, ReportState.FINISHED, started, started, code)],
            # If two reports contradict each other, neither is used.
            [
                Report(one.token, ReportState.FINISHED, started, started + 1, 0),
                Report(one.token, ReportState.RUNNING, started),
            ],
            [replace(one, progress=progress, iterations=3, evaluations="all")],  # type: ignore[arg-type]  # nonsense
        )[number % 7]
    return [*wrong, Report("", ReportState.FINISHED, 1, 2, 0), Report("es-x-1; rm", RUNNING, 1)]


def says_half(reports: Reports) -> Reports:
    """Leave out a page of the listing."""
    return reports[: len(reports) // 2]


def _other_lease(token: str) -> str:
    """Return the token of an earlier lease of the same job, of which there is no record."""
    return token.rpartition("-")[0] + "-0"


RUNNING = ReportState.RUNNING
OF_CALLS = (refuses, is_too_slow, raises, says_nothing, says_none, reuses_ids, talks_nonsense)
# Faults that leave so large a part out of a listing that it looks like a mass disappearance.
OF_LISTINGS = (*OF_CALLS, says_half)


class FaultyExecutor:
    """The executor under test, with a fault in its next answer to a call."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.traits = executor.traits
        self.faults: dict[str, Fault] = {}
        self.calls = 0
        # All reported starts by token.
        self.starts: defaultdict[str, set[int]] = defaultdict(set)

    def launch(self, launches: Sequence[Launch]) -> Reports:
        return self._spoiled("launch", lambda: self._executor.launch(launches))

    def stop(self, stops: Sequence[Stop]) -> Reports:
        return self._spoiled("stop", lambda: self._executor.stop(stops))

    def extend(self, pool_id: int, leases: Sequence[Extension]) -> None:
        self.calls += 1
        self._executor.extend(pool_id, leases)

    def list(self, pool_id: int, at_us: int) -> Reports:
        return self._spoiled("list", lambda: self._executor.list(pool_id, at_us))

    def forget(self, tokens: Sequence[str]) -> None:
        def forget() -> Reports:
            self._executor.forget(tokens)
            return []

        self._spoiled("forget", forget)

    def _spoiled(self, name: str, call: Callable[[], Reports]) -> Reports:
        self.calls += 1
        reports = call()
        for one in reports:
            if one.state is ReportState.RUNNING:
                self.starts[one.token].add(one.started_us)
        fault = self.faults.get(name)
        answer: Reports = fault(reports) if fault else reports
        return answer


class _Engine:
    """The calls that the engine makes on a stage through a faulty executor."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.executor = FaultyExecutor(stage.executor)
        fence = take_fence(stage.pool.pk, holder="test", hold_s=3600)
        assert fence is not None
        self._fence = fence

    def order(self, count: int) -> list[str]:
        """Write launch intents."""
        tokens = [self.stage.lease(runs_s=600) for _ in range(count)]
        for token in tokens:
            self.intend(token, Intent.Kind.LAUNCH)
        jobs = [token_job(token) for token in tokens]
        Job.objects.filter(pk__in=jobs).update(state="running")
        return tokens

    def order_stop(self, token: str) -> None:
        """Order the stop of a lease, as a round does."""
        leases = Lease.objects.filter(job=token_job(token))
        leases.update(state="stopping", end_reason="not_renewed")
        Job.objects.filter(pk=token_job(token)).update(state="stopping")
        self.intend(token, Intent.Kind.STOP)

    def intend(self, token: str, kind: str) -> None:
        lease = Lease.objects.get(job=token_job(token), number=token_number(token))
        Intent.objects.create(
            pool=self.stage.pool, lease=lease, kind=kind, term=1, at=lease.granted_at
        )

    def step(self) -> None:
        """Make the calls that a round makes to its executor."""
        at = from_us(self.stage.now_us())
        dispatch(self.stage.pool, self.executor, self._fence, installation="es", at=at)
        reconcile(self.stage.pool, self.executor, self._fence, installation="es", at=at)

    def until(self, is_so: Callable[[], bool]) -> None:
        """Continue without faults until a condition holds."""
        self.executor.faults = {}
        for _ in range(int(10 * PATIENCE_S)):
            self.step()
            if is_so():
                return
            self.stage.wait(0.1)
        raise AssertionError(self.states())

    def states(self) -> dict[str, tuple[str, str]]:
        rows = Lease.objects.order_by("id").values_list("job_id", "number", "state", "end_reason")
        return {f"es-{job}-{number}": (state, why) for job, number, state, why in rows}

    def all_run(self, tokens: Sequence[str]) -> bool:
        states = self.states()
        return all(states[token] == ("running", "") for token in tokens)

    def running(self, count: int) -> list[str]:
        tokens = self.order(count)
        self.until(lambda: self.all_run(tokens))
        return tokens

    def assert_started_once(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            assert len(self.executor.starts[token]) == 1, token
            started = LeaseEvent.objects.filter(lease__job=token_job(token), kind="started")
            assert started.count() == 1, token
        assert not Lease.objects.exclude(number=1).exists()


class FaultyExecutorContract:
    """Whatever the engine answers, a token starts once, and no running lease ends."""

    @pytest.fixture(autouse=True)
    def _patient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Allow the next call through an open breaker as a probe; a test may replace this."""
        monkeypatch.setattr(breaker, "COOL_DOWN_S", 0)

    def test_failing_launches_start_each_process_once(self, stage: Stage) -> None:
        engine = _Engine(stage)
        tokens = []
        for fault in OF_CALLS:
            (token,) = engine.order(1)
            tokens.append(token)
            engine.executor.faults = {"launch": fault, "forget": refuses}
            engine.step()
            assert engine.states()[token][0] in ("launching", "running"), fault
            engine.until(lambda token=token: engine.all_run([token]))  # type: ignore[misc]  # bound now
        assert engine.all_run(tokens)
        engine.assert_started_once(tokens)

    def test_failing_listings_end_no_lease(self, stage: Stage) -> None:
        engine = _Engine(stage)
        tokens = engine.running(6)
        before = engine.states()
        for fault in OF_LISTINGS:
            engine.executor.faults = {"list": fault}
            for _ in range(2):
                engine.step()
                assert engine.states() == before, fault
            engine.until(lambda: True)
            assert engine.states() == before, fault
        engine.assert_started_once(tokens)
        assert {token for token, one in stage.reports().items() if one.state is RUNNING} == set(
            tokens
        )

    def test_failing_stops_end_each_lease_as_requested(self, stage: Stage) -> None:
        engine = _Engine(stage)
        tokens = engine.running(len(OF_CALLS) + 1)
        for token, fault in zip(tokens, OF_CALLS, strict=False):
            engine.order_stop(token)
            engine.executor.faults = {"stop": fault, "forget": raises}
            engine.step()
            engine.until(
                lambda token=token: engine.states()[token][0] == "ended"  # type: ignore[misc]  # bound now
            )
            assert engine.states()[token] == ("ended", "not_renewed"), fault
            assert Job.objects.get(pk=token_job(token)).state == "pending"
        assert engine.states()[tokens[-1]] == ("running", "")
        engine.assert_started_once(tokens)
        engine.until(lambda: set(stage.reports()) == {tokens[-1]})

    def test_breaker_skips_unreachable_engine_and_loses_nothing(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(breaker, "COOL_DOWN_S", 30)
        engine = _Engine(stage)
        runs = engine.running(1)
        waits = engine.order(1)
        engine.executor.faults = dict.fromkeys(("launch", "stop", "list", "forget"), refuses)
        while engine.executor.calls < 100 and not _health().open_until:
            engine.step()
        assert _health().failures == breaker.FAILURES
        asked = engine.executor.calls
        caplog.clear()
        for _ in range(3):
            engine.step()
        assert engine.executor.calls == asked, "an open breaker lets nothing through"
        # The failures were logged when the breaker opened.
        assert "not asked" not in caplog.text
        assert engine.states() == {runs[0]: ("running", ""), waits[0]: ("launching", "")}
        assert Intent.objects.get(lease__job=token_job(waits[0])).state == "open"
        # The first call after the cool-down is the probe; it fails and lengthens the cool-down.
        self._cool_down()
        engine.step()
        assert engine.executor.calls == asked + 1
        assert _health().failures == breaker.FAILURES + 1
        self._cool_down()
        engine.until(lambda: engine.all_run([*runs, *waits]))
        assert (_health().failures, _health().open_until, _health().error) == (0, None, "")
        engine.assert_started_once([*runs, *waits])

    def _cool_down(self) -> None:
        for row in ExecutorHealth.objects.exclude(open_until=None):
            row.open_until = row.open_until - timedelta(hours=1) if row.open_until else None
            row.save()

    def test_mass_disappearance_freezes_leases_until_they_return(self, stage: Stage) -> None:
        engine = _Engine(stage)
        tokens = engine.running(4)
        before = engine.states()
        engine.executor.faults = {"list": says_nothing}
        for _ in range(3):
            engine.step()
        assert engine.states() == before
        assert _health().frozen_since is not None
        assert set(_health().missing) == set(tokens)
        engine.until(lambda: _health().frozen_since is None)
        assert engine.states() == before
        assert _health().missing == {}
        engine.assert_started_once(tokens)

    def test_operator_can_accept_mass_loss(self, stage: Stage) -> None:
        engine = _Engine(stage)
        tokens = engine.running(4)
        User.objects.create(username="kim", site_role="operator")
        command = ("accept_losses", stage.pool.name, "--user=kim", "--reason=a new cluster")
        with pytest.raises(CommandError, match="no missing leases"):
            call_command(*command)
        engine.executor.faults = {"list": says_nothing}
        engine.step()
        call_command(*command)
        record = AuditRecord.objects.get(action="executor.losses_accepted")
        assert (record.after["leases"], record.reason) == (4, "a new cluster")
        assert record.after["tokens"] == sorted(tokens)
        engine.step()
        assert set(engine.states().values()) == {("ended", "lost")}
        assert set(Job.objects.values_list("state", flat=True)) == {"pending"}
        # The processes still run. Their leases have ended by now, so they are stopped.
        engine.until(lambda: stage.reports() == {})
        assert (_health().missing, _health().accepted) == ({}, [])
        engine.assert_started_once(tokens)


def _health() -> ExecutorHealth:
    row = ExecutorHealth.objects.first()
    return row or ExecutorHealth()
