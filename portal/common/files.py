"""Downloads of files."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any

from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import override

from evenshare_core.csv_cells import write_csv
from portal.charts.figures import thousands
from tenants.answers import time_text

# Columns of a file: the heading, and the attribute path of a row or a function of the row.
Columns = Mapping[str, str | Callable[[Any], object]]
LINES_MOST = 100_000


def lines_asked() -> int:
    """Return how many lines a view reads: one above the limit, so that an excess is noticed."""
    return LINES_MOST + 1


def csv_file(name: str, columns: Columns, rows: Iterable[object], *, hint: str) -> HttpResponse:
    """Return a table as a CSV file, or 422 if it has more than `LINES_MOST` lines.

    Instants are UTC, amounts exact, texts English. Files are never cut, because the amounts of a
    cut file would have another sum. `hint` explains how to request less.
    """
    cells = [attrgetter(of) if isinstance(of, str) else of for of in columns.values()]
    with override("en"):
        lines = [[_cell(of(row)) for of in cells] for row in rows]

    if len(lines) > LINES_MOST:
        text = _("More than {most} lines: {hint}.").format(most=thousands(LINES_MOST), hint=hint)
        return no_file({"from": text})
    text = write_csv(list(columns), lines, line_end="\r\n")
    response = HttpResponse(text, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _cell(value: object) -> object:
    if isinstance(value, datetime):
        return time_text(value)
    return f"{value:f}" if isinstance(value, Decimal) else value


def no_file(problems: Mapping[str, str]) -> HttpResponse:
    """Return 422 with the errors by field."""
    text = "".join(f"{field}: {problem}\n" for field, problem in problems.items())
    return HttpResponse(text, content_type="text/plain; charset=utf-8", status=422)
