"""`manage.py import_trace FILE --pool P`: import jobs of a real cluster's trace into a pool."""

import csv
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from evenshare_core.cli.files import InputError
from evenshare_core.cli.trace_options import add_trace_arguments, read_mapping
from evenshare_core.simulation.trace_reads import HeaderError
from scheduling.engine.clock import read_clock
from scheduling.services.traces import (
    SHOWN,
    ImportOptions,
    ImportReport,
    Manner,
    TraceImportError,
    import_into_pool,
    withdraw_arrivals,
)

BAR = 30


class Command(BaseCommand):
    """Read a trace line by line and submit its jobs, either now or each at its own time."""

    help = "Import a trace (Philly, Helios, Chronus, Slurm, SWF, own). docs/traces.md"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", nargs="?", help="a trace, plain or gzip")
        parser.add_argument("--pool", required=True, help="name of a pool of virtual jobs")
        parser.add_argument(
            "--as",
            dest="manner",
            choices=[one.value for one in Manner],
            default=Manner.BACKLOG.value,
            help="backlog: submit all jobs now; replay: each at its own time"
            " from now on (%(default)s)",
        )
        add_trace_arguments(parser)
        parser.add_argument("--limit", type=int, help="stop after this number of jobs")
        parser.add_argument("--tenant-map", metavar="FILE", help="CSV: name in the trace, tenant")
        parser.add_argument("--create-tenants", action="store_true", help="create missing tenants")
        parser.add_argument("--strict", action="store_true", help="import nothing if a line is bad")
        parser.add_argument(
            "--dry-run", action="store_true", help="import everything, then roll back"
        )
        parser.add_argument(
            "--withdraw", action="store_true", help="delete the remaining jobs of a replay"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Import the trace and print the report; exit with 1 if a line was bad."""
        try:
            if options["withdraw"]:
                gone = withdraw_arrivals(options["pool"])
                self.stdout.write(f"{gone:,} jobs of pool {options['pool']} will not come")
                return
            if not options["file"]:
                raise CommandError("which file?")
            report, seconds = self._import(Path(options["file"]), options)
        except (HeaderError, InputError, TraceImportError, OSError) as error:
            raise CommandError(str(error)) from error
        self._tell(report, seconds, options)
        if report.bad_total:
            sys.exit(1)

    def _import(self, path: Path, options: dict[str, Any]) -> tuple[ImportReport, float]:
        wanted = ImportOptions(
            manner=Manner(options["manner"]),
            form=options["format"],
            chosen=options["set"],
            mapping=read_mapping(options["map"]),
            tenants=_tenant_map(options["tenant_map"]),
            create_tenants=options["create_tenants"],
            limit=options["limit"],
            strict=options["strict"],
            dry_run=options["dry_run"],
        )
        begun = time.monotonic()
        with path.open("rb") as file:
            bar = _Bar(file, path.stat().st_size, self.stderr)
            report = import_into_pool(
                file, pool=options["pool"], options=wanted, now=read_clock, progress=bar.show
            )
            bar.close()
        return report, time.monotonic() - begun

    def _tell(self, report: ImportReport, seconds: float, options: dict[str, Any]) -> None:
        for line in report.bad:
            where = f"line {line.line}" + (f", {line.field}" if line.field else "")
            self.stderr.write(f"{where}: {line.reason}")
        if report.bad_total > SHOWN:
            self.stderr.write(f"... and {report.bad_total - SHOWN:,} more bad lines")
        for name, lines in report.unknown.most_common(SHOWN):
            self.stderr.write(f"no tenant {name!a}: {lines:,} lines")
        if report.unknown:
            self.stderr.write("create them with --create-tenants, or map them with --tenant-map")
        for sentence in report.tally.sentences():
            self.stdout.write(sentence)
        if report.made and report.kept:
            names = ", ".join(report.made)
            self.stdout.write(f"new tenants, still without quota: {names}")
        done = "imported" if report.kept else "could import" if options["dry_run"] else "undone:"
        span = f", over {report.span} of pool time" if options["manner"] == "replay" else ""
        self.stdout.write(
            f"{done} {report.jobs:,} jobs ({report.gpus:,} GPUs asked for{span}), format"
            f" {report.format}, {report.bad_total:,} bad lines, {seconds:.1f} s"
        )


def _tenant_map(name: str | None) -> dict[str, str]:
    """Read a file of two columns without a header: a name in the trace, and a tenant's slug."""
    if name is None:
        return {}
    tenants: dict[str, str] = {}
    with Path(name).open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.reader(file), 1):
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if len(cells) != 2 or not all(cells):
                raise CommandError(f"{name}, line {number}: needs two names")
            if tenants.setdefault(cells[0], cells[1]) != cells[1]:
                raise CommandError(f"{name}, line {number}: {cells[0]!r} is repeated")
    return tenants


class _Bar:
    """A progress bar for the bytes of a file, shown only on a terminal."""

    def __init__(self, file: IO[bytes], size: int, out: Any) -> None:
        self._file, self._size, self._out = file, max(size, 1), out
        self._shows = bool(getattr(out, "isatty", lambda: False)())

    def show(self, lines: int) -> None:
        """Draw the progress over the previous bar."""
        if self._shows:
            with suppress(ValueError):
                part = min(1.0, self._file.tell() / self._size)
                full = "#" * int(part * BAR)
                self._out.write(f"\r[{full:<{BAR}}] {part:4.0%} {lines:>10,} lines", ending="")

    def close(self) -> None:
        if self._shows:
            self._out.write("\r" + " " * (BAR + 30) + "\r", ending="")
