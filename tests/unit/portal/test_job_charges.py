"""Test the charges on a job's page: the figure of a row and its note."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from billing.selectors.usage import LenderShare, TermCharge
from portal.common.clocks import Clocks
from portal.jobs.text.charges import charge_rows
from scheduling.engine.clock import PoolNow

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
CLOCKS = Clocks(PoolNow(BEGIN, BEGIN, 1, paused=False))


def term(lease: int, charge: str) -> TermCharge:
    """Return a term in which two GPUs were borrowed for an hour from two lenders."""
    amount, half = Decimal(charge), (Decimal(charge) / 2).quantize(Decimal("0.000001"))
    lenders = tuple(LenderShare(tenant, part) for tenant, part in ((1, half), (2, amount - half)))
    return TermCharge(
        lease_id=lease,
        lease_number=lease,
        term=1,
        gpu_type="v100",
        starts_at=BEGIN,
        ends_at=BEGIN + timedelta(hours=1),
        own_gpus=0,
        borrowed_gpus=2,
        own_gpu_h=Decimal(0),
        borrowed_gpu_h=Decimal(2),
        price=amount / 2,
        charge=amount,
        settled=True,
        lenders=lenders,
    )


class TestChargeNote:
    def test_shows_exact_charge_if_column_is_rounded(self) -> None:
        # The total 5.827956 is shown as 5.8280, because two of three rows are rounded up and one
        # down.
        charges = ["1.942652"] * 3
        rows = charge_rows(
            [term(lease, charge) for lease, charge in enumerate(charges, 1)],
            names={1: "north", 2: "south"},
            clocks=CLOCKS,
            pool="pool",
        )
        assert sorted(str(row.charge) for row in rows) == ["1.9426", "1.9427", "1.9427"]
        for row, charge in zip(rows, charges, strict=True):
            assert row.note is not None
            assert row.note.total is not None
            assert row.note.total.value == f"+{charge}"
            assert [line.value for line in row.note.line_items] == ["+0.971326"] * 2
            assert "rounded to 4 decimals" in row.note.text
