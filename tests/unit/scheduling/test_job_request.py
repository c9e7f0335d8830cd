"""Test that limits of a request's fields fit the columns: otherwise Postgres fails with a 500."""

from __future__ import annotations

import pytest

from scheduling.models import Job
from scheduling.requests.jobs import JobRequest
from tenants.input.requests import request_fields

TEXTS = {
    column.name: column.max_length
    for column in Job._meta.concrete_fields
    if column.max_length is not None
}
STORED = sorted(name for name in request_fields(JobRequest) if name in TEXTS)


def test_some_fields_are_stored_as_text() -> None:
    assert "comment" in STORED


@pytest.mark.parametrize("name", STORED)
def test_column_holds_longest_allowed_text(name: str) -> None:
    most = request_fields(JobRequest)[name].most
    column = TEXTS[name]
    assert most is not None or name == "name"  # a pattern limits a name to 63 characters
    assert (most or 63) <= (column or 0)
