"""Test a local job's false reports of its start and end; only the engine's times are recorded."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduling.engine.executors.base import Report, ReportState
from scheduling.models import Lease
from tests.integration.local_world import LocalWorld, local_world
from tests.tools import eventually

pytestmark = [
    pytest.mark.usefixtures("committed_db"),
    pytest.mark.skipif(sys.platform != "linux", reason="the executor finds processes in /proc"),
]

SECOND_US = 1_000_000
FUTURE_US = 2**51
RUNS = "sleep 6000"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    with local_world(tmp_path / "jobs") as there:
        yield there


def claims(**said: object) -> str:
    """Return shell code that overwrites the shim's record of its start."""
    new = json.dumps(said)
    merge = (
        "import json, sys; said = json.load(open('leases/1/shim.json'));"
        f" said.update(json.loads({new!r}));"
        " json.dump(said, open('leases/1/new', 'w'))"
    )
    waits = "until grep -q started_us leases/1/shim.json; do sleep 0.02; done;"
    return f'{waits} {sys.executable} -c "{merge}"; mv leases/1/new leases/1/shim.json; touch done;'


def ends(**said: object) -> str:
    """Return shell code that writes a false end."""
    return f"echo '{json.dumps(said)}' > leases/1/exit.json; touch done;"


def begun(world: LocalWorld, text: str) -> str:
    """Launch a shell script, and wait until it has written its files."""
    token = world.shell(text)
    world.lab.pool.leases.update(state=Lease.State.RUNNING)
    eventually((world.job_folder(token) / "done").exists)
    return token


def over(world: LocalWorld, token: str) -> Report:
    """Wait until the kernel has ended the processes, and return the report of the next poll."""
    eventually(lambda: not world.processes())
    report: Report = world.listed()[token]
    assert report.state in (ReportState.FINISHED, ReportState.STOPPED)
    return report


@pytest.mark.parametrize(
    "lie",
    [
        claims(started_us=FUTURE_US),
        claims(started_us=None),
        claims(started_us=1),
        claims(pid=1),
        claims(never=True),
        "rm -f leases/1/shim.json; touch done;",
        ends(code=0, started_us=1, ended_us=2),
        ends(code=0, started_us=FUTURE_US, ended_us=FUTURE_US + 1),
        ends(lost=True, ended_us=2),
        "mkdir -p leases/1/exit.json/x; touch done;",
    ],
)
def test_false_reports_do_not_change_recorded_times(world: LocalWorld, lie: str) -> None:
    before_us = world.now_us()
    token = begun(world, f"{lie} until [ -e end ]; do sleep 0.02; done; exit 3")
    began_us = world.now_us()
    runs = world.listed()[token]
    assert runs.state is ReportState.RUNNING
    assert before_us <= runs.started_us <= began_us
    ends_us = world.now_us()
    (world.job_folder(token) / "end").touch()
    report = over(world, token)
    assert (report.state, report.exit_code) == (ReportState.FINISHED, 3)
    assert report.started_us == runs.started_us
    assert report.ended_us is not None
    assert ends_us <= report.ended_us <= world.now_us()


def test_killed_shim_ends_at_time_observed_by_engine(world: LocalWorld) -> None:
    """The job wrote another end, and a start that is years in the future."""
    lie = claims(started_us=FUTURE_US) + ends(code=0, started_us=1, ended_us=2)
    token = begun(world, lie + RUNS)
    killed_us = world.now_us()
    (shim,) = (pid for pid in world.processes() if pid == world.shim(token)["pid"])
    os.kill(shim, signal.SIGKILL)
    report = world.ended(token)
    assert report.state is ReportState.STOPPED
    assert report.ended_us is not None
    assert killed_us <= report.ended_us <= world.now_us()


def test_forged_pid_is_not_signalled(world: LocalWorld) -> None:
    other = world.shell(RUNS)
    token = begun(world, "cp ../2/leases/1/shim.json leases/1/shim.json; touch done;" + RUNS)
    forged = world.shim(other)
    (world.folder(token) / "shim.json").write_text(json.dumps(forged))
    world.stop(token, grace_s=0)
    assert world.ended(token).state is ReportState.STOPPED
    assert world.listed()[other].state is ReportState.RUNNING


def test_job_that_suspends_its_shim_is_killed_after_grace(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(world.executor), "cut_off_s", 0.0)
    grace = json.dumps({"grace_s": 1e300})
    stops = f"kill -STOP $PPID; echo '{grace}' > leases/1/stop; touch done;"
    token = begun(world, stops + RUNS)
    world.stop(token, grace_s=0)
    assert world.ended(token).state is ReportState.STOPPED
    eventually(lambda: not world.processes())
