"""REST answers about a tenant's money in a pool, read from plain dictionaries.

Fields are those of docs/api.md; unused fields are ignored. Money is text with six places and
becomes whole micro-credits. Times become microseconds of pool time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import msgspec

from evenshare_core.domain.instants import to_us
from evenshare_core.money.fixed_point import sum_to_micro
from evenshare_core.money.revenue.factors import IdleStep
from evenshare_core.money.rows import (
    Amount,
    EntryRow,
    IdleRow,
    IncomeRow,
    InstantUs,
    Int,
    UsageRow,
    Whole,
)
from evenshare_core.units import ONE_MILLI

BORROWED = "borrowed"
Row = TypeVar("Row", bound=msgspec.Struct)
LONGEST_DECIMAL = 40


class StatementError(ValueError):
    """Rows cannot be read; `field` is the place of the error, such as `income[3].price`."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field, self.reason = field, reason


class Milli(int):
    """Thousandths, written as decimal text."""


class PriceAnswer(msgspec.Struct, frozen=True):
    """`GET /prices/<pool>/<gpu_type>`: one posted price."""

    gpu_type: str
    price: Amount
    used: Int
    capacity: Int
    base: Amount
    theta: Milli
    surcharge: Amount | None
    valid_from_round: Int


@dataclass(frozen=True, slots=True)
class TenantStatement:
    """A tenant's money in a pool, over a span of the pool's time.

    `steps` has idle quota by GPU type, in order of time. `prices` are by GPU type, in order of the
    rounds.
    """

    usage: tuple[UsageRow, ...]
    income: tuple[IncomeRow, ...]
    steps: Mapping[str, tuple[IdleStep, ...]]
    prices: Mapping[str, tuple[PriceAnswer, ...]]
    entries: tuple[EntryRow, ...]


def read_statement(answers: Mapping[str, Any]) -> TenantStatement:
    """Return the statement of the answers `usage`, `income`, `idle`, `prices` and `entries`.

    Each is a list of rows. A row of `idle` or `prices` that several pages repeat counts once.

    Raises:
        StatementError: a row cannot be read, or two rows for the same time or round differ.
    """
    steps: dict[str, dict[int, IdleStep]] = {}
    for index, row in enumerate(_rows(answers, "idle", IdleRow)):
        of_type = steps.setdefault(row.gpu_type, {})
        step = IdleStep(row.at, row.own, row.total)
        if of_type.setdefault(row.at, step) != step:
            raise StatementError(f"idle[{index}]", "contradicts another row about an instant")
    prices: dict[str, dict[int, PriceAnswer]] = {}
    for index, price in enumerate(_rows(answers, "prices", PriceAnswer)):
        posted = prices.setdefault(price.gpu_type, {})
        if posted.setdefault(price.valid_from_round, price) != price:
            raise StatementError(f"prices[{index}]", "contradicts another row about a round")
    return TenantStatement(
        usage=tuple(_rows(answers, "usage", UsageRow)),
        income=tuple(_rows(answers, "income", IncomeRow)),
        steps={name: tuple(rows[at] for at in sorted(rows)) for name, rows in steps.items()},
        prices={name: tuple(rows[at] for at in sorted(rows)) for name, rows in prices.items()},
        entries=tuple(_rows(answers, "entries", EntryRow)),
    )


def _rows(answers: Mapping[str, Any], name: str, of: type[Row]) -> Sequence[Row]:
    rows = answers.get(name)
    if not isinstance(rows, list):
        raise StatementError(name, "is not a list of rows")
    read: list[Row] = []
    for index, row in enumerate(rows):
        try:
            read.append(msgspec.convert(row, of, dec_hook=_read))
        except msgspec.ValidationError as error:
            raise StatementError(f"{name}[{index}]", str(error)) from None
    return read


def _read(kind: type, value: Any) -> Any:
    if not isinstance(value, str):
        raise msgspec.ValidationError(f"Expected text, got {type(value).__name__}")
    try:
        if kind is InstantUs:
            return InstantUs(to_us(_instant(value)))
        if kind is Whole:
            return Whole(_whole(value))
        if kind is Milli:
            return Milli(_exact(_decimal(value) * ONE_MILLI))
        return Amount(sum_to_micro(_decimal(value)))
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise msgspec.ValidationError(f"{value[:40]!r} cannot be read: {error}") from None


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("an instant without a zone")
    return instant


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 40:
        raise ValueError("no whole number from 0")
    return int(text)


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if len(text) > LONGEST_DECIMAL or abs(number.adjusted()) > LONGEST_DECIMAL:
        raise ValueError("a number that is too long")
    return number


def _exact(number: Decimal) -> int:
    if number != number.to_integral_value():
        raise ValueError("more than three places")
    return int(number)
