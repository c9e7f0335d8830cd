"""Executors: the engines that run jobs, behind one protocol."""

from scheduling.engine.executors.base import (
    Executor,
    ExecutorError,
    Extension,
    Launch,
    Report,
    ReportState,
    Stop,
    executor_for,
    lease_token,
    token_job,
)

__all__ = [
    "Executor",
    "ExecutorError",
    "Extension",
    "Launch",
    "Report",
    "ReportState",
    "Stop",
    "executor_for",
    "lease_token",
    "token_job",
]
