"""What a sweep takes and gives: lease events, open terms, and terms that are over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from evenshare_core.money.fixed_point import charge_micro, term_charge, to_micro
from evenshare_core.money.revenue.idle import ChargeShare

# Round intervals after a term's due instant within which a round is on time.
LATE_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Event:
    """One lease event as the sweep reads it; `at_us` is pool time, 0 stands for no lease."""

    number: int
    kind: str
    at_us: int
    lease: int
    job: int
    tenant: int
    term: int
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClosedTerm:
    """A term that is over. `starts_us` is None if the executor never started it.

    `shares`: who earns what of `amount_micro` (only where GPUs were borrowed), by each lender's
    part of the term, eq. (2), with weights as in `plain_weights`. `event`: the number of the event
    that closed it. `carried` and `rest`: the remainder that it took over and the one that it left
    (`term_charge`). `carried` is None under the rule before, where weights are GPU-microseconds.

    The borrower pays `amount_micro`, for the time until `charged_until_us`. That is before
    `ends_us` if rounds were late; then the operator bears `borne_micro`, and `shares` sum to both.
    """

    lease: int
    job: int
    tenant: int
    gpu_type: str
    term: int
    own: int
    borrowed: int
    price_micro: int
    starts_us: int | None
    ends_us: int
    event: int
    amount_micro: int
    carried: int | None
    rest: int
    shares: tuple[ChargeShare, ...]
    charged_until_us: int
    borne_micro: int

    @property
    def held_us(self) -> int:
        """How long the GPUs were held, at least 0."""
        return 0 if self.starts_us is None else self.ends_us - self.starts_us

    @property
    def weights(self) -> dict[int, int]:
        """Lender -> its weight (zeros left out)."""
        return {share.lender: share.weight for share in self.shares if share.weight}


@dataclass(slots=True)
class OpenTerm:
    """The present term of a lease that has not ended."""

    job: int
    tenant: int
    gpu_type: str
    term: int
    own: int
    borrowed: int
    price_micro: int
    starts_us: int | None = None
    mark_us: int = 0
    carried: int | None = 0  # None: it began under the rule before
    due_us: int | None = None  # None: its event is of before late rounds were the operator's loss
    late_us: int = 0  # how long after `due_us` a round is on time
    protected_us: int = 0  # its minimum runtime
    round_us: int | None = None  # the first round from `due_us` on
    asked_us: int | None = None  # when it was asked to stop

    @property
    def by_integrals(self) -> bool:
        return self.carried is None

    def charged_until_us(self, ends_us: int) -> int:
        """Until when the borrower is charged: not past the due instant if rounds were late."""
        if self.due_us is None or self.round_us is None or self.due_us >= ends_us:
            return ends_us
        seen_us = self.round_us if self.asked_us is None else min(self.round_us, self.asked_us)
        if seen_us <= self.due_us + self.late_us:
            return ends_us
        return max(self.due_us, self.starts_us or 0)

    def charged(self, held_us: int) -> tuple[int, int]:
        """Return what so long a time costs, and the remainder that it leaves to the next term."""
        if self.carried is None:
            return charge_micro(self.borrowed, self.price_micro, held_us), 0
        return term_charge(self.borrowed, self.price_micro, held_us, self.carried)

    def row(self) -> list[Any]:
        """Return its fields as JSON values, in their order."""
        return [getattr(self, name) for name in OpenTerm.__slots__]


def opened_term(event: Event) -> OpenTerm:
    """Return the term that an event grants or renews; it has not begun."""
    data = event.data
    due_us = data.get("expires_us")
    return OpenTerm(
        job=event.job,
        tenant=event.tenant,
        gpu_type=data["gpu_type"],
        term=event.term,
        own=int(data["own"]),
        borrowed=int(data["borrowed"]),
        price_micro=price_to_micro(data["price"]),
        due_us=None if due_us is None else int(due_us),
        late_us=int(data.get("late_us", 0)),
        protected_us=int(data.get("protected_us", 0)),
    )


def price_to_micro(price: Any) -> int:
    """Return a price of an event's data (decimal text, or whole credits) as micro-credits.

    Raises:
        TypeError: it is anything else, a float above all.
    """
    if isinstance(price, bool) or not isinstance(price, str | int):
        raise TypeError(f"a price must be decimal text, not {type(price).__name__}")
    return to_micro(Decimal(price))
