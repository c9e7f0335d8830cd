"""Executors: the engines that run jobs, behind one protocol."""

from scheduling.engine.executors.base import (
    Evaluations,
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
    "Evaluations",
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
