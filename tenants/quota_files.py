"""Quotas as a file for review: CSV or YAML to periods and back, and the differences. Pure.

A file states all quotas from now on of each pool in it. The past is never changed: if a period
started earlier, only its part from now on is compared.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import yaml
from django.utils.translation import gettext as _

from evenshare_core.csv_cells import plain_cell, write_csv
from evenshare_core.domain.entitlements import Mode
from evenshare_core.units import COUNT_MAX
from tenants.input.errors import FieldError, InvalidInputError, invalid
from tenants.input.yaml_lines import editor_lines, error_line
from tenants.language import number
from tenants.periods import Period, QuotaTerms, set_periods

COLUMNS = (
    *("tenant", "pool", "gpu_type", "gpus", "from", "until", "mode"),
    *("borrow_limit", "lend_limit"),
)
REQUIRED = ("tenant", "pool", "gpu_type", "gpus")
BYTES_MAX = 8 * 2**20
GPUS_MAX = COUNT_MAX

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)
_NOTHING = frozenset({"", "~", "null"})


class QuotaName(NamedTuple):
    """The tenant, pool and GPU type of a quota, by name."""

    tenant: str
    pool: str
    gpu_type: str


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """A row of a file: terms from `since` (now if None) until `until` (open-ended if None)."""

    line: int
    name: QuotaName
    terms: QuotaTerms
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """The periods of one quota from now on, before and after; empty if there is no quota."""

    name: QuotaName
    before: tuple[Period, ...]
    after: tuple[Period, ...]

    @property
    def kind(self) -> str:
        """Return added, removed or changed."""
        if not self.before:
            return "added"
        return "changed" if self.after else "removed"


def read_lines(text: str, *, is_yaml: bool) -> list[QuotaLine]:
    """Return the rows of a file.

    Raises:
        InvalidInputError: with all errors.
    """
    if len(text) > BYTES_MAX:
        raise invalid(
            "",
            _("is longer than {most} characters").format(most=number(BYTES_MAX)),
            line=0,
        )
    rows = _yaml_rows(text) if is_yaml else _csv_rows(text)
    errors: list[FieldError] = []
    lines = [line for number, row in rows if (line := _line(number, row, errors)) is not None]
    errors += _doubled(lines)
    if errors:
        raise InvalidInputError(sorted(errors, key=lambda one: (one.line or 0, one.field)))
    return lines


def _csv_rows(text: str) -> list[tuple[int, dict[str, str]]]:
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    rows: list[tuple[int, dict[str, str]]] = []
    header: list[str] | None = None
    errors: list[FieldError] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                errors += _header_errors(header, reader.line_num)
            elif len(cells) != len(header):
                reason = _("has {cells} cells, the header has {names}").format(
                    cells=len(cells), names=len(header)
                )
                errors.append(FieldError("", reason, line=reader.line_num))
            else:
                plain = [plain_cell(cell) for cell in cells]
                rows.append((reader.line_num, dict(zip(header, plain, strict=True))))
    except csv.Error as error:
        errors.append(
            FieldError("", _("is not CSV ({error})").format(error=error), line=reader.line_num)
        )
    if header is None and not errors:
        # An empty file would end all quotas of the pool that the command line names.
        errors.append(FieldError("", _("has no header"), line=0))
    if errors:
        raise InvalidInputError(errors)
    return rows


def _header_errors(header: Sequence[str], line: int) -> list[FieldError]:
    errors = [FieldError(name, _("is repeated"), line=line) for name in _twice(header)]
    errors += [
        FieldError(
            "",
            _("{name!a} is not a column; columns are {columns}").format(
                name=name, columns=", ".join(COLUMNS)
            ),
            line=line,
        )
        for name in header
        if name not in COLUMNS
    ]
    return errors + [
        FieldError(name, _("this column is missing"), line=line)
        for name in REQUIRED
        if name not in header
    ]


def _twice(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def _yaml_rows(text: str) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a YAML list, at the top or under `quotas`; each value stays as typed."""
    try:
        top = yaml.compose(text, Loader=_LOADER)
    except (yaml.YAMLError, RecursionError) as error:
        reason = str(getattr(error, "problem", None) or _("is not YAML"))
        line = error_line(text, error) if isinstance(error, yaml.YAMLError) else None
        raise invalid("", reason, line=line or 0) from error
    if isinstance(top, yaml.MappingNode) and len(top.value) == 1:
        key, top = top.value[0]
        if key.value != "quotas":
            top = key
    if not isinstance(top, yaml.SequenceNode):
        raise invalid("", _("is not a list of quotas"), line=0)
    errors: list[FieldError] = []
    lines = editor_lines(text)
    rows = [(lines[node.start_mark.line], _mapping(node, lines, errors)) for node in top.value]
    if errors:
        raise InvalidInputError(errors)
    return rows


