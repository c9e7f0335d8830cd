"""A tiny job that tests whether nodes can use the folder of jobs, which no setting shows.

It runs like a lease, with the same script and interpreter on a node. It requests no GPU, and is
cancelled as soon as it has answered.
"""

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.shim.files import make_private, number, read_json, read_text
from scheduling.engine.executors.slurm.commands import (
    NodeGroup,
    Slurm,
    Submission,
    SubmissionRefusedError,
    last_line,
)
from scheduling.engine.executors.slurm.findings import TRIAL, ClusterFinding, Level, clock_finding
from scheduling.engine.executors.slurm.installed import SCRIPT, install_shim
from scheduling.engine.executors.slurm.restd import RestdSlurm
from scheduling.engine.executors.slurm.users import UnixUser, share_folder

PROBE = Path(__file__).with_name("probe.py")
PATIENCE_S = 60.0
LEAST_PYTHON = (3, 10)
_MINUTES = 5


def trial_findings(
    slurm: Slurm, root: Path, node: str, *, user: UnixUser | None = None
) -> Iterator[ClusterFinding]:
    """Run the trial on a node, below `root`, the folder of all jobs; remove all its files.

    `user`: the user to run it as; None for the portal's user.

    Raises:
        ExecutorError: Slurm does not answer.
        OSError: the folder cannot be written here.
    """
    make_private(root)
    folder = Path(tempfile.mkdtemp(prefix=".check-", dir=root))
    try:
        yield from _trial(slurm, root, folder, node, user=user)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _trial(
    slurm: Slurm, root: Path, folder: Path, node: str, *, user: UnixUser | None
) -> Iterator[ClusterFinding]:
    about = f"trial on {node} as {user.name}" if user else f"trial on {node}"
    asked = secrets.token_hex(8)
    (folder / "asked").write_text(asked)
    shutil.copy(PROBE, folder / PROBE.name)
    submission = _submission(slurm, root, folder, node, user)
    if user is not None:
        share_folder(root, folder, user)
        for path in folder.iterdir():
            os.chown(path, -1, user.gid)
            path.chmod(0o640)
    job = slurm.submit({TRIAL: lambda: submission})[TRIAL]
    if isinstance(job, SubmissionRefusedError):
        yield ClusterFinding(Level.ERROR, about, f"Slurm refuses it: {job}")
        return
    if isinstance(job, Exception):
        raise job
    try:
        answer = _await_answer(slurm, folder, job)
        if answer is None:
            yield ClusterFinding(Level.ERROR, about, _why_silent(slurm, folder, job))
            return
        yield from _judge(about, node, answer, asked, user.uid if user else os.getuid())
        yield _prolonged(slurm, job)
    finally:
        slurm.cancel([job])


def _submission(
    slurm: Slurm, root: Path, folder: Path, node: str, user: UnixUser | None
) -> Submission:
    return Submission(
        token=TRIAL,
        name=TRIAL,
        argv=(slurm.options.interpreter, "-I", "-S", str(folder / PROBE.name), str(folder)),
        script=str(install_shim(root).with_name(SCRIPT)),
        folder=str(folder),
        output=str(folder / "output"),
        groups=(NodeGroup((node,), "", 1, 0),),
        minutes=slurm.options.limit_minutes or _MINUTES,
        user=user.name if user else "",
    )


def _await_answer(slurm: Slurm, folder: Path, job: int) -> dict[str, Any] | None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = read_json(folder / "answer")
        if answer is not None:
            return answer
        if _state(slurm, job)[0] not in ("PENDING", "CONFIGURING", "RUNNING"):
            # On a network file system the answer may become visible a little later.
            time.sleep(1.0)
            return read_json(folder / "answer")
        time.sleep(0.1)
    return None


def _state(slurm: Slurm, job: int) -> tuple[str, str]:
    said = slurm.ask("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T|%r")
    state, _, reason = said.strip().partition("|")
    return state, reason


def _why_silent(slurm: Slurm, folder: Path, job: int) -> str:
    state, reason = _state(slurm, job)
    if state == "PENDING":
        return (
            f"it is still pending after {PATIENCE_S:g} s ({reason}); try again when a CPU is free"
        )
    output = last_line(read_text(folder / "output"))
    if output:
        return f"it ended without an answer ({state}): {output}"
    return (
        f"it ran ({state}) but wrote nothing in {folder.parent}: the node has another folder"
        f" there, or no Python at {slurm.options.interpreter}. Mount the folder at the same path"
        f" on all nodes, or set `python` in executor_options"
    )


def _judge(
    about: str, node: str, answer: dict[str, Any], asked: str, uid: int
) -> Iterator[ClusterFinding]:
    if answer.get("said") != asked:
        yield ClusterFinding(Level.ERROR, about, "it read a different file than was written here")
        return
    yield ClusterFinding(Level.OK, about, "reads and writes the folder of jobs")
    version = str(answer.get("python", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers < LEAST_PYTHON:
        least = ".".join(map(str, LEAST_PYTHON))
        text = f"Python {version} is older than {least}: set `python` in executor_options"
        yield ClusterFinding(Level.ERROR, about, text)
    else:
        yield ClusterFinding(Level.OK, about, f"Python {version}")
    if answer.get("uid") != uid:
        text = f"its user has the id {answer.get('uid')} there, but {uid} here"
        yield ClusterFinding(
            Level.ERROR, about, f"{text}: use one user with the same number everywhere"
        )
    yield clock_finding(node, number(answer.get("at"), 0.0) - time.time())


def _prolonged(slurm: Slurm, job: int) -> ClusterFinding:
    """Check whether a job's time limit may be raised, as each renewal of a lease does."""
    about = "trial, time limit"
    if slurm.options.limit_minutes:
        return ClusterFinding(Level.OK, about, "is not moved (limit_minutes)")
    try:
        if isinstance(slurm, RestdSlurm):
            slurm.limit({job: _MINUTES + 5})
        else:
            slurm.ask("scontrol", "update", f"JobId={job}", f"TimeLimit={_MINUTES + 5}")
    except ExecutorError as error:
        text = f"{error}: make this user a Slurm operator, or set limit_minutes"
        return ClusterFinding(Level.ERROR, about, text)
    return ClusterFinding(Level.OK, about, "was prolonged")
