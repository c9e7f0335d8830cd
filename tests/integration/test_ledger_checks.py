"""Test that `check_ledger` accepts correct books and names the errors in others."""

from __future__ import annotations

import json
from decimal import Decimal
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection

from billing.checks import CHECKS, run_checks
from billing.models import MeterCursor, UsageLine
from tests.integration.metering_story import Story
from tests.integration.test_metering import eventful

pytestmark = pytest.mark.django_db


def broken() -> set[str]:
    return {result.name for result in run_checks() if not result.ok}


class TestSoundBooks:
    def test_pass_every_check(self) -> None:
        story = eventful()
        story.meter()
        story.looked(150)
        story.settle()
        assert [v for result in run_checks() for v in result.violations] == []

    def test_pass_while_meter_lags_behind(self) -> None:
        story = eventful()
        assert broken() == set()
        story.meter(5)
        assert broken() == set()

    def test_pass_for_idle_pool(self) -> None:
        story = Story()
        lease = story.run(0, "a", borrowed=2, price="0.000000")
        story.post_round(5)
        story.end(10, lease)
        story.looked(65)
        story.meter()
        story.settle()
        assert broken() == set()

    def test_are_reported_in_one_line_per_check(self) -> None:
        Story()
        output = StringIO()
        call_command("check_ledger", stdout=output)
        lines = output.getvalue().splitlines()
        assert [line.split()[:2] for line in lines] == [["ok", name] for name in CHECKS]

    def test_are_reported_as_json(self) -> None:
        output = StringIO()
        call_command("check_ledger", "--json", stdout=output)
        assert {row["name"] for row in json.loads(output.getvalue())} == set(CHECKS)


class TestBrokenBooks:
    """The guards are disabled, which only the owner can do, and one value is changed."""

    @pytest.mark.parametrize(
        ("statement", "names"),
        [
            (
                "UPDATE tenants_budget SET spendable = spendable + 1",
                {"budgets_follow_balances"},
            ),
            ("UPDATE tenants_budget SET reserved = reserved + 1", {"reserved_covers_open_terms"}),
            ("UPDATE scheduling_poolfence SET next_event = next_event + 1", {"events_gapless"}),
            ("UPDATE scheduling_lease SET gpus = gpus + 1, own = own + 1", {"lines_match_terms"}),
        ],
    )
    def test_fail_the_expected_checks(self, statement: str, names: set[str]) -> None:
        story = eventful()
        story.meter()
        story.looked(150)
        story.settle()
        with connection.cursor() as cursor:
            cursor.execute(statement)
        assert broken() == names

    def test_make_command_exit_with_1(self) -> None:
        Story()
        with connection.cursor() as cursor:
            cursor.execute("UPDATE tenants_budget SET spendable = 5")
        with pytest.raises(SystemExit) as ended:
            call_command("check_ledger", stdout=StringIO())
        assert ended.value.code == 1

    def test_line_without_event_is_found(self) -> None:
        eventful().meter()
        line = UsageLine.objects.filter(meter="own").first()
        assert line is not None
        line.pk, line.meter, line.amount = None, "borrowed", Decimal(1)
        line.save()
        assert "lines_match_events" in broken()

    def test_cursor_past_last_event_is_found(self) -> None:
        """Otherwise the sweep would request the missing events again and again."""
        story = eventful()
        story.meter()
        cursor = MeterCursor.objects.get()
        last = cursor.event_number
        MeterCursor.objects.update(event_number=last + 1)
        (said,) = CHECKS["lines_match_events"]().violations
        assert f"has read up to event {last + 1}, but the last one is {last}" in said

    def test_two_leases_on_one_slot_are_found(self) -> None:
        from scheduling.models import LeaseSlot, Node

        story = Story()
        node = Node.objects.create(pool=story.pool, name="n1", gpu_type=story.type, gpus=8)
        for minute in (0, 10):
            lease = story.run(minute, "a", own=1)
            LeaseSlot.objects.create(lease=lease, node=node, slot=0)
        assert broken() == {"slots_held_once"}

    def test_term_at_wrong_price_is_found(self) -> None:
        story = Story()
        story.post_round(5, price="1.000000")
        lease = story.run(5, "a", borrowed=1, price="0.999999")
        story.end(6, lease)
        story.post_round(7)
        story.meter()
        assert "terms_at_posted_price" in broken()