def _mapping(node: Any, lines: Sequence[int], errors: list[FieldError]) -> dict[str, str]:
    row: dict[str, str] = {}
    line = lines[node.start_mark.line]
    if not isinstance(node, yaml.MappingNode):
        errors.append(FieldError("", _("is not a mapping of names to values"), line=line))
        return row
    for key, value in node.value:
        at = lines[key.start_mark.line]
        name = key.value if isinstance(key, yaml.ScalarNode) else ""
        if name not in COLUMNS:
            reason = _("{name!a} is not a name; names are {columns}").format(
                name=str(name)[:40], columns=", ".join(COLUMNS)
            )
            errors.append(FieldError("", reason, line=at))
        elif name in row:
            errors.append(FieldError(name, _("is repeated"), line=at))
        elif not isinstance(value, yaml.ScalarNode):
            errors.append(FieldError(name, _("must be a single value"), line=at))
        else:
            row[name] = "" if not value.style and value.value in _NOTHING else value.value
    return row


def _line(number: int, row: Mapping[str, str], errors: list[FieldError]) -> QuotaLine | None:
    """Return the row's quota; None if the row has errors, which are added to `errors`."""
    before = len(errors)
    cells = {name: row.get(name, "").strip() for name in COLUMNS}

    def wrong(name: str, reason: str) -> None:
        errors.append(FieldError(name, reason, line=number))

    for name in REQUIRED:
        if not cells[name]:
            wrong(name, "is empty")
    mode = cells["mode"].upper() or Mode.LEND_AND_BORROW.value
    if mode not in [one.value for one in Mode]:
        wrong("mode", f"is none of {', '.join(one.value for one in Mode)}: {cells['mode'][:40]!a}")
    since, until = _instant(cells["from"], "from", wrong), _instant(cells["until"], "until", wrong)
    if since is not None and until is not None and until <= since:
        wrong("until", "must be after from")
    terms = QuotaTerms(
        _count(cells["gpus"], "gpus", wrong) or 0,
        mode,
        _count(cells["borrow_limit"], "borrow_limit", wrong),
        _count(cells["lend_limit"], "lend_limit", wrong),
    )
    if len(errors) > before:
        return None
    whose = QuotaName(cells["tenant"], cells["pool"], cells["gpu_type"])
    return QuotaLine(number, whose, terms, since, until)


def _count(text: str, name: str, wrong: Any) -> int | None:
    if not text:
        return None
    if not _WHOLE.fullmatch(text) or int(text) > GPUS_MAX:
        wrong(name, f"is not a whole number from 0 to {GPUS_MAX:,}: {text[:40]!a}")
        return None
    return int(text)


def _instant(text: str, name: str, wrong: Any) -> datetime | None:
    """Return the time of a day or instant, in UTC unless the text has another time zone."""
    if not text or (name == "from" and text.lower() == "now"):
        return None
    try:
        instant = datetime.fromisoformat(text)
        instant = instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant
        return instant.astimezone(UTC)
    except (ValueError, OverflowError):
        wrong(name, f"is not an instant such as 2030-01-31 or 2030-01-31T08:00Z: {text[:40]!a}")
        return None


