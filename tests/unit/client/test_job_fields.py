"""Test the client's copy of a job's fields, and the values derived from them."""

from __future__ import annotations

from pathlib import Path

import evenshare.cli.job_fields as table
from scheduling.requests.client_table import client_table
from scheduling.requests.jobs import JobRequest
from tenants.input.requests import request_fields

from .conftest import Run


class TestFieldTable:
    def test_matches_fields_of_portal(self) -> None:
        assert Path(table.__file__).read_text() == client_table(), "run make fields"

    def test_defines_options_of_submit(self, run: Run) -> None:
        told = run("job", "submit", "--help").out
        for field in request_fields(JobRequest).values():
            assert field.option in told, field.name
