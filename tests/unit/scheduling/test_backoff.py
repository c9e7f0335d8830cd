"""Test which ends of a lease count as a loss of the job's process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from evenshare_core.domain.backoff import LIMIT, STEADY_US
from evenshare_core.domain.reasons import EndReason
from scheduling.engine.backoff import after_end
from scheduling.models import Lease

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
STEADY = timedelta(microseconds=STEADY_US)


class TestLoss:
    @pytest.mark.parametrize(
        ("reason", "held", "before", "after"),
        [
            (EndReason.LOST, timedelta(seconds=1), 0, 1),
            (EndReason.LOST, timedelta(seconds=1), 3, 4),
            (EndReason.LOST, STEADY, 5, 0),
            (EndReason.NOT_RENEWED, timedelta(seconds=1), 3, 0),
            (EndReason.DRAINED, timedelta(seconds=1), 5, 0),
            (EndReason.CANCELLED, timedelta(seconds=1), 5, 0),
        ],
    )
    def test_counts_only_if_lease_ends_soon_after_start(
        self, reason: EndReason, held: timedelta, before: int, after: int
    ) -> None:
        lease = Lease(started_at=BEGIN, granted_at=BEGIN, ended_at=BEGIN + held)
        found = after_end(lease, reason, before)
        assert found.losses == after
        assert (found.until is not None) is (after > 0)
        assert found.is_given_up is (after >= LIMIT)
