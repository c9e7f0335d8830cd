"""Test how a page describes the client's three results of a verification."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from portal.common.verify import came_out
from scheduling.selectors.rounds.verifications import SaidVerification


@pytest.mark.parametrize(
    ("findings", "unproven", "text"),
    [
        (2, 3, "with 2 findings"),
        (0, 3, "no errors, 3 not proven"),
        (0, 0, "all requested parts proven"),
        (0, None, "without findings"),  # an older client, which did not send this field
    ],
)
def test_page_shows_same_result_as_client(findings: int, unproven: int | None, text: str) -> None:
    said = SaidVerification(
        id=uuid4(), tenant_id=1, tenant_name="A", tenant="a", pool="p", kind="rounds",
        said_at=datetime(2030, 1, 1, tzinfo=UTC), client="c", size=1, root="", first=1, last=9,
        since=None, until=None, checked=9, findings=findings, unproven=unproven,
    )  # fmt: skip
    assert came_out(said) == text
