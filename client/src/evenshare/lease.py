"""Makes a training loop survive the end of its lease.

    from evenshare import lease

    state = lease.resume(default={"step": 0, "weight": 1.0})
    for step in lease.steps(state["step"], 1000):
        ...                                      # train
        lease.report(loss=loss)                  # shown on the job's page
        lease.store({"step": step + 1, "weight": weight})

`store` keeps a complete copy in memory. When the portal needs the GPUs, it sends a signal. The
newest copy is then written at once. The step in progress may end and is written too, and the
program exits inside `store` with code 99. It starts again with the state from `resume`. State is
JSON unless `setup` names functions to and from bytes.

`steps` also measures the time of an iteration, for the speeds of the job's type. A program with its
own loop calls `lease.step()` at the end of each iteration.

On several ranks (RANK and WORLD_SIZE, as set by the executor or torchrun) every rank calls
`resume`, and `store` after the same steps. Each gets its own state back, all of the same step.
`rank()` and `world_size()` return the rank and the number of processes; only rank 0 reports.

Outside the portal every call is a cheap no-op, unless `setup(directory=...)` is given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, NoReturn

from evenshare.runtime.checkpoints import RanksChangedError
from evenshare.runtime.contract import CHECKPOINTED, Contract, read
from evenshare.runtime.gang import GangKeeper
from evenshare.runtime.keeper import Keeper
from evenshare.runtime.progress import finite

__all__ = [
    "RanksChangedError", "ending", "flush", "inside", "leave", "link", "log", "memory", "rank",
    "reached", "report", "resume", "resume_all", "setup", "step", "steps", "store", "world_size",
]  # fmt: skip # a table

EVERY_S = 300.0


class _Runtime:
    """The state of this process, created by the first call or by `setup`."""

    def __init__(
        self,
        contract: Contract,
        save: Callable[[Any], bytes] | None = None,
        load: Callable[[bytes], Any] | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        self.contract = contract
        self.save = save or _save_json
        self.load = load or json.loads
        self.keeper: Keeper | None = None
        if contract.folder is not None:
            kind = Keeper if contract.size == 1 else GangKeeper
            self.keeper = kind(contract, every_s=every_s)
        self.step = 0
        self.total: int | None = None
        self.metrics: dict[str, object] = {}
        self.in_step: int | None = None

    def report(self) -> None:
        if self.keeper is not None and self.keeper.progress is not None:
            self.keeper.start()
            self.keeper.progress.set(self.step, self.total, self.metrics)

    def evaluate(self, iteration: int, metrics: dict[str, object]) -> None:
        """Store the value of the criterion's metric, if `metrics` contains it."""
        log = None if self.keeper is None else self.keeper.evaluations
        if log is not None and log.criterion.metric in metrics:
            said = finite({log.criterion.metric: metrics[log.criterion.metric]})
            for metric in said.values():
                log.add(iteration, metric)

    def log(self, step: int | None, metrics: Mapping[str, object]) -> None:
        if self.keeper is not None and self.keeper.metrics is not None and metrics:
            self.keeper.start()
            self.keeper.metrics.add(step, metrics)

    def count(self, iterations: int) -> None:
        if self.keeper is not None and self.keeper.iterations is not None:
            self.keeper.start()
            self.keeper.iterations.add(iterations)


_runtime: _Runtime | None = None


