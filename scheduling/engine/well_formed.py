"""Checks an adapter's reports before they are used, and drops malformed ones.

`scheduling.engine.observe` later moves times into plausible bounds, because a lease must be able to
end even if a clock is wrong.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import structlog

from evenshare_core.estimation.evaluations import MetricPoint
from scheduling.engine.executors.base import (
    OVER,
    Evaluations,
    Iterations,
    Report,
    ReportState,
    token_job,
    token_number,
)
from scheduling.engine.executors.local_files import is_storable_progress
from scheduling.models import Job, Pool
from tenants.scopes import engine_scope

_TOKEN = re.compile(r"[A-Za-z0-9]{1,32}-[0-9]{1,19}-[0-9]{1,10}", re.ASCII)
_BIGINT, _INT = 2**63, 2**31
# The maximum number of reports named in a warning: a broken adapter may send very many.
_SHOWN = 20

log = structlog.get_logger(__name__)


class Listing(NamedTuple):
    """An executor's answer: its well-formed reports, at most one per token.

    `named`: all tokens that the executor mentioned. A token in `named` without a report may run or
    not.
    """

    reports: list[Report]
    named: frozenset[str]


def well_formed(
    pool: Pool, answer: Sequence[object], *, installation: str, asked: set[str] | None
) -> Listing:
    """Return the usable part of an adapter's answer.

    Tokens of another installation are ignored. `asked`: the requested tokens; all others are
    ignored. It is None if all processes of the pool were requested.
    """
    named: set[str] = set()
    refused: list[str] = []
    kept: dict[str, Report] = {}
    twice: set[str] = set()
    for one in answer:
        why = _fault(one)
        token = one.token if isinstance(one, Report) and _is_token(one.token) else ""
        if token:
            named.add(token)
        if not why and not token.startswith(f"{installation}-"):
            why = "is of another installation"
        if not why and asked is not None and token not in asked:
            why = "was not requested"
        if why or not isinstance(one, Report):
            refused.append(f"{token or repr(one)[:80]} {why}")
        elif token in kept and kept[token] != one:
            twice.add(token)
        else:
            kept[token] = one
    refused += [f"{token} has contradictory reports" for token in sorted(twice)]
    for token in twice:
        del kept[token]
    if refused:
        log.warning(
            "executor.malformed", pool=pool.name, count=len(refused), reports=refused[:_SHOWN]
        )
    return Listing([_without_bad_extras(one) for one in kept.values()], frozenset(named))


def without_other_pools(
    pool: Pool, reports: Sequence[Report], live: Mapping[str, bool]
) -> list[Report]:
    """Drop reports on other pools' jobs, because it would be wrong to stop these processes."""
    jobs = {token_job(one.token) for one in reports if one.token not in live}
    if not jobs:
        return list(reports)
    with engine_scope(pool.pk):
        others = Job.objects.filter(pk__in=jobs).exclude(pool=pool)
        foreign = set(others.values_list("pk", flat=True))
    if foreign:
        log.warning("executor.other_pool", pool=pool.name, jobs=sorted(foreign)[:_SHOWN])
    return [one for one in reports if token_job(one.token) not in foreign]


def _fault(report: object) -> str:
    """Return the reason why an object is not a usable report; empty if it is usable."""
    if not isinstance(report, Report):
        return "is no report"
    is_over, code = report.state in OVER, report.exit_code
    faults = {
        "has no token": not _is_token(report.token),
        "has no state": not isinstance(report.state, ReportState),
        "has no start": not _is_int(report.started_us),
        "has ended, but without a time": is_over and not _is_int(report.ended_us),
        "is running, but has an end": not is_over and report.ended_us is not None,
        "has an invalid exit code": code is not None and not _is_int(code, _INT),
    }
    return next((why for why, is_so in faults.items() if is_so), "")


def _is_int(value: object, below: int | None = None) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return below is None or -below <= value < below


def _is_token(token: object) -> bool:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        return False
    return token_job(token) < _BIGINT and token_number(token) < _INT


def _without_bad_extras(report: Report) -> Report:
    """Drop malformed data that the process itself reported, but keep the rest of the report."""
    checks: dict[str, Callable[[object], bool]] = {
        "progress": is_storable_progress,
        "iterations": _is_iterations,
        "evaluations": _is_evaluations,
        "refused": lambda said: isinstance(said, str),
    }
    said = {name: getattr(report, name) for name in checks}
    bad = [name for name, one in said.items() if one is not None and not checks[name](one)]
    if not bad:
        return report
    log.warning("executor.malformed_extras", token=report.token, fields=bad)
    nothing: dict[str, Any] = {name: "" if name == "refused" else None for name in bad}
    return replace(report, **nothing)


def _is_iterations(said: object) -> bool:
    if not isinstance(said, Iterations):
        return False
    times = [one for one in (said.resumed_us, said.suspended_us) if one is not None]
    return all(
        _is_int(one, _BIGINT) and one >= 0
        for one in (said.count, said.time_us, said.memory_bytes, *times)
    )


def _is_evaluations(said: object) -> bool:
    if not isinstance(said, Evaluations):
        return False
    parts: tuple[tuple[object, type], ...] = (
        (said.metric, str),
        (said.refused, str),
        (said.points, tuple),
    )
    return all(isinstance(one, kind) for one, kind in parts) and all(
        isinstance(point, MetricPoint) for point in (*said.points,)
    )
