"""Test every URL with a CSV file: no cell is a formula, and no file is truncated."""

from __future__ import annotations

import csv
import io
import re

import pytest
from django.conf import LazySettings

from portal.common import files
from scheduling.models import GpuType
from tenants.models import Tenant
from tests.functional.access_table import TABLE
from tests.functional.pool_stage import Stage

# Files of jobs, which tests/functional/test_compare_jobs.py and test_job_curves.py check.
OF_JOBS = {"compare.csv", "jobs/<uuid:uid>/metrics.csv"}
FILES = sorted(address for address in {*TABLE} - OF_JOBS if address.endswith(".csv"))
RISKY, NUMBER = re.compile(r"[=+\-@\t\r]"), re.compile(r"-?\d+(\.\d+)?")
# GPU types are named in URLs, so their names contain no other risky character.
SPELLS, APART = {"=1+1", "-a100"}, {"'=1+1", "'-a100"}


def path_of(there: Stage, address: str) -> str:
    query = "from=2001-01-01&to=2032-12-31&by=month"
    parts = {"slug:slug": "beta", "slug:name": there.pool}
    return "/" + re.sub(r"<([\w:]+)>", lambda found: parts[found[1]], address) + f"?{query}"


def cells(there: Stage, address: str) -> list[list[str]]:
    answer = there.get("operator", path_of(there, address))
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/csv; charset=utf-8")
    return list(csv.reader(io.StringIO(answer.content.decode(), newline="")))


@pytest.mark.parametrize("address", FILES)
def test_no_cell_is_a_spreadsheet_formula(settled: Stage, address: str) -> None:
    Tenant.objects.update(name="=1+1")
    GpuType.objects.update(name="-a100")
    found = [cell for row in cells(settled, address) for cell in row]
    assert not set(found) & SPELLS
    assert set(found) & APART
    assert [one for one in found if RISKY.match(one) and not NUMBER.fullmatch(one)] == []


@pytest.mark.parametrize("address", FILES)
def test_file_above_line_limit_is_rejected(
    settled: Stage, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = len(cells(settled, address)) - 1
    assert number > 1
    monkeypatch.setattr(files, "LINES_MOST", number)
    assert len(cells(settled, address)) == number + 1
    monkeypatch.setattr(files, "LINES_MOST", number - 1)
    answer = settled.get("operator", path_of(settled, address))
    assert answer.status_code == 422
    said = answer.content.decode()
    assert said.startswith(f"from: More than {number - 1:,} lines: choose ")


def test_texts_are_english_in_every_language(settled: Stage, settings: LazySettings) -> None:
    settings.LANGUAGES = [("en", "English"), ("de", "Deutsch")]
    operator = settled.client("operator")
    for address in FILES:
        path = path_of(settled, address)
        german = operator.get(path, headers={"Accept-Language": "de"})
        assert german.headers["Content-Language"] == "de"
        assert german.content == operator.get(path).content, address
