"""The protocol of executors. Calls come in batches, after the commit, and may be repeated.

docs/executors.md describes how to write an executor. The engine's modules `breaker`, `well_formed`
and `missing` handle failures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import EntryPoint
from typing import Any, NamedTuple, Protocol

import msgspec
from django.conf import settings

from evenshare_core.entry_points import EntryGroup
from evenshare_core.estimation.evaluations import MetricPoint
from scheduling.engine.executors.pool_options import NoOptions
from scheduling.selectors import stored_texts as texts


class ExecutorError(Exception):
    """The engine could not be reached, or refused the call; the intent stays open and is retried.

    Five consecutive calls that raise this or any other error open the pool's circuit breaker.
    """


# The time after which an adapter gives up on its engine and raises ExecutorError. A round holds its
# pool's fence for 30 s and makes several calls, and a call cannot be interrupted from outside.
CALL_S = 5.0


class ReportState(StrEnum):
    """The state of a lease's process. `accepted`: it will start, or is starting."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"


OVER = (ReportState.FINISHED, ReportState.STOPPED)


@dataclass(frozen=True)
class Launch:
    """A request to start a job's process. The lease's `token` never changes."""

    token: str
    job_id: int
    at_us: int


@dataclass(frozen=True)
class Stop:
    """A request to checkpoint and stop a lease's process within `grace_us`."""

    token: str
    job_id: int
    at_us: int
    grace_us: int


@dataclass(frozen=True)
class Extension:
    """A renewal of a live lease: its process may run until `until_us`.

    After that time and the pool's outage grace, the process checkpoints and ends by itself.
    """

    token: str
    job_id: int
    until_us: int


@dataclass(frozen=True)
class Iterations:
    """The reported iterations of a lease's process.

    They are sums since the process's start, so that a missed report loses none. Times are whole
    microseconds of pool time. `time_us`: the time of `count` iterations, without the process's
    first iteration. `resumed_us`: the time from the process's start to the end of its first
    iteration. `suspended_us`: the time from the request to release its GPUs until it wrote its last
    file. `resumed_us` and `suspended_us` are None while unknown. `memory_bytes`: the maximum GPU
    memory that the process reported on one GPU; 0 if not reported.
    """

    count: int
    time_us: int
    resumed_us: int | None = None
    suspended_us: int | None = None
    memory_bytes: int = 0


@dataclass(frozen=True)
class Evaluations:
    """The reported evaluations of a job's stopping metric since the process's start.

    `points`: (total iterations of the job, the metric after them). They are untrusted until
    `scheduling.engine.evaluate` has checked them. `refused`: why they cannot be used.
    """

    metric: str = ""
    points: tuple[MetricPoint, ...] = ()
    refused: str = ""


@dataclass(frozen=True)
class Report:
    """The engine's report on one token, in microseconds of pool time.

    `started_us` of an accepted token is the time of the request. `progress` is the job's own
    report: a JSON object, bounded and checked, or None. `iterations` count this lease only;
    `refused`: why reported iterations cannot be used. `evaluations` is None if no metric is
    reported. `contradiction`: how the job's files contradict the engine; empty if they agree. If
    they contradict it, the report has the engine's times.
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
    """Properties of an executor, so that other code need not know its name.

    A missing executor has the defaults. `simulates`: no process runs; a job lasts as long as it
    declares, and may come from a trace. `keeps_output`: the output of programs is in the portal's
    data folder. `keeps_files`: so are the folders of jobs, with their metrics and files.
    `reports_usage`: so is a record of the use of CPUs, memory and GPUs (docs/executors.md).
    `runs_as_portal`: jobs have the rights of the portal's user.
    `is_exclusive`: only this installation uses it. `has_nodes`: its engine knows its nodes and
    their states (`scheduling.engine.executors.node_source`); `title` is the engine's name.
    `silence_s`: a launched lease counts as lost if at least two calls of `list`, over this wall
    time, leave it out. If it is 0, the lease is lost at once, because the executor's own records
    are complete. `options_type`: the struct for `Pool.executor_options`. `finds_by`: the options by
    which it finds running processes; they must not change while one runs. `host_options`: the
    options that name programs, files and users of machines. They allow arbitrary code to run there,
    so they cannot be set over the network.
    """

    simulates: bool = False
    keeps_output: bool = False
    keeps_files: bool = False
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

    A call may be repeated, delayed or overtaken by a later call: a process that held a pool's fence
    may have slept meanwhile. So a token is never started more than once. It never starts after a
    request to stop it, or after a later lease of its job was launched or stopped. A late call
    returns the current state. Each use creates a new object: no state is kept in memory. No call
    may wait for its engine longer than CALL_S; every call may raise ExecutorError.
    """

    traits: ExecutorTraits

    def launch(self, launches: Sequence[Launch]) -> list[Report]:
        """Start processes, or adopt a process that already runs under a token."""

    def stop(self, stops: Sequence[Stop]) -> list[Report]:
        """Ask processes to stop; report those that have ended already."""

    def extend(self, pool_id: int, leases: Sequence[Extension]) -> None:
        """Move the dead man's limits of live leases; called after each round with all of them."""

    def list(self, pool_id: int, at_us: int) -> list[Report]:
        """Report every token of the pool that was launched, until it is forgotten.

        A token that ended after `at_us` is reported as running. A launched lease that is not
        reported counts as lost after the time in `ExecutorTraits.silence_s`.

        Raises:
            ExecutorError: the running processes cannot be determined now.
        """

    def forget(self, tokens: Sequence[str]) -> None:
        """Drop the records of ended processes, once their end is stored."""


