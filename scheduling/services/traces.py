"""Import of a trace's jobs into a pool: all now, as a backlog, or each at its own time.

The import is one transaction: if it fails, nothing is stored, and the same file can be imported
again. Rows are inserted in batches, so memory use does not grow with the file.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from itertools import islice
from typing import IO, Any

from django.db import connection, models, transaction

from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.trace_reads import (
    BadLine,
    Columns,
    LeftOut,
    Read,
    TraceLine,
    TraceTally,
    tallied,
)
from scheduling.engine.arrivals import job_fields
from scheduling.engine.bulk import document, insert_rows, next_ids
from scheduling.engine.clock import Clocks, PoolNow
from scheduling.engine.executors.base import executor_traits, simulating_executors
from scheduling.models import Arrival, GpuType, Job, Pool, VirtualWork
from tenants.models import Tenant
from tenants.scopes import site_scope
from tenants.services.tenants import create_tenant

BATCH = 2000
SHOWN = 20
# The maximum number of unknown tenants that are counted by name.
NAMES = 1000
_SLUG = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"


class Manner(StrEnum):
    """When the jobs are submitted."""

    BACKLOG = "backlog"
    REPLAY = "replay"


class TraceImportError(Exception):
    """The import cannot be done as requested; nothing was written."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The options of an import. `tenants` maps names in the trace to slugs of tenants.

    `chosen`: the set of jobs to read from a file that has several sets.
    """

    manner: Manner = Manner.BACKLOG
    form: str = "auto"
    chosen: str = ""
    mapping: Mapping[str, str] = field(default_factory=dict)
    tenants: Mapping[str, str] = field(default_factory=dict)
    create_tenants: bool = False
    limit: int | None = None
    strict: bool = False
    dry_run: bool = False


@dataclass(slots=True)
class ImportReport:
    """The result of an import. `bad` has the first `SHOWN` of `bad_total` lines.

    `tally` counts lines that were left out or changed. `unknown` counts lines of tenants that do
    not exist. `kept` is False if everything was rolled back, by a dry run or because of a bad line
    in a strict import.
    """

    format: str = ""
    jobs: int = 0
    gpus: int = 0
    bad_total: int = 0
    bad: list[BadLine] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    tally: TraceTally = field(default_factory=TraceTally)
    made: list[str] = field(default_factory=list)
    span: timedelta = timedelta()
    kept: bool = True

    def note(self, line: BadLine) -> None:
        """Count a bad line, and store it while there is room."""
        self.bad_total += 1
        if len(self.bad) < SHOWN:
            self.bad.append(line)


Progress = Callable[[int], None]


def import_into_pool(
    file: IO[bytes],
    *,
    pool: str,
    options: ImportOptions,
    now: Clocks,
    progress: Progress = lambda _: None,
) -> ImportReport:
    """Import a file's jobs into a pool; `progress` is called with the number of lines read.

    In a replay the trace's first job is submitted now, and the others later, at the intervals of
    the trace.

    Raises:
        TraceImportError: the pool does not exist, or its executor runs real processes.
        evenshare_core.simulation.trace_reads.HeaderError: the columns are not understood.
    """
    with site_scope():
        where = _pool(pool)
        # A replay reads the file twice: the first submission is known only at the file's end.
        first_us = _first_us(file, options) if options.manner is Manner.REPLAY else 0
        file.seek(0)
        columns, lines = _lines(file, options)
        report = ImportReport(format=columns.format)
        names = _Tenants(where, options, report)
        target = _target(where, options, now(where.pk), first_us)
        good = _good(lines, names, report, progress)
        wanted = islice(good, options.limit)
        while batch := list(islice(wanted, BATCH)):
            _count(report, batch, target.write(batch))
        report.kept = not options.dry_run and not (options.strict and report.bad_total)
        if not report.kept:
            transaction.set_rollback(True)
    return report


def withdraw_arrivals(pool: str) -> int:
    """Delete the future jobs of a pool's replay; return their number.

    Raises:
        TraceImportError: the pool does not exist.
    """
    with site_scope():
        row = Pool.objects.filter(name=pool).first()
        if row is None:
            raise TraceImportError(f"there is no pool {pool}")
        return Arrival.objects.filter(pool=row).delete()[0]


def _pool(name: str) -> Pool:
    pool = Pool.objects.filter(name=name).first()
    if pool is None:
        raise TraceImportError(f"there is no pool {name}")
    if not executor_traits(pool.executor).simulates:
        needed = " or ".join(simulating_executors())
        raise TraceImportError(
            f"pool {name} runs real processes ({pool.executor}); a trace has the run times of"
            f" jobs, not their programs: it needs a pool of the executor {needed}"
        )
    return pool


def _first_us(file: IO[bytes], options: ImportOptions) -> int:
    file.seek(0)
    _, lines = _lines(file, options)
    return min((line.submit_us for line in lines if isinstance(line, TraceLine)), default=0)


def _lines(file: IO[bytes], options: ImportOptions) -> tuple[Columns, Iterator[Read]]:
    return trace_lines(file, form=options.form, mapping=options.mapping, chosen=options.chosen)


@dataclass(frozen=True, slots=True)
class _Row:
    line: TraceLine
    tenant_id: int


def _good(
    lines: Iterator[Read],
    names: _Tenants,
    report: ImportReport,
    progress: Progress,
) -> Iterator[_Row]:
    types = set(GpuType.objects.values_list("name", flat=True))
    for done, line in enumerate(tallied(lines, report.tally), 1):
        if done % BATCH == 0:
            progress(done)
        if isinstance(line, LeftOut):
            continue
        if isinstance(line, BadLine):
            report.note(line)
        elif wrong := _unknown_types(line, types):
            report.note(BadLine(line.line, "gpu_types", f"there is no type {wrong}"))
        elif (tenant_id := names.id_of(line)) is not None:
            yield _Row(line, tenant_id)


def _unknown_types(line: TraceLine, known: set[str]) -> str:
    wanted: Any = line.extra.get("gpu_types", ())
    return ", ".join(ascii(name) for name in wanted if name not in known)


def _count(report: ImportReport, batch: Sequence[_Row], last_us: int) -> None:
    report.jobs += len(batch)
    report.gpus += sum(row.line.gpus for row in batch)
    report.span = max(report.span, timedelta(microseconds=last_us))


class _Tenants:
    """The tenants that lines of a trace name; missing tenants are created if requested."""

    def __init__(self, pool: Pool, options: ImportOptions, report: ImportReport) -> None:
        self._pool = pool
        self._options = options
        self._report = report
        self._ids = dict(Tenant.objects.values_list("slug", "id"))

    def id_of(self, line: TraceLine) -> int | None:
        """Return the tenant's id, or None if there is no tenant.

        A line without a tenant is reported as bad.
        """
        slug = self._options.tenants.get(line.tenant, line.tenant)
        tenant = self._ids.get(slug)
        if tenant is not None:
            return tenant
        if not self._options.create_tenants:
            unknown = self._report.unknown
            name = line.tenant[:63]
            if name in unknown or len(unknown) < NAMES:
                unknown[name] += 1
            self._report.note(BadLine(line.line, "tenant", f"there is no tenant {slug!a}"))
            return None
        if len(slug) > 63 or slug.strip(_SLUG):
            reason = f"cannot be a tenant's short name: {slug[:70]!a}"
            self._report.note(BadLine(line.line, "tenant", reason))
            return None
        return self._make(slug)

    def _make(self, slug: str) -> int:
        tenant = create_tenant(
            slug=slug,
            name=slug,
            initials=slug[:2].upper(),
            swatch=len(self._ids) % 16,
            book=self._pool.book,
        )
        self._ids[slug] = tenant.pk
        self._report.made.append(slug)
        return tenant.pk


@dataclass(frozen=True, slots=True)
class _Backlog:
    """Writes jobs that are all submitted now."""

    pool: Pool
    at: PoolNow

    def write(self, batch: Sequence[_Row]) -> int:
        """Insert jobs and their durations; return 0, because all are submitted now."""
        ids = next_ids("scheduling_job", len(batch))
        common = Job(
            pool=self.pool, tenant_id=0, name="", submitted_at=self.at.pool_at, source="trace"
        )
        common.created_at = self.at.wall
        _insert(
            common,
            (
                {
                    "id": id_,
                    "uid": uuid.uuid4(),
                    "tenant_id": row.tenant_id,
                    "name": row.line.name,
                    "gpus": row.line.gpus,
                    **job_fields(row.line.extra, self.at.pool_at),
                }
                for id_, row in zip(ids, batch, strict=True)
            ),
        )
        _insert(
            VirtualWork(),
            (
                {
                    "job_id": id_,
                    "duration_us": row.line.duration_us,
                    "exit_code": row.line.extra.get("exit_code", 0),
                }
                for id_, row in zip(ids, batch, strict=True)
            ),
        )
        return 0


@dataclass(frozen=True, slots=True)
class _Replay:
    """Writes jobs that are submitted later: now corresponds to `first_us` of the trace."""

    pool: Pool
    at: PoolNow
    first_us: int

    def write(self, batch: Sequence[_Row]) -> int:
        """Insert arrivals; return the time from the first submission to the last row's, in us."""
        begin_us = to_us(self.at.pool_at) - self.first_us
        common = Arrival(pool=self.pool, tenant_id=0)
        _insert(
            common,
            (
                {
                    "tenant_id": row.tenant_id,
                    "at": from_us(begin_us + row.line.submit_us),
                    "name": row.line.name,
                    "gpus": row.line.gpus,
                    "duration_us": row.line.duration_us,
                    "extra": row.line.extra,
                }
                for row in batch
            ),
            but=("id",),
        )
        return max(row.line.submit_us for row in batch) - self.first_us