def setup(
    *,
    save: Callable[[Any], bytes] | None = None,
    load: Callable[[bytes], Any] | None = None,
    directory: str | Path | None = None,
    every_s: float = EVERY_S,
    alone: bool = False,
) -> None:
    """Configure the runtime; optional, before any other call.

    `save` and `load` turn a state into bytes and back (numpy, torch, pickle: your choice).
    Unpickling executes code in the file, so it is never the default. `directory` keeps checkpoints
    there when the program runs outside the portal. `every_s`: a copy is also written to disk this
    often (seconds), in case the machine fails without a signal. `alone`: of several ranks only this
    one keeps the state, for all of them, and the others do not call the runtime.

    Raises RuntimeError if the runtime is in use already, or if several ranks outside the portal
    share a directory. Raises ContractError if the executor has set a variable to an invalid value.
    """
    global _runtime  # noqa: PLW0603 - one process has one lease
    if _runtime is not None:
        raise RuntimeError("call lease.setup() before the other functions of lease")
    if (save is None) != (load is None):
        raise TypeError("give both save and load, or neither")
    contract = read()
    if alone:
        contract = replace(contract, rank=0, size=1)
    if contract.folder is None and directory is not None:
        if contract.size > 1:
            raise RuntimeError(
                "outside the portal a directory keeps the state of one process: have one rank"
                " say lease.setup(directory=..., alone=True), or give each rank its own"
            )
        contract = replace(contract, folder=Path(directory))
    _runtime = _Runtime(contract, save, load, every_s)


def resume(default: Any = None) -> Any:
    """Return the state of the newest complete checkpoint, else `default` (called if callable).

    A checkpoint that a crash has torn is skipped. From now on the process handles the checkpoint
    signal, so call this in the main thread. On several ranks it waits until all have called it, and
    returns each rank's own state, all of the same step.

    Raises RanksChangedError if the newest checkpoint has another number of ranks.
    """
    keeper = _get().keeper
    if keeper is not None:
        keeper.start()
        checkpoint = keeper.resume()
        if checkpoint is not None:
            return _get().load(checkpoint.body)
    return default() if callable(default) else default


def resume_all() -> list[Any]:
    """Return the states of all ranks of the newest complete checkpoint, by rank; empty without one.

    For programs that can redistribute their state if this lease has another number of ranks. Call
    it instead of `resume`, on every rank.
    """
    keeper = _get().keeper
    if keeper is None:
        return []
    keeper.start()
    return [_get().load(checkpoint.body) for checkpoint in keeper.resume_all()]


def rank() -> int:
    """Return this process's rank, from 0; also outside the portal and before `setup`."""
    return _contract().rank


def world_size() -> int:
    """Return the job's number of processes; also outside the portal and before `setup`."""
    return _contract().size


def store(state: Any) -> None:
    """Keep this state, from after a finished step, as the newest snapshot.

    The state is serialized immediately, so training may change it afterwards. If the lease is
    ending, it is written and the program ends (SystemExit, code 99). On several ranks all end after
    the same step: the present step of the rank that is furthest.

    Raises TypeError if the default format would not restore the same state.
    """
    runtime = _get()
    keeper = runtime.keeper
    if keeper is None:
        return
    keeper.start()
    if runtime.in_step is not None:
        runtime.step = runtime.in_step + 1
        runtime.report()
    keeper.store(runtime.save(state))


def steps(start: int, total: int) -> Iterator[int]:
    """Yield `range(start, total)` and report the progress."""
    runtime = _get()
    runtime.step, runtime.total = start, total
    runtime.report()
    try:
        for step in range(start, total):
            runtime.in_step = step
            yield step
            runtime.step = step + 1
            runtime.count(1)
            runtime.report()
    finally:
        runtime.in_step = None


def report(step: int | None = None, total: int | None = None, **metrics: object) -> None:
    """Show progress and metrics on the job's page; cheap, at most one write per second.

    The defaults of `step` and `total` are those of `steps`. Metrics are numbers; values that are
    not finite numbers are left out. The last report is always written. A metric of the job's
    criterion (`--stop-when`) is an evaluation after `step` iterations. Inside of `steps`, the one
    in progress counts.
    """
    runtime = _get()
    if runtime.keeper is None:
        return
    if step is None and runtime.in_step is not None:
        reached = runtime.in_step + 1
    else:
        reached = int(runtime.step if step is None else step)
    runtime.evaluate(reached, metrics)
    runtime.log(reached or None, metrics)
    runtime.step = runtime.step if step is None else step
    runtime.total = runtime.total if total is None else total
    runtime.metrics.update(metrics)
    runtime.report()


