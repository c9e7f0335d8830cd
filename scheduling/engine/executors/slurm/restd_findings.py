"""The checks of `check_slurm` for a pool's slurmrestd: its answers, and the user it acts as."""

import contextlib
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.slurm.findings import ClusterFinding, Level, version_findings
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.engine.executors.slurm.restd import RestdJobs
from scheduling.engine.executors.slurm.restd_http import (
    RestdAnswer,
    RestdClient,
    RestdRefusedError,
)
from scheduling.selectors import stored_texts as texts

ABOUT = "slurmrestd"
# If the token expires within a day, probably no timer renews it.
SOON_S = 24 * 3600


class _Release(msgspec.Struct, frozen=True):
    release: str


class _Meta(msgspec.Struct, frozen=True, rename={"slurm": "Slurm"}):
    slurm: _Release


class _Controller(msgspec.Struct, frozen=True):
    ping: str


class RestdPing(RestdAnswer, frozen=True):
    meta: _Meta
    pings: tuple[_Controller, ...]


def restd_findings(options: SlurmOptions) -> Iterator[ClusterFinding]:
    """Query a pool's slurmrestd, if it has one; a failure is a finding."""
    if options.restd is None:
        return
    client = RestdClient(options.restd)
    try:
        yield from _token(client)
    except (ExecutorError, OSError) as error:
        yield ClusterFinding(Level.ERROR, f"{ABOUT}, token", str(error))
        return
    try:
        yield from _answers(client)
    except RestdRefusedError as error:
        yield ClusterFinding(Level.ERROR, ABOUT, str(error))
    except ExecutorError as error:
        text = f"{error}: is it running, and with `-s openapi/{options.restd.version}`?"
        yield ClusterFinding(Level.ERROR, ABOUT, text)


def power_findings(options: SlurmOptions, slurm_user: str) -> Iterator[ClusterFinding]:
    """Warn of a token with which slurmrestd can act as any user."""
    if options.restd is None:
        return
    with contextlib.suppress(ExecutorError):
        token = RestdClient(options.restd).token_user()
        if token is not None and token[0] in ("root", slurm_user):
            text = (
                f"it is for {token[0]}: its readers can act as any user. Run the portal as its"
                f" own user, who is a Slurm operator"
            )
            yield ClusterFinding(Level.WARNING, f"{ABOUT}, token", text)


def _token(client: RestdClient) -> Iterator[ClusterFinding]:
    token = client.token_user()
    if token is None:
        return
    left_s = token[1] - time.time()
    path = Path(client.options.token_file)
    if left_s <= 0:
        raise ExecutorError(texts.TOKEN_EXPIRED.format(path=path))
    if left_s < SOON_S:
        text = f"it ends in {left_s / 3600:.1f} h: renew it with a timer"
        yield ClusterFinding(Level.WARNING, f"{ABOUT}, token", text)
    if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        text = f"other users can read {path}: chmod 600"
        yield ClusterFinding(Level.WARNING, f"{ABOUT}, token", text)


def _identity(client: RestdClient) -> str:
    """Return the user as which the server claims to act; a trial job (`--run`) verifies this."""
    token = client.token_user()
    if token is None:
        return "acts as its own user, who is the portal's; no token is needed"
    return f"acts as {token[0]}, by a token"


def _answers(client: RestdClient) -> Iterator[ClusterFinding]:
    answer = client.ask(RestdPing, "GET", "ping")
    yield ClusterFinding(Level.OK, ABOUT, _identity(client))
    for finding in version_findings(f"slurm {answer.meta.slurm.release}"):
        yield ClusterFinding(finding.level, f"{ABOUT}, version", finding.text)
    if not any(controller.ping == "UP" for controller in answer.pings):
        yield ClusterFinding(Level.ERROR, ABOUT, "reaches no controller: start slurmctld")
        return
    begin = time.monotonic()
    jobs = client.ask(RestdJobs, "GET", "jobs").jobs
    took_s = time.monotonic() - begin
    level = Level.OK if took_s < 1.0 else Level.WARNING
    text = f"lists {len(jobs):,} jobs of all users and partitions in {took_s:.2f} s"
    yield ClusterFinding(level, ABOUT, text)