GROUP = EntryGroup("evenshare.executors", "executor", "the portal")
# Executors are imported on use, because they need Django's tables and this module does not.
EXECUTORS = {
    name: EntryPoint(name, f"scheduling.engine.executors.{value}", GROUP.name)
    for name, value in (
        ("virtual", "virtual:VirtualExecutor"),
        ("local", "local:LocalExecutor"),
        ("slurm", "slurm.executor:SlurmExecutor"),
    )
}
# Reasons why executors that other packages declare are skipped, by name.
FAULTS: dict[str, str]
CALLS = ("launch", "stop", "extend", "list", "forget")


def executor_for(name: str) -> Executor:
    """Return the executor of a pool by its name.

    Raises:
        ExecutorError: the executor is missing, or not for production.
    """
    executor = _class_of(name)
    if settings.PRODUCTION and executor.traits.runs_as_portal:
        raise ExecutorError(texts.RUNS_AS_PORTAL.format(executor=repr(name)))
    return executor()


def missing_executor(name: str) -> str:
    """Return why an executor is missing or does not load, or "" if it can be used."""
    try:
        _class_of(name)
    except ExecutorError as error:
        return str(error)
    return ""


def executor_faults() -> list[str]:
    """Return why executors of other packages cannot be used; imports all executors."""
    return [*FAULTS.values(), *filter(None, map(missing_executor, EXECUTORS))]


def executor_traits(name: str) -> ExecutorTraits:
    """Return the traits of a pool's executor; a missing executor has the default traits."""
    return ExecutorTraits() if missing_executor(name) else _class_of(name).traits


def simulating_executors() -> list[str]:
    """Return the names of the executors whose jobs last as long as they declare."""
    return [name for name in EXECUTORS if executor_traits(name).simulates]


def _class_of(name: str) -> type[Executor]:
    """Return an executor's class. Faults are not cached: a file may be back at the next call.

    Raises:
        ExecutorError: no executor has this name, or its package is faulty.
    """
    entry = EXECUTORS.get(name)
    if entry is None:
        unknown = texts.NO_EXECUTOR.format(executor=repr(name), installed=", ".join(EXECUTORS))
        raise ExecutorError(FAULTS.get(name, unknown))
    try:
        return _load(entry)
    except (Exception, SystemExit) as error:
        raise ExecutorError(GROUP.not_loaded(entry, error)) from error


def _load(entry: EntryPoint) -> type[Executor]:
    executor: type[Executor] = entry.load()
    if not isinstance(getattr(executor, "traits", None), ExecutorTraits):
        raise TypeError(f"{entry.value} has no ExecutorTraits")
    if lacks := [call for call in CALLS if not callable(getattr(executor, call, None))]:
        raise TypeError(f"{entry.value} has no {', '.join(lacks)}")
    return executor


_entries, FAULTS = GROUP.read(EXECUTORS.keys())
EXECUTORS.update(_entries)


def token_job(token: str) -> int:
    return int(token.split("-")[1])


def token_number(token: str) -> int:
    """Return the number of a token's lease within its job."""
    return int(token.split("-")[2])


def lease_token(job_id: int, lease_number: int, installation: str) -> str:
    """Return a lease's constant name for the engine: installation-job-leasenumber."""
    return f"{installation}-{job_id}-{lease_number}"
