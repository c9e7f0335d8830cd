"""Files that a browser saves."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.http import HttpResponse


def csv_file(name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> HttpResponse:
    """A table as a file of that name."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows(rows)
    response = HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def no_file(problems: Mapping[str, str]) -> HttpResponse:
    """422 with what is wrong, by field."""
    text = "".join(f"{field}: {problem}\n" for field, problem in problems.items())
    return HttpResponse(text, content_type="text/plain; charset=utf-8", status=422)
