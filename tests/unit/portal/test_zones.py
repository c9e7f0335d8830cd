"""Test instants in the viewer's zone: the rule, and names that are no zone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from django.template import Context, Template

from portal.charts.notes import Instant
from portal.charts.zones import local_text, viewed_in, zone_named
from portal.common.clocks import Clocks
from portal.operate.text.overdue import overdue_alert
from scheduling.engine.clock import PoolNow
from scheduling.selectors.operate.overdue import OverduePool

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


REAL = Instant(pool=NOW - timedelta(hours=2), now=NOW, scale=1, wall_now=NOW)
SCALED = Instant(pool=NOW, now=NOW, wall=NOW, scale=60, wall_now=NOW)


def shown(tag: str, at: Instant | datetime, zone: tzinfo | None = TOKYO) -> str:
    with viewed_in(zone):
        return Template(f"{{% load evenshare %}}{{% {tag} %}}").render(Context({"at": at}))


@pytest.mark.parametrize(
    ("scale", "text"), [(1, "2026-11-30 07:00:00"), (60, "2026-11-29 22:00:00 UTC")]
)
def test_overdue_leases_are_since_a_time_of_the_pools_clock(scale: int, text: str) -> None:
    row = OverduePool("p", 2, NOW - timedelta(hours=1), 0)
    with viewed_in(TOKYO):
        alert = overdue_alert(row, Clocks(PoolNow(NOW, NOW, scale, paused=False)))
    assert f"since {text}, pool time" in alert.title


class TestInstant:
    @pytest.mark.parametrize(
        ("style", "local", "utc"),
        [
            ("clock", "06:00", "21:00 UTC"),
            ("seconds", "06:00:00", "21:00:00 UTC"),
            ("full", "2026-11-30 06:00:00", "2026-11-29 21:00:00 UTC"),
        ],
    )
    def test_of_real_time_is_local_with_utc_on_hover(
        self, style: str, local: str, utc: str
    ) -> None:
        element = shown(f'when at "{style}"', REAL)
        assert f">{local}</time>" in element
        assert "2026-11-30 06:00:00 (2026-11-29 21:00:00 UTC)" in element
        unknown = shown(f'when at "{style}"', REAL, None)
        assert f' data-zone="{style}">{utc}</time>' in unknown

    def test_of_scaled_clock_is_pool_time_with_wall_time_on_hover(self) -> None:
        element = shown('when at "clock"', SCALED)
        assert ">23:00</time>" in element
        assert "pool time 2026-11-29 23:00:00 UTC" in element
        assert "wall time 2026-11-30 08:00:00 (2026-11-29 23:00:00 UTC)" in element

    def test_of_paused_pool_is_pool_time(self) -> None:
        paused = replace(REAL, wall_now=NOW + timedelta(minutes=1))
        assert ">21:00</time>" in shown('when at "clock"', paused)

    @pytest.mark.parametrize("at", [REAL, replace(REAL, scale=60)])
    def test_of_accounts_is_utc(self, at: Instant) -> None:
        assert ">21:00 UTC</time>" in shown('when at "utc"', at)
        assert ">21:00:00 UTC</time>" in shown('when at "utc-seconds"', at)
        assert ">21:00</time>" in shown('when at "hour"', at)

    def test_age_has_both_times_on_hover(self) -> None:
        element = shown("when at", REAL)
        assert 'title="2026-11-30 06:00:00 (2026-11-29 21:00:00 UTC)"' in element
        assert ">2 h ago</time>" in element

    def test_of_the_shared_round_line_ignores_the_zone(self) -> None:
        with viewed_in(TOKYO):
            assert (
                REAL.shared_title
                == "pool time 2026-11-29 21:00:00 UTC \N{MIDDLE DOT} clock \N{MULTIPLICATION SIGN}1"
            )


class TestWallClock:
    def test_is_local_with_utc_on_hover(self) -> None:
        element = shown("wall at", NOW)
        assert 'title="2026-11-29 23:00:00 UTC">2026-11-30 08:00:00</time>' in element

    def test_beyond_last_date_is_utc(self) -> None:
        last = datetime.max.replace(tzinfo=UTC)
        assert ">9999-12-31 23:59:59 UTC</time>" in shown("wall at", last)
        assert local_text(last, NOW, TOKYO) == "31 Dec 9999 UTC"

    def test_is_utc_for_the_script_without_a_zone(self) -> None:
        assert ' data-zone="full">2026-11-29 23:00:00 UTC</time>' in shown("wall at", NOW, None)


class TestTimeInLists:
    def test_is_local_on_a_scaled_clock(self) -> None:
        element = shown('when at "viewer"', SCALED)
        assert ">08:00</time>" in element
        assert "pool time 2026-11-29 23:00:00 UTC" in element

    def test_is_utc_for_the_script_without_a_zone(self) -> None:
        element = shown('when at "viewer"', SCALED, None)
        assert ' data-zone="viewer">23:00 UTC</time>' in element

    def test_is_an_age_if_the_wall_time_is_unknown(self) -> None:
        assert ">now</time>" in shown('when at "viewer"', Instant(pool=NOW, now=NOW))
