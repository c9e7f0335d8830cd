"""Test every pair of an executor's report and a state in the database, for every executor."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

import pytest

from evenshare_core.domain.instants import from_us
from scheduling.engine.executors.base import ReportState, token_job, token_number
from scheduling.engine.fence import take_fence
from scheduling.engine.reconcile import reconcile
from scheduling.models import ExecutorHealth, Intent, Job, Lease
from tests.integration.executor_contract import Stage
from tests.tools import PATIENCE_S

# States of the lease in the database. `ordered`: it is launching, but the executor has not been
# called.
RECORDED = ("no row", "ended", "ordered", "launching", "running", "stopping")
# States of its process. `unknown`: the executor has forgotten it. `over`: it has ended.
PROCESSES = ("unknown", "runs", "over", "stopped")


class Outcome(NamedTuple):
    """The final states of a lease and its job, with the reason of the lease's end."""

    lease: str
    reason: str
    job: str


LOST = Outcome("ended", "lost", "pending")
FINISHED = Outcome("ended", "finished", "succeeded")
TAKEN = Outcome("ended", "not_renewed", "pending")
NOTHING = Outcome("", "", "pending")
ENDED = Outcome("ended", "not_renewed", "pending")
RUNNING = Outcome("running", "", "running")

OUTCOMES = {
    **{("no row", process): NOTHING for process in PROCESSES},
    **{("ended", process): ENDED for process in PROCESSES},
    ("ordered", "unknown"): Outcome("launching", "", "running"),
    # The executor was called, but a crash prevented the call from being recorded.
    ("ordered", "runs"): RUNNING,
    ("ordered", "over"): FINISHED,
    ("ordered", "stopped"): LOST,
    ("launching", "unknown"): LOST,
    ("launching", "runs"): RUNNING,
    ("launching", "over"): FINISHED,
    ("launching", "stopped"): LOST,
    ("running", "unknown"): LOST,
    ("running", "runs"): RUNNING,
    ("running", "over"): FINISHED,
    ("running", "stopped"): LOST,
    ("stopping", "unknown"): TAKEN,
    # The request to stop has a separate intent.
    ("stopping", "runs"): Outcome("stopping", "not_renewed", "stopping"),
    ("stopping", "over"): FINISHED,
    ("stopping", "stopped"): TAKEN,
}


class ReconcileContract:
    """A process without a lease is stopped, and a lease without a process ends."""

    # Three missing leases at once would be a mass disappearance, so there are two parts.
    @pytest.mark.parametrize(
        "part", [RECORDED[:4], RECORDED[4:]], ids=["before", "after its start"]
    )
    def test_settles_every_pair_of_record_and_process(
        self, stage: Stage, part: tuple[str, ...]
    ) -> None:
        expected = {pair: outcome for pair, outcome in OUTCOMES.items() if pair[0] in part}
        tokens = _every_pair(stage, part)
        for pair, token in tokens.items():
            _record(stage, token, pair[0])
        fence = take_fence(stage.pool.pk, holder="test")
        assert fence is not None

        def settle() -> dict[tuple[str, str], Outcome]:
            at = from_us(stage.now_us())
            reconcile(stage.pool, stage.executor, fence, installation="es", at=at)
            return {pair: _outcome(token) for pair, token in tokens.items()}

        for _ in range(int(10 * PATIENCE_S)):
            outcomes = settle()
            reports = stage.reports()
            running = {one for one, report in reports.items() if report.state in RUNS}
            if (outcomes, running, set(reports)) == (expected, _meant(tokens), running):
                break
            self._pass_silence(stage)
            stage.wait(0.1)
        assert outcomes == expected
        assert running == _meant(tokens)
        assert set(reports) == running, "what is over is forgotten"

    def _pass_silence(self, stage: Stage) -> None:
        """Keep leases missing for the executor's whole `silence_s`."""
        silence = timedelta(seconds=stage.executor.traits.silence_s)
        for row in ExecutorHealth.objects.filter(pool=stage.pool):
            row.missing = {
                token: (datetime.fromisoformat(since) - silence).isoformat()
                for token, since in row.missing.items()
            }
            row.save()

    def test_unlisted_lease_is_lost_after_silence(self, stage: Stage) -> None:
        silence_s = stage.executor.traits.silence_s
        _record(stage, _launched(stage, "runs"), "running")
        token = _launched(stage, "unknown")
        _record(stage, token, "running")
        fence = take_fence(stage.pool.pk, holder="test")
        assert fence is not None

        def settle() -> Outcome:
            at = from_us(stage.now_us())
            reconcile(stage.pool, stage.executor, fence, installation="es", at=at)
            return _outcome(token)

        if silence_s:
            for _ in range(3):
                assert settle() == RUNNING
            (row,) = ExecutorHealth.objects.all()
            since = datetime.fromisoformat(row.missing[token])
            almost = since - timedelta(seconds=silence_s - 60)
            ExecutorHealth.objects.update(missing={token: almost.isoformat()})
            assert settle() == RUNNING
            assert noted_missing() == {token: almost.isoformat()}
            self._pass_silence(stage)
        assert settle() == LOST
        settle()
        assert noted_missing() in ({}, None)

    @pytest.mark.parametrize("process", ["runs", "stopped"])
    def test_reconcile_is_idempotent(self, stage: Stage, process: str) -> None:
        token = _launched(stage, process)
        _record(stage, token, "launching")
        fence = take_fence(stage.pool.pk, holder="test")
        assert fence is not None
        rows = []
        for _ in range(3):
            at = from_us(stage.now_us())
            reconcile(stage.pool, stage.executor, fence, installation="es", at=at)
            rows.append(Lease.objects.values().get(job_id=token_job(token)))
            stage.wait(0.1)
        assert rows[0] == rows[1] == rows[2]


