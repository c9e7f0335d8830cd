"""Executors: the engines that run jobs, behind one protocol."""

from scheduling.engine.executors.base import (
    Executor,
    ExecutorError,
    ExecutorTraits,
    Extension,
    Iterations,
    Launch,
    Report,
    ReportState,
    Stop,
    executor_for,
    executor_traits,
    lease_token,
    simulating_executors,
    token_job,
    token_number,
)

__all__ = [
    "Executor",
    "ExecutorError",
    "ExecutorTraits",
    "Extension",
    "Iterations",
    "Launch",
    "Report",
    "ReportState",
    "Stop",
    "executor_for",
    "executor_traits",
    "lease_token",
    "simulating_executors",
    "token_job",
    "token_number",
]
