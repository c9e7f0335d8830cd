"""Run golden case B of Astraea-online through meter and ledger: the payments for j12.

A slot of the paper is an hour: (8, 12] is the four hours after noon. Workers and parameter servers
are two GPU types of one pool; users 1 and 2 are tenants a and b.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from billing.checks import run_checks
from billing.models import UsageShare
from evenshare_core.money.fixed_point import to_micro
from evenshare_research.market.gains import payments
from scheduling.models import GpuType, Lease
from tests.integration.metering_story import Story
from tests.papers.test_astraea_online import case_b

pytestmark = pytest.mark.django_db


class TwoKinds(Story):
    """A story whose events have the GPU type that was set last."""

    kind = "v100"

    @contextmanager
    def of(self, kind: str) -> Iterator[None]:
        self.kind = kind
        yield
        self.kind = "v100"

    def _event(
        self, kind: str, minute: float, data: dict[str, Any], lease: Lease | None = None
    ) -> None:
        if "gpu_type" in data:
            data |= {"gpu_type": self.kind}
        super()._event(kind, minute, data, lease)


@pytest.fixture
def story() -> TwoKinds:
    """Write the paper's schedule: j11 in (8, 10], j21 in (10, 12]; j12 borrows twice for 2 h."""
    story = TwoKinds({"a": 4, "b": 4}, capacity=8)
    GpuType.objects.create(name="ps")
    with story.of("ps"):
        story.entitle(0, {"a": 2, "b": 2}, 4)
    story.post_round(0)
    j11, j12, j21 = {}, {}, {}
    for kind, own, borrowed in (("v100", 2, 3), ("ps", 1, 1)):
        with story.of(kind):
            j11[kind] = story.run(0, "a", own=own)
            j12[kind] = story.run(0, "a", borrowed=borrowed, price="1.000000")
    for kind, own in (("v100", 2), ("ps", 1)):
        with story.of(kind):
            story.end(120, j11[kind])
            j21[kind] = story.run(120, "b", own=own)
            story.renew(120, j12[kind])
    for kind in ("v100", "ps"):
        with story.of(kind):
            story.end(240, j12[kind])
            story.end(240, j21[kind])
    story.post_round(241)
    story.meter()
    return story


class TestJ12:
    def test_pays_owners_as_in_paper(self, story: TwoKinds) -> None:
        earned: dict[tuple[int, str], int] = defaultdict(int)
        for share in UsageShare.objects.select_related("line", "account__tenant"):
            tenant = share.account.tenant
            assert tenant is not None
            earned[share.line.term, tenant.slug] += to_micro(share.amount)
        assert dict(earned) == {
            (1, "a"): 2_666_667, (1, "b"): 5_333_333, (2, "a"): 5_333_333, (2, "b"): 2_666_667,
        }  # fmt: skip

    def test_costs_16_credits_and_earns_8(self, story: TwoKinds) -> None:
        story.looked(400)
        story.settle()
        assert story.balances() == {"a": "-8.000000", "b": "8.000000"}
        story.settle()  # a repeated delivery changes nothing
        assert story.balances() == {"a": "-8.000000", "b": "8.000000"}
        assert [what for result in run_checks() for what in result.violations] == []

    def test_library_pays_same_as_ledger(self, story: TwoKinds) -> None:
        story.looked(400)
        story.settle()
        run, _ = case_b()
        earned = {1: 0, 2: 0}
        for payment in payments(run.rounds[0]):
            earned[payment.owner] += payment.amount_micro
        balance = {name: to_micro_text(text) for name, text in story.balances().items()}
        assert balance == {"a": earned[1] - sum(earned.values()), "b": earned[2]}


def to_micro_text(text: str) -> int:
    return int(text.replace(".", ""))
