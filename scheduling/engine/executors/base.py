"""The protocol of executors. Calls come in batches, after commit, and may be repeated.

How to write one: docs/executors.md. What the engine does where one fails: `breaker`, `well_formed`
and `missing` beside this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import msgspec
from django.conf import settings

from evenshare_core.estimation.evaluations import MetricPoint
from scheduling.engine.executors.pool_options import NoOptions


class ExecutorError(Exception):
    """The engine could not be asked or refused; the intent stays open and is tried again.

    Five calls in a row that raise, this or anything else, open the pool's circuit breaker.
    """


# An adapter gives up on its engine after so long and raises ExecutorError: a round holds its
# pool's fence for 30 s, and calls come one after the other. Nobody can end a call from outside.
CALL_S = 5.0


class ReportState(StrEnum):
    """What the engine says of a lease's process. `accepted`: it will start, or is starting."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Launch:
    """Start a job's process for a lease. `token` is the same for the same lease, for ever."""

    token: str
    job_id: int
    at_us: int


@dataclass(frozen=True)
class Stop:
    """Checkpoint and stop a lease's process, within `grace_us`."""

    token: str
    job_id: int
    at_us: int
    grace_us: int


@dataclass(frozen=True)
class Extension:
    """A live lease's process may run until `until_us`; past it and the pool's outage grace,
    it checkpoints and ends by itself."""

    token: str
    job_id: int
    until_us: int


@dataclass(frozen=True)
class Iterations:
    """What a lease's process says of its iterations: sums since its start, so that none is lost.

    Pool time, whole microseconds. `time_us` is of `count` iterations, the process's first one left
    out: it is part of `resumed_us`, from the start to the end of the first iteration.
    `suspended_us`: from the wish for its GPUs to its last file. None: it has not come to that.
    `memory_bytes`: the most GPU memory that it says it used on one GPU; 0: it does not say.
    """

    count: int
    time_us: int
    resumed_us: int | None = None
    suspended_us: int | None = None
    memory_bytes: int = 0


@dataclass(frozen=True)
class Evaluations:
    """What a lease's process says of its job's stopping metric: all evaluations since its start.

    `points`: iterations of the job in all, and the metric after so many; text of a stranger until
    `scheduling.engine.evaluate` has looked at them. `refused` says why they cannot be used.
    """

    metric: str = ""
    points: tuple[MetricPoint, ...] = ()
    refused: str = ""


@dataclass(frozen=True)
class Report:
    """What the engine says of one token, in microseconds of pool time.

    `started_us` of an accepted one is the instant as of which it was asked. `progress` is what
    the job says of itself: a JSON object, bounded and checked, or None. `iterations` are of this
    lease alone; `refused` says why what was reported of them cannot be used. `evaluations`: None
    where it says nothing of its metric. `contradiction`: what the job's files say against the
    engine, whose word the instants are; empty: nothing.
    """

    token: str
    state: ReportState
    started_us: int
    ended_us: int | None = None
    exit_code: int | None = None
    progress: dict[str, Any] | None = None
    iterations: Iterations | None = None
    refused: str = ""
    evaluations: Evaluations | None = None
    contradiction: str = ""


class ExecutorTraits(NamedTuple):
    """What others ask of an executor instead of its name; an unknown one has none of these.

    `simulates`: nothing runs, a job lasts as long as it says and may come from a trace.
    `keeps_output`: what programs write lies in the portal's data folder. `reports_usage`: so do the
    samples of their CPUs, memory and GPUs (docs/executors.md). `runs_as_portal`: jobs
    have the rights of the portal's own user. `is_exclusive`: only this installation uses it.
    `has_nodes`: its engine has nodes of its own, with states; `title` is what people call that
    engine (`scheduling.engine.executors.node_source`).
    `silence_s`: a launched lease that `list` leaves out is lost after so long, in wall time, and
    in the second such listing at the earliest; 0, at once: its own records are the truth.
    `options_type`: the struct that it reads `Pool.executor_options` as; `finds_by`: those of them
    by which it finds what runs, and that stay as they are while something does. `host_options`:
    those that name programs, files and users of machines; whoever sets one can have what he likes
    run there, so nobody does by the network.
    """

    simulates: bool = False
    keeps_output: bool = False
    reports_usage: bool = False
    runs_as_portal: bool = False
    is_exclusive: bool = False
    has_nodes: bool = False
    title: str = ""
    silence_s: int = 0
    options_type: type[msgspec.Struct] = NoOptions
    finds_by: tuple[str, ...] = ()
    host_options: tuple[str, ...] = ()


class Executor(Protocol):
    """Runs processes for leases. All calls are idempotent by token.

    A call may come twice, late or after one that followed it: the process that held a pool's
    fence slept, and another went on. So a token is started at most once for ever, never after
    it was asked to stop, and never when a later lease of its job was launched or stopped;
    whatever comes late is answered by what is. Each use makes a new object: nothing is kept in
    memory. No call may wait for its engine longer than CALL_S; any may raise ExecutorError.
    """

    traits: ExecutorTraits

    def launch(self, launches: Sequence[Launch]) -> list[Report]:
        """Start processes, or adopt what runs already under a token."""

    def stop(self, stops: Sequence[Stop]) -> list[Report]:
        """Ask processes to stop; report those that have ended already."""

    def extend(self, pool_id: int, leases: Sequence[Extension]) -> None:
        """Move the dead man's limits of live leases; called after each round with all of them."""

    def list(self, pool_id: int, at_us: int) -> list[Report]:
        """Report every token of the pool that was launched, until it is forgotten.

        One that ended after `at_us` is reported as running. A launched lease that is not
        reported is taken for lost, as `ExecutorTraits.silence_s` says.

        Raises:
            ExecutorError: nobody can tell now what runs.
        """

    def forget(self, tokens: Sequence[str]) -> None:
        """Drop what is kept about ended processes, once their end is recorded."""


# Modules are imported when they are asked for: they need tables, and this one does not.
EXECUTORS = {
    "virtual": "scheduling.engine.executors.virtual:VirtualExecutor",
    "local": "scheduling.engine.executors.local:LocalExecutor",
    "slurm": "scheduling.engine.executors.slurm.executor:SlurmExecutor",
}


def executor_for(name: str) -> Executor:
    """Return the executor of a pool by its name.

    Raises:
        ExecutorError: there is none of this name, or it is not for production.
    """
    if name not in EXECUTORS:
        raise ExecutorError(f"executor {name!r} is unknown; there are {', '.join(EXECUTORS)}")
    if settings.PRODUCTION and executor_traits(name).runs_as_portal:
        raise ExecutorError(f"executor {name!r} runs jobs as the portal's user: not in production")
    return _class_of(name)()


def executor_traits(name: str) -> ExecutorTraits:
    """Return the traits of a pool's executor; nothing is known of one that is not ours."""
    return _class_of(name).traits if name in EXECUTORS else ExecutorTraits()


def simulating_executors() -> list[str]:
    """Return the names of the executors whose jobs last as long as they say."""
    return [name for name in EXECUTORS if executor_traits(name).simulates]


def _class_of(name: str) -> type[Executor]:
    module, _, attribute = EXECUTORS[name].partition(":")
    executor: type[Executor] = getattr(import_module(module), attribute)
    return executor


def token_job(token: str) -> int:
    return int(token.split("-")[1])


def token_number(token: str) -> int:
    """Return which lease of its job a token names."""
    return int(token.split("-")[2])


def lease_token(job_id: int, lease_number: int, installation: str) -> str:
    """Name a lease for the engine: installation-job-leasenumber, the same on every attempt."""
    return f"{installation}-{job_id}-{lease_number}"
