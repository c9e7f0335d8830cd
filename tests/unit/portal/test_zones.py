"""Test instants in the viewer's zone: the rule, and names that are no zone."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from types import SimpleNamespace

import pytest
from django.template import Context, Template

from portal.charts.notes import Instant
from portal.charts.zones import local_text, zone_named

NOW = datetime(2026, 11, 29, 23, 0, tzinfo=UTC)
TOKYO = zone_named("Asia/Tokyo")


@pytest.mark.parametrize(
    ("at", "zone", "text"),
    [
        (datetime(2026, 11, 29, 15, 4, tzinfo=UTC), TOKYO, "00:04"),
        (datetime(2026, 11, 29, 14, 4, tzinfo=UTC), TOKYO, "29 Nov 23:04"),
        (datetime(2025, 11, 29, 14, 4, tzinfo=UTC), TOKYO, "29 Nov 2025"),
        (datetime(2026, 11, 29, 14, 4, tzinfo=UTC), None, "14:04 UTC"),
        (datetime(2026, 11, 28, 14, 4, tzinfo=UTC), None, "28 Nov 14:04 UTC"),
    ],
)
def test_text_has_the_date_unless_it_is_today(at: datetime, zone: tzinfo | None, text: str) -> None:
    assert local_text(at, NOW, zone) == text


@pytest.mark.parametrize("name", ["", "Nowhere/City", "../../etc/passwd", "/etc/passwd", "A" * 65])
def test_unknown_names_are_no_zone(name: str) -> None:
    assert zone_named(name) is None


class TestTag:
    AT = Instant(pool=NOW, now=NOW, wall=NOW, scale=60, wall_now=NOW)

    def _shown(self, at: Instant, cookie: str) -> str:
        request = SimpleNamespace(COOKIES={"evenshare-zone": cookie})
        template = Template('{% load evenshare %}{% when at "viewer" %}')
        return template.render(Context({"at": at, "request": request}))

    def test_uses_the_zone_of_the_cookie(self) -> None:
        shown = self._shown(self.AT, "Asia/Tokyo")
        assert ">08:00</time>" in shown
        assert "pool time 2026-11-29 23:00:00 UTC" in shown
        assert "data-zone" not in shown

    def test_is_utc_for_the_script_without_a_zone(self) -> None:
        for cookie in ("", "x"):
            shown = self._shown(self.AT, cookie)
            assert " data-zone>23:00 UTC</time>" in shown

    def test_is_an_age_if_the_wall_time_is_unknown(self) -> None:
        shown = self._shown(Instant(pool=NOW, now=NOW), "Asia/Tokyo")
        assert ">now</time>" in shown