def step(count: int = 1, **metrics: object) -> None:
    """Count an iteration, or `count` of them, since the last call.

    For loops without `steps`, which counts for them. The time between two calls is the time of
    these iterations; the first call's iteration is not timed. Metrics are shown as by `report`.
    Cheap: at most one write per second.

    Raises ValueError if `count` is not a whole number from 1, RuntimeError inside of `steps`.
    """
    runtime = _get()
    _require_count(count)
    if runtime.in_step is not None:
        raise RuntimeError("steps() counts the iterations already; give metrics to report()")
    if runtime.keeper is None:
        return
    runtime.count(count)
    runtime.step += count
    runtime.evaluate(runtime.step, metrics)
    runtime.log(runtime.step, metrics)
    runtime.metrics.update(metrics)
    runtime.report()


def log(metrics: Mapping[str, object], step: int | None = None) -> None:
    """Add a point to the curves of metrics on the job's page, after `step` steps.

    The default of `step` is the iteration in progress inside of `steps`, else the number that
    `step` has counted. Without both, each point is one step further. Steps of a metric must
    increase. `report` and `step` add their metrics too.
    """
    runtime = _get()
    if step is None:
        inside = runtime.in_step is not None
        step = (runtime.in_step or 0) + 1 if inside else runtime.step or None
    runtime.log(None if step is None else int(step), metrics)


def link(name: str, url: str) -> None:
    """Show a link on the job's page, for example to the run's page at W&B or MLflow; https only."""
    keeper = _get().keeper
    if keeper is not None and keeper.metrics is not None:
        keeper.start()
        keeper.metrics.link(str(name), str(url))


def _require_count(count: object) -> None:
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"count must be a whole number from 1, not {count!r}")


def memory(peak_bytes: int) -> None:
    """Report the peak GPU memory of one GPU in bytes, as from torch.cuda.max_memory_allocated()."""
    keeper = _get().keeper
    if keeper is not None and keeper.iterations is not None:
        keeper.start()
        keeper.iterations.used(peak_bytes)


def reached() -> bool:
    """Return whether the newest evaluation meets the job's criterion: time to end the training.

    False if the job has no criterion, its metric was not reported, or outside the portal.
    """
    keeper = _get().keeper
    return keeper is not None and keeper.evaluations is not None and keeper.evaluations.is_met


def inside() -> bool:
    """Return whether the portal runs this process."""
    return _get().contract.inside


def ending() -> bool:
    """Return whether the checkpoint signal has arrived: the GPUs are needed, finish soon.

    For programs that save by themselves: `if lease.ending(): save(); lease.leave()`.
    """
    keeper = _get().keeper
    return keeper is not None and keeper.asked


def leave() -> NoReturn:
    """Write the newest snapshot, if any, and exit with code 99, which requests a later restart."""
    keeper = _get().keeper
    if keeper is None:
        raise SystemExit(CHECKPOINTED)
    keeper.leave()


def flush() -> None:
    """Write the newest snapshot now; of several ranks all must call it, after the same step.

    Raises OSError, for instance if the disk is full or another rank does not call it.
    """
    keeper = _get().keeper
    if keeper is not None:
        keeper.flush()


def _contract() -> Contract:
    return read() if _runtime is None else _runtime.contract


def _get() -> _Runtime:
    if _runtime is None:
        setup()
    assert _runtime is not None
    return _runtime


def _save_json(state: Any) -> bytes:
    _refuse_what_json_changes(state, "state")
    return json.dumps(state, separators=(",", ":")).encode()


def _refuse_what_json_changes(value: Any, where: str) -> None:
    """Raise TypeError for types that JSON changes, so that the first store fails, not a resume."""
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: the key {key!r} would come back as text; {_ADVICE}")
            _refuse_what_json_changes(part, f"{where}[{key!r}]")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            # Long lists of plain numbers are common, so this function is not called for each
            # number.
            if isinstance(part, (dict, list, tuple)):
                _refuse_what_json_changes(part, f"{where}[{number}]")
    elif isinstance(value, tuple):
        raise TypeError(f"{where}: a tuple would come back as a list; {_ADVICE}")


_ADVICE = "give lease.setup(save=..., load=...) your own format"
