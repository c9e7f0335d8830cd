"""Input and output of a sweep over lease events: events, open terms and closed terms."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from evenshare_core.money.fixed_point import charge_micro, term_charge, to_micro
from evenshare_core.money.revenue.idle import ChargeShare

# A round is on time if it is at most this many round intervals after the term was due.
LATE_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Event:
    """A lease event of a pool; `at_us` is pool time, `lease` is 0 if it is about no lease."""

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

    - `shares`: the lenders' shares of the charge by their parts of the term, eq. (2), with
      weights as in `plain_weights`. Empty if no GPUs were borrowed.
    - `event`: the number of the event that closed the term.
    - `carried`: the remainder taken over from the previous term (`term_charge`). None under the
      former rule, in which weights are GPU-microseconds.
    - `rest`: the remainder left to the next term.
    - `amount_micro`: paid by the borrower, for the time until `charged_until_us`.

    If rounds were late, `charged_until_us` is before `ends_us`. Then the operator pays
    `borne_micro`, and `shares` sum to both amounts.
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
        """The time for which the GPUs were held, at least 0."""
        return 0 if self.starts_us is None else self.ends_us - self.starts_us

    @property
    def weights(self) -> dict[int, int]:
        """Lender -> its weight (zeros left out)."""
        return {share.lender: share.weight for share in self.shares if share.weight}


@dataclass(slots=True)
class OpenTerm:
    """The current term of a lease that has not ended."""

    job: int
    tenant: int
    gpu_type: str
    term: int
    own: int
    borrowed: int
    price_micro: int
    starts_us: int | None = None
    mark_us: int = 0
    carried: int | None = 0  # None if the term began under the former rule
    due_us: int | None = None  # None if the term's event is from before the rule on late rounds
    late_us: int = 0  # how long after `due_us` a round is still on time
    protected_us: int = 0  # the minimum runtime of the lease
    round_us: int | None = None  # the time of the first round at or after `due_us`
    asked_us: int | None = None  # the time of the request to stop

    @property
    def by_integrals(self) -> bool:
        return self.carried is None

    def charged_until_us(self, ends_us: int) -> int:
        """Return the end of the charged time: the due instant if rounds were late, else the end."""
        if self.due_us is None or self.round_us is None or self.due_us >= ends_us:
            return ends_us
        seen_us = self.round_us if self.asked_us is None else min(self.round_us, self.asked_us)
        if seen_us <= self.due_us + self.late_us:
            return ends_us
        return max(self.due_us, self.starts_us or 0)

    def charged(self, held_us: int) -> tuple[int, int]:
        """Return the charge for `held_us`, and the remainder that the next term carries."""
        if self.carried is None:
            return charge_micro(self.borrowed, self.price_micro, held_us), 0
        return term_charge(self.borrowed, self.price_micro, held_us, self.carried)

    def row(self) -> list[Any]:
        """Return the fields as JSON values, in their order."""
        return [getattr(self, name) for name in OpenTerm.__slots__]


def opened_term(event: Event) -> OpenTerm:
    """Return the term that an event grants or renews; it has not started."""
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
        TypeError: it has another type, for example float.
    """
    if isinstance(price, bool) or not isinstance(price, str | int):
        raise TypeError(f"a price must be decimal text, not {type(price).__name__}")
    return to_micro(Decimal(price))
