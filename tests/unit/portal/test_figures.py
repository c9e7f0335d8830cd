"""Test the formats of numbers, money and times."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.charts import figures
from portal.charts.figures import MINUS, NONE

AT = datetime(2026, 11, 20, 14, 6, 0, tzinfo=UTC)


class TestThousands:
    @pytest.mark.parametrize(
        ("value", "places", "shown"),
        [
            (None, None, NONE),
            (0, None, "0"),
            (4211, None, "4,211"),
            (-4211, None, MINUS + "4,211"),
            (1061.84, 1, "1,061.8"),
            (-0.001, 2, "0.00"),
            (Decimal("1234567.5"), 2, "1,234,567.50"),
            (float("inf"), 2, figures.INFINITY),
            (float("nan"), 2, NONE),
        ],
    )
    def test_formats_number(
        self, value: figures.Number | None, places: int | None, shown: str
    ) -> None:
        assert figures.thousands(value, places) == shown

    def test_signs_only_nonzero_numbers(self) -> None:
        assert figures.thousands(13, signed=True) == "+13"
        assert figures.thousands(0, signed=True) == "0"
        assert figures.thousands(-13, signed=True) == MINUS + "13"

    @given(st.integers())
    def test_loses_no_digit(self, value: int) -> None:
        shown = figures.thousands(value)
        assert int(shown.replace(",", "").replace(MINUS, "-")) == value


class TestCredits:
    @pytest.mark.parametrize(
        ("value", "places", "shown"),
        [
            (Decimal("-212.4"), 2, MINUS + "212.40"),
            ("1.005", 2, "1.00"),
            ("1.015", 2, "1.02"),
            (29, 2, "29.00"),
            (Decimal("1.148600"), 4, "1.1486"),
            (None, 2, NONE),
        ],
    )
    def test_formats_amount(
        self, value: Decimal | int | str | None, places: int, shown: str
    ) -> None:
        assert figures.credits_text(value, places) == shown

    def test_rejects_float(self) -> None:
        with pytest.raises(TypeError, match="never float"):
            figures.credits_text(1.5)  # type: ignore[arg-type]  # the mistake under test

    @given(st.decimals(places=2, min_value=-(10**12), max_value=10**12))
    def test_keeps_two_decimals_exactly(self, value: Decimal) -> None:
        shown = figures.credits_text(value).replace(",", "").replace(MINUS, "-")
        assert Decimal(shown) == value


class TestApportion:
    @given(st.lists(st.decimals(places=6, min_value=-(10**6), max_value=10**6), max_size=20))
    def test_parts_sum_to_rounded_total(self, amounts: list[Decimal]) -> None:
        parts = figures.apportion(amounts)
        assert sum(parts) == sum(amounts, Decimal(0)).quantize(Decimal("0.01"))
        unit = Decimal("0.01")
        assert all(abs(a - b) < unit for a, b in zip(parts, amounts, strict=True))

    def test_rounds_normally_if_parts_add_up(self) -> None:
        parts = figures.apportion([Decimal("792.991"), Decimal("21.157"), Decimal("-0.004")])
        assert [str(part) for part in parts] == ["792.99", "21.16", "-0.01"]


class TestTellingPlaces:
    @pytest.mark.parametrize(
        ("values", "places"),
        [([0.9, 1.1], 2), ([0.998, 1.0], 3), ([0.9996, 0.9999, 1.0], 4), ([1.0, 1.0], 2)],
    )
    def test_returns_fewest_distinguishing_decimals(self, values: list[float], places: int) -> None:
        assert figures.telling_places(values) == places


class TestTimes:
    @pytest.mark.parametrize(
        ("seconds", "shown"),
        [
            (0, "0 s"),
            (22, "22 s"),
            (537, "8 min 57 s"),
            (540, "9 min"),
            (13860, "3 h 51 min"),
            (3605, "1 h"),
            (187200, "2 d 4 h"),
            (-90, MINUS + "1 min 30 s"),
            (None, NONE),
        ],
    )
    def test_formats_duration(self, seconds: int | None, shown: str) -> None:
        assert figures.duration(seconds) == shown

    @pytest.mark.parametrize(
        ("ago", "shown"),
        [(0.4, "now"), (3, "3 s ago"), (-57, "in 57 s"), (537, "8 min ago"), (90000, "1 d ago")],
    )
    def test_formats_relative_time(self, ago: float, shown: str) -> None:
        assert figures.relative(ago) == shown

    def test_converts_instants_to_utc(self) -> None:
        moved = AT.astimezone(timezone(timedelta(hours=9)))
        assert figures.utc(moved) == "2026-11-20 14:06:00 UTC"
        assert figures.clock(moved) == "14:06"


class TestWords:
    def test_formats_plural(self) -> None:
        assert figures.plural(1, "job") == "1 job"
        assert figures.plural(1200, "entry", "entries") == "1,200 entries"

    def test_formats_gpu_hours_and_percent(self) -> None:
        assert figures.gpu_hours(3822480) == "1,061.8"
        assert figures.gpu_hours(None) == NONE
        assert figures.percent(0.5091, 2) == "50.91 %"


class TestGpusOfType:
    @pytest.mark.parametrize(
        ("count", "gpu_type", "shown"),
        [(1, "V100", "1 V100 GPU"), (1200, "a100", "1,200 a100 GPUs"), (1, "gpu", "1 GPU")],
    )
    def test_does_not_repeat_gpu(self, count: int, gpu_type: str, shown: str) -> None:
        assert figures.gpus_of_type(count, gpu_type) == shown
