"""Test answers made from structs: their JSON, and their description in the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from types import SimpleNamespace
from typing import Annotated
from uuid import UUID

import msgspec
import pytest
from rest_framework import serializers

from evenshare_core.money.rows import Amount, IncomeRow, InstantUs, Whole
from tenants.answers import Answer, Hidden, about, answer_of, formatted_as, one_of, plain
from tenants.api.answer_schemas import answer_serializer


class Colour(StrEnum):
    RED = "red"


class Wheel(Answer, frozen=True, rename={"uid": "id"}):
    """A wheel."""

    COMPONENT = "WheelRow"

    uid: UUID
    secret: Hidden[int]
    price: Annotated[Decimal | None, about("For one.")]
    milli: Annotated[
        int, formatted_as(lambda milli: f"{milli / 1000:.3f}", pattern=r"^[0-9]\.[0-9]{3}$")
    ]


class Cart(Answer, frozen=True):
    """A cart."""

    wheels: tuple[Wheel, ...]
    made_at: datetime
    colour: Colour
    word: Annotated[str, one_of("", "a")]
    lasts: timedelta
    sizes: dict[str, int]
    spare: Wheel | None = None


WHEEL = Wheel(UUID(int=1), 7, Decimal("1.5"), 250)
MADE_AT = datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=1)))
CART = Cart((WHEEL,), MADE_AT, Colour.RED, "", timedelta(minutes=1), {"a": 1})


class TestPlain:
    def test_has_published_fields_in_order(self) -> None:
        assert list(plain(CART).items()) == [
            (
                "wheels",
                [{"id": str(UUID(int=1)), "price": "1.500000", "milli": "0.250"}],
            ),
            ("made_at", "2026-01-02T02:00:00.000000Z"),
            ("colour", "red"),
            ("word", ""),
            ("lasts", 60.0),
            ("sizes", {"a": 1}),
            ("spare", None),
        ]

    def test_rejects_unsupported_type(self) -> None:
        with pytest.raises(TypeError, match="Lock has no form in JSON"):
            plain({"a": type("Lock", (), {})()})

    def test_returns_units_and_long_integers_as_strings(self) -> None:
        """Micro-credits, microseconds since 1970, and numbers too long for JSON readers."""
        told = plain([Amount(-1_500_000), InstantUs(1), Whole(10**30)])
        assert told == ["-1.500000", "1970-01-01T00:00:00.000001Z", f"1{'0' * 30}"]

    def test_keeps_microseconds_of_instants(self) -> None:
        instant = datetime(2026, 1, 1, microsecond=5, tzinfo=UTC)
        assert plain([instant]) == ["2026-01-01T00:00:00.000005Z"]


class TestAnswerOf:
    def test_combines_given_values_with_row(self) -> None:
        row = SimpleNamespace(secret=7, price=None, milli=250, other="not asked for")
        assert answer_of(Wheel, row, uid=UUID(int=1), price=Decimal("1.5")) == WHEEL

    def test_raises_if_row_lacks_field(self) -> None:
        with pytest.raises(AttributeError, match="price"):
            answer_of(Wheel, SimpleNamespace(secret=7, milli=250), uid=UUID(int=1))


class TestDescription:
    def test_contains_types_texts_and_names(self) -> None:
        made = answer_serializer(Cart)
        assert (made.__name__, made.__doc__) == ("Cart", "A cart.")
        fields = made().fields
        assert list(fields) == list(plain(CART))
        wheel = fields["spare"]
        assert isinstance(wheel, serializers.Serializer)
        assert (type(wheel).__name__, wheel.allow_null) == ("WheelRow", True)
        assert list(wheel.fields) == ["id", "price", "milli"]
        price = wheel.fields["price"]
        assert isinstance(price, serializers.RegexField)
        assert (price.help_text, price.allow_null) == ("For one.", True)
        word = fields["word"]
        assert isinstance(word, serializers.ChoiceField)
        assert list(word.choices) == ["", "a"]

    def test_is_cached_per_struct(self) -> None:
        assert answer_serializer(Wheel) is answer_serializer(Wheel)

    def test_rejects_unknown_types(self) -> None:
        odd = msgspec.defstruct("Odd", [("what", frozenset[int])])
        with pytest.raises(TypeError, match="is not described"):
            answer_serializer(odd)

    def test_omits_null_kept_only_for_older_portals(self) -> None:
        fields = answer_serializer(IncomeRow)().fields
        assert (fields["borne"].allow_null, fields["transfer"].allow_null) == (False, True)