RUNS = (ReportState.ACCEPTED, ReportState.RUNNING)


def noted_missing() -> dict[str, str] | None:
    """Return the recorded missing leases."""
    missing: dict[str, str] | None = ExecutorHealth.objects.values_list(
        "missing", flat=True
    ).first()
    return missing


def _meant(tokens: dict[tuple[str, str], str]) -> set[str]:
    """Return the tokens of the processes that should still run, because their lease is live."""
    return {
        token
        for (recorded, process), token in tokens.items()
        if process == "runs" and recorded not in ("no row", "ended")
    }


def _every_pair(stage: Stage, part: tuple[str, ...]) -> dict[tuple[str, str], str]:
    """Return tokens of leases for each pair, with their processes in the wanted state.

    Processes that must end do so before the others are launched, because they hold GPUs.
    """
    tokens = {
        (recorded, process): stage.lease(runs_s=0.1 if process == "over" else 600)
        for process in PROCESSES
        for recorded in part
    }
    of = {process: [tokens[recorded, process] for recorded in part] for process in PROCESSES}
    stage.launch(*of["over"])
    for token in of["over"]:
        stage.ended(token)
    stage.launch(*of["runs"], *of["stopped"])
    already = {report.token: report for report in stage.stop(*of["stopped"])}
    for token in of["stopped"]:
        stage.ended(token, *([already[token]] if token in already else []))
    return tokens


def _launched(stage: Stage, process: str) -> str:
    """Return a lease's token, with its process in the wanted state."""
    token = stage.lease(runs_s=0.1 if process == "over" else 600)
    if process == "unknown":
        return token
    stage.launch(token)
    if process == "over":
        stage.ended(token)
    if process == "stopped":
        stage.ended(token, *stage.stop(token))
    return token


def _record(stage: Stage, token: str, recorded: str) -> None:
    """Write the database's state of the lease and its job."""
    leases = Lease.objects.filter(job_id=token_job(token), number=token_number(token))
    lease, now = leases.get(), from_us(stage.now_us())
    Intent.objects.filter(lease=lease).delete()
    if recorded == "no row":
        lease.slots.all().delete()
        lease.delete()
    else:
        state = "launching" if recorded == "ordered" else recorded
        runs = recorded in ("running", "stopping")
        leases.update(
            state=state,
            started_at=lease.granted_at if runs or recorded == "ended" else None,
            ended_at=now if recorded == "ended" else None,
            end_reason="not_renewed" if recorded in ("ended", "stopping") else "",
        )
        Intent.objects.create(
            pool=stage.pool, lease=lease, kind=Intent.Kind.LAUNCH, term=1, at=lease.granted_at,
            state=Intent.State.OPEN if recorded == "ordered" else Intent.State.DONE,
        )  # fmt: skip
    job = {"no row": "pending", "ended": "pending", "stopping": "stopping"}.get(recorded, "running")
    Job.objects.filter(pk=token_job(token)).update(state=job)


def _outcome(token: str) -> Outcome:
    job = Job.objects.get(pk=token_job(token))
    lease = job.leases.filter(number=token_number(token)).first()
    if lease is None:
        return Outcome("", "", job.state)
    return Outcome(lease.state, lease.end_reason, job.state)