def _doubled(lines: Iterable[QuotaLine]) -> list[FieldError]:
    """Return errors for overlapping rows of a quota; a row without a start is before all others."""
    first = datetime.min.replace(tzinfo=UTC)
    errors = []
    last: dict[QuotaName, QuotaLine] = {}
    for line in sorted(lines, key=lambda one: (one.name, one.since or first, one.line)):
        before = last.get(line.name)
        if before is not None and (before.until is None or (line.since or first) < before.until):
            errors.append(
                FieldError(
                    "from", _("overlaps with line {line}").format(line=before.line), line=line.line
                )
            )
        last[line.name] = line
    return errors


def wanted_periods(lines: Iterable[QuotaLine], now: datetime) -> tuple[Period, ...]:
    """Return the periods of a quota's rows from `now` on, in time order."""
    periods = [Period(one.terms, max(one.since or now, now), one.until) for one in lines]
    kept = (one for one in periods if one.until is None or one.until > one.since)
    return tuple(sorted(kept, key=lambda one: one.since))


def periods_from(periods: Iterable[Period], now: datetime) -> tuple[Period, ...]:
    """Return the part of periods from `now` on; equal neighbours become one."""
    kept: tuple[Period, ...] = ()
    for one in sorted(periods, key=lambda period: period.since):
        if one.until is None or one.until > now:
            begins = max(one.since, now)
            kept = set_periods(kept, since=begins, until=one.until, terms=one.terms)
    return kept


def replace_periods(
    present: Sequence[Period], wanted: Sequence[Period], now: datetime
) -> tuple[Period, ...]:
    """Return the periods to store: the past unchanged, then `wanted` from `now` on.

    `present` are the stored periods that apply at `now` or later. They are returned unchanged if
    they are equal, so that applying a file twice changes nothing.
    """
    if periods_from(present, now) == periods_from(wanted, now):
        return tuple(present)
    kept: tuple[Period, ...] = tuple(replace(one, until=now) for one in present if one.since < now)
    for one in wanted:
        kept = set_periods(kept, since=one.since, until=one.until, terms=one.terms)
    return kept


def peak(periods: Iterable[Sequence[Period]], now: datetime) -> tuple[int, int, datetime]:
    """Return the GPUs of quotas now, their maximum from now on, and when it is first reached."""
    rows = [one for row in periods for one in row]
    edges = sorted({now, *(one.since for one in rows if one.since > now)})
    sums = [(sum(one.terms.gpus for one in rows if one.holds_at(at)), at) for at in edges]
    most = max(gpus for gpus, _ in sums)
    now_gpus, _ = sums[0]
    return now_gpus, most, next(at for gpus, at in sums if gpus == most)


def quota_rows(periods: Mapping[QuotaName, Sequence[Period]]) -> list[dict[str, str]]:
    """Return periods as the rows of a file, by pool, type, tenant and time."""
    order = sorted(periods, key=lambda name: (name.pool, name.gpu_type, name.tenant))
    return [
        {
            "tenant": name.tenant,
            "pool": name.pool,
            "gpu_type": name.gpu_type,
            "gpus": str(one.terms.gpus),
            "from": one.since.isoformat(),
            "until": one.until.isoformat() if one.until else "",
            "mode": one.terms.mode,
            "borrow_limit": _limit_text(one.terms.borrow_limit),
            "lend_limit": _limit_text(one.terms.lend_limit),
        }
        for name in order
        for one in periods[name]
    ]


def _limit_text(limit: int | None) -> str:
    return "" if limit is None else str(limit)


def format_csv(rows: Iterable[Mapping[str, str]]) -> str:
    return write_csv(COLUMNS, ([row[name] for name in COLUMNS] for row in rows))


def format_yaml(rows: Iterable[Mapping[str, str]]) -> str:
    """Return rows as YAML, without empty values; numbers as numbers."""
    counts = {"gpus", "borrow_limit", "lend_limit"}
    plain = [
        {name: int(text) if name in counts else text for name, text in row.items() if text}
        for row in rows
    ]
    return str(yaml.safe_dump({"quotas": plain}, sort_keys=False, allow_unicode=True))