def _target(pool: Pool, options: ImportOptions, at: PoolNow, first_us: int) -> _Backlog | _Replay:
    if options.manner is Manner.BACKLOG:
        return _Backlog(pool, at)
    return _Replay(pool, at, first_us)


def _insert(
    common: models.Model, rows: Iterable[dict[str, Any]], *, but: Sequence[str] = ()
) -> None:
    """Insert rows whose other columns have the values of `common`.

    The columns come from the model, so that a column added later is not forgotten.
    """
    fields = [
        one
        for one in common._meta.concrete_fields  # noqa: SLF001 - Django's documented model API
        if one.attname not in but and (one.has_default() or not one.has_db_default())
    ]

    def prepared(one: models.Field[Any, Any], value: Any) -> Any:
        if isinstance(one, models.JSONField):
            return document(value)
        return one.get_db_prep_save(value, connection)

    plain = [prepared(one, getattr(common, one.attname)) for one in fields]
    place = {one.attname: at for at, one in enumerate(fields)}
    json = {one.attname for one in fields if isinstance(one, models.JSONField)}

    def cells(row: dict[str, Any]) -> list[Any]:
        values = list(plain)
        for name, value in row.items():
            at = place[name]
            values[at] = prepared(fields[at], value) if name in json else value
        return values

    insert_rows(
        common._meta.db_table,  # noqa: SLF001 - Django's documented model API
        [str(one.column) for one in fields],
        (cells(row) for row in rows),
    )
