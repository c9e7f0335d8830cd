"""Test extreme numbers and dates in files: each line is either refused or can be stored."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta

import pytest

from evenshare_core.domain.instants import from_us
from evenshare_core.simulation.trace_formats import FORMATS, trace_lines
from evenshare_core.simulation.trace_reads import BadLine, TraceLine
from scheduling.requests.job_yaml import YamlError, read_yaml
from scheduling.requests.jobs import JobRequest
from scheduling.services.job_requests import read_job_request
from tenants.input.errors import InvalidInputError
from tenants.input.requests import request_fields
from tenants.quota_files import read_lines, wanted_periods
from tests.functional.extremes import INSTANTS, JSON_NUMBERS, NUMBERS
from tests.unit.scheduling.test_submission import GOOD, LOCAL

NOW = datetime(2030, 1, 1, tzinfo=UTC)
# More notations of numbers in YAML and CSV.
WRITTEN = (".inf", "-.inf", ".nan", "0x7fffffffffffffffff", "1_000", "190:20:30", "~", "inf", "nan")
VALUES = tuple(dict.fromkeys((*JSON_NUMBERS, *NUMBERS, *INSTANTS, *WRITTEN)))


class TestJobYaml:
    @pytest.mark.parametrize("name", [*request_fields(JobRequest), "unknown"])
    def test_extreme_values_are_stored_or_rejected(self, name: str) -> None:
        for value in VALUES:
            for text in (value, f"[{value}]", f"{{A: {value}}}"):
                good = {key: json.dumps(item) for key, item in GOOD.items()} | {name: text}
                lines = "\n".join(f"{key}: {item}" for key, item in good.items())
                try:
                    read = read_job_request(read_yaml(lines).values, LOCAL)
                except (YamlError, InvalidInputError):
                    continue
                # An accepted price fits into 64 bits.
                price = read.max_price or 0
                assert abs(int(price * 10**6)) < 2**63, lines


class TestQuotaFile:
    HEADER = "tenant,pool,gpu_type,gpus,from,until,mode,borrow_limit,lend_limit"

    @pytest.mark.parametrize("name", HEADER.split(","))
    def test_extreme_values_are_stored_or_rejected(self, name: str) -> None:
        good = dict.fromkeys(self.HEADER.split(","), "") | {
            "tenant": "a", "pool": "p", "gpu_type": "v100", "gpus": "8",
        }  # fmt: skip
        for value in VALUES:
            row = good | {name: value}
            yaml = "- {" + ", ".join(f"{key}: {item or '~'}" for key, item in row.items()) + "}\n"
            csv = f"{self.HEADER}\n{','.join(row.values())}\n"
            for text, is_yaml in ((csv, False), (yaml, True)):
                try:
                    read = read_lines(text, is_yaml=is_yaml)
                except InvalidInputError:
                    continue
                # The database can store the accepted lines, cut at the current time.
                assert len(wanted_periods(read, NOW)) <= 1
                assert all(0 <= line.terms.gpus < 2**31 for line in read)


class TestTrace:
    @pytest.mark.parametrize("form", FORMATS)
    def test_extreme_values_are_read_or_reported_as_bad_line(self, form: str) -> None:
        columns = FORMATS[form]
        good = {
            "tenant": "a",
            "gpus": "1",
            "submit": "1000",
            "duration": "60",
            "name": "1",
            "set": "x",
        }
        for column, field in columns.items():
            for value in VALUES:
                cells = {one: good.get(columns[one], "") for one in columns} | {column: value}
                text = f"{','.join(cells)}\n{','.join(cells.values())}\n"
                file = io.BytesIO(text.encode())
                _, lines = trace_lines(file, form=form, chosen=cells.get("set", ""))
                for line in lines:
                    if isinstance(line, BadLine):
                        assert line.reason, (text, field)
                    elif isinstance(line, TraceLine):
                        # A replay may start at any time, here at the earliest one, and no date
                        # overflows.
                        earliest = datetime(1970, 1, 1, tzinfo=UTC)
                        later = timedelta(microseconds=line.submit_us + line.duration_us)
                        assert earliest + later < datetime(9000, 1, 1, tzinfo=UTC), text
                        assert from_us(line.submit_us) >= earliest
