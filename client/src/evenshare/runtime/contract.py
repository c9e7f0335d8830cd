"""The environment that the executor gives to a job, and the job's exit codes."""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .evaluations import Criterion

# A program that gives up its GPUs early exits with one of these codes.
CHECKPOINTED = 99  # the newest complete checkpoint is on disk: the next lease can continue from it
FENCED = 97  # a newer lease runs this job: this process must not write, and has ended
NOT_WRITTEN = 74  # the checkpoint could not be written (EX_IOERR); the message is in the log

DEFAULT_GRACE_S = 10.0
RULES = ("at_least", "at_most")


class ContractError(RuntimeError):
    """The executor has set a variable to an invalid value."""


@dataclass(frozen=True)
class Contract:
    """A lease of a job. If `folder` is None, nothing is stored and every call is a no-op.

    This process is `rank` of `size`; `restart` is how often torchrun has restarted all of them.
    """

    folder: Path | None = None
    lease: int = 0
    job: str = ""
    progress: Path | None = None
    iterations: Path | None = None
    evaluations: Path | None = None
    metrics: Path | None = None
    criterion: Criterion | None = None
    signal: signal.Signals = signal.SIGUSR1
    grace_s: float = DEFAULT_GRACE_S
    rank: int = 0
    size: int = 1
    restart: int = 0

    @property
    def inside(self) -> bool:
        """Return whether the portal runs this process."""
        return self.lease > 0


def read(environment: Mapping[str, str] | None = None) -> Contract:
    """Return the contract of this process, which is empty outside the portal.

    Raises ContractError naming the variable: a job that cannot be checkpointed should fail when it
    starts, before it has work to lose.
    """
    values = os.environ if environment is None else environment
    folder, lease = values.get("EVENSHARE_JOB_DIR"), values.get("EVENSHARE_LEASE")
    if not folder or not lease:
        # Outside the portal there is no contract, so invalid ranks are ignored.
        with contextlib.suppress(ContractError):
            rank, size = _ranks(values)
            return Contract(rank=rank, size=size)
        return Contract()
    rank, size = _ranks(values)
    progress, iterations = values.get("EVENSHARE_PROGRESS"), values.get("EVENSHARE_ITERATIONS")
    evaluations = values.get("EVENSHARE_EVALUATIONS")
    metrics = values.get("EVENSHARE_METRICS")
    return Contract(
        folder=Path(folder),
        lease=_whole("EVENSHARE_LEASE", lease),
        job=values.get("EVENSHARE_JOB_ID", ""),
        progress=Path(progress) if progress else None,
        iterations=Path(iterations) if iterations else None,
        evaluations=Path(evaluations) if evaluations else None,
        metrics=Path(metrics) if metrics else None,
        criterion=_criterion(values),
        signal=checkpoint_signal(values),
        grace_s=_seconds("EVENSHARE_GRACE_S", values.get("EVENSHARE_GRACE_S")),
        rank=rank,
        size=size,
        restart=_restart(values),
    )


def checkpoint_signal(values: Mapping[str, str]) -> signal.Signals:
    name = values.get("EVENSHARE_CHECKPOINT_SIGNAL") or "SIGUSR1"
    try:
        return signal.Signals[name]
    except KeyError:
        raise ContractError(f"EVENSHARE_CHECKPOINT_SIGNAL names no signal: {name!r}") from None


def grace_seconds(values: Mapping[str, str]) -> float | None:
    """Return how long a program may run after the signal, or None if unknown."""
    text = values.get("EVENSHARE_GRACE_S")
    return _seconds("EVENSHARE_GRACE_S", text) if text else None


def margin_seconds(grace_s: float) -> float:
    """Return how many seconds before the end of the grace a program ends itself.

    Its own exit code gives more information than that of a killed process.
    """
    return min(2.0, grace_s / 4)


def _criterion(values: Mapping[str, str]) -> Criterion | None:
    metric = values.get("EVENSHARE_STOP_METRIC")
    if not metric:
        return None
    rule, text = values.get("EVENSHARE_STOP_RULE", ""), values.get("EVENSHARE_STOP_VALUE", "")
    if rule not in RULES:
        raise ContractError(f"EVENSHARE_STOP_RULE must be one of {', '.join(RULES)}, not {rule!r}")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ContractError(f"EVENSHARE_STOP_VALUE must be a number, not {text!r}")
    return Criterion(metric, rule == "at_least", value)


def _ranks(values: Mapping[str, str]) -> tuple[int, int]:
    """Return rank and size, as set by the executor or torchrun, else (0, 1)."""
    size = values.get("WORLD_SIZE")
    if not size or not values.get("RANK"):
        return 0, 1
    count = _whole("WORLD_SIZE", size)
    rank = _whole("RANK", values["RANK"], least=0)
    if rank >= count:
        raise ContractError(f"RANK must be below WORLD_SIZE ({count}), not {rank}")
    return rank, count


def _restart(values: Mapping[str, str]) -> int:
    """Return how often torchrun has restarted all ranks under this lease."""
    text = values.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def _whole(name: str, text: str, least: int = 1) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise ContractError(f"{name} must be a whole number from {least}, not {text!r}")
    return int(text)


def _seconds(name: str, text: str | None) -> float:
    if not text:
        return DEFAULT_GRACE_S
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise ContractError(f"{name} must be a number of seconds, not {text!r}")
    return value
