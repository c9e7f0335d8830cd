"""REST answers about a tenant's money in a pool, from which a statement is verified.

The portal makes these structs from its tables, REST writes them as docs/api.md documents, and
`evenshare_core.verification.statement_rows` reads them again. Fields with a default are not needed
for verification, or older portals do not return them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from evenshare_core.money.fixed_point import micro_text

# Numbers much longer than a portal's would exhaust time or memory.
Int = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Uid = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]


class Amount(int):
    """Whole micro-credits, written as text with six places."""

    def __str__(self) -> str:
        return micro_text(int(self))


class Whole(int):
    """An integer written as text, because it may be too long for a JSON reader."""


class InstantUs(int):
    """Microseconds of pool time since 1970, written as RFC 3339."""


# Description of a term for which rounds were late, in its lender's rows.
ChargedUntil = Annotated[
    InstantUs | None,
    Meta(
        description="If rounds were late for the term: until when its borrower was charged. null:"
        " until it ended."
    ),
]
TermRound = Annotated[
    Int | None,
    Meta(
        description="The round that granted or renewed the term: its price is the one posted for"
        " it."
    ),
]
SettledHour = Annotated[
    InstantUs, Meta(description="The first instant of the hour that it is settled in.")
]


class UsageRow(Struct, frozen=True, kw_only=True):
    """GPU-time of one lease term, own or borrowed."""

    tenant: str = ""
    pool: str = ""
    job: Uid
    lease: Int
    term: Int
    round: TermRound
    meter: Annotated[str, Meta(extra_json_schema={"enum": ["own", "borrowed"]})]
    gpu_type: str
    gpus: Int
    price: Amount
    starts_at: InstantUs
    ends_at: InstantUs
    amount: Amount
    carried: Annotated[
        Int | None,
        Meta(
            description="The remainder that the amount took over from the lease's terms before, in"
            " 1/3,600,000,000 of a micro-credit; null: own GPUs, or from before remainders were"
            " carried. amount = gpus x price x time + carried, to the nearest micro-credit."
        ),
    ]
    charged_until: Annotated[
        InstantUs | None,
        Meta(
            description="The end of the time that the amount is for, if rounds were late for the"
            " term: its expiry, or the end of its minimum runtime. null: `ends_at`."
        ),
    ] = None
    borne: Annotated[
        Amount,
        Meta(
            description="What the operator paid the lenders for the rest of the time; no part of"
            " the amount."
        ),
    ] = Amount(0)
    hour: SettledHour
    transfer: Annotated[
        Uid | None, Meta(description="null: not settled yet, or nothing to pay for it.")
    ]

    @property
    def charged_us(self) -> int:
        """The time for which the amount is charged; negative or too long in a wrong row."""
        until_us = self.ends_at if self.charged_until is None else self.charged_until
        return until_us - self.starts_at


class LenderRow(Struct, frozen=True):
    """A lender of a borrowed term."""

    name: Annotated[
        str, Meta(description="As the pool shows it to you; `operator`: capacity of nobody.")
    ]
    weight: Annotated[Whole, Meta(description="A whole number.")]
    is_you: bool


class InstantRow(Struct, frozen=True):
    """Lendable idle quota of one instant, in GPUs."""

    own: Int
    total: Int


class IncomeRow(Struct, frozen=True, kw_only=True):
    """A share that a tenant earned of a borrowed term, with all its factors."""

    tenant: str = ""
    pool: str = ""
    gpu_type: str
    round: TermRound
    starts_at: InstantUs
    ends_at: InstantUs
    gpus: Annotated[Int, Meta(description="Borrowed.")]
    price: Amount
    carried: Annotated[
        Int | None,
        Meta(
            description="As of usage: in 1/3,600,000,000 of a micro-credit. null: from before"
            " remainders were carried; then weights are integrals of idle quota, in"
            " GPU-microseconds."
        ),
    ]
    charge: Annotated[
        Amount,
        Meta(
            description="gpus x price x time + carried, to the nearest micro-credit. The borrower"
            " paid it less `borne`."
        ),
    ]
    weight: Annotated[Whole, Meta(description="The tenant's own, a whole number.")]
    weights: Annotated[Whole, Meta(description="The sum of all lenders' weights.")]
    lenders: Annotated[
        tuple[LenderRow, ...] | None,
        Meta(
            description="All lenders in the order in which equal remainders of the split go. null:"
            " the pool hides other tenants."
        ),
    ]
    rounded_up: Annotated[
        bool,
        Meta(
            description="Whether one of the micro-credits that rounding down had left went to the"
            " tenant."
        ),
    ]
    earned: Annotated[
        Amount, Meta(description="charge x weight / weights, by the largest remainder.")
    ]
    counts_from: Annotated[
        InstantUs | None,
        Meta(
            description="Idle quota from here on is in the weight: `starts_at`, or later where"
            " that was reported late. null: no event closes the term."
        ),
    ]
    counts_until: InstantUs | None
    idle_then: Annotated[
        InstantRow | None,
        Meta(
            description="Idle quota of the instant that decides, where nothing is between the two."
        ),
    ]
    hour: SettledHour
    transfer: Annotated[Uid | None, Meta(description="null: not settled, or a charge of 0.")]
    charged_until: ChargedUntil = None
    # None only for a portal from before `borne` was published.
    borne: Annotated[
        Amount | None,
        Meta(
            description="What of `charge` the operator paid, because rounds were late.",
            extra_json_schema={"nullable": False},
        ),
    ] = None
    earned_borne: Annotated[
        Amount | None,
        Meta(
            description="What of `earned` the operator paid: `borne` split by what lenders earned,"
            " by the largest remainder.",
            extra_json_schema={"nullable": False},
        ),
    ] = None
    borrower: Annotated[str | None, Meta(description="null: the pool hides it.")] = None
    lease: Annotated[Int | None, Meta(description="null: the pool hides its borrower.")] = None
    term: Int | None = None


class IdleRow(Struct, frozen=True):
    """Lendable idle quota in GPUs, from an instant until the next row of its GPU type."""

    gpu_type: str
    at: InstantUs
    own: Annotated[Int, Meta(description="Of the tenant.")]
    total: Annotated[Int, Meta(description="Of all lenders together, the operator with them.")]


class EntryRow(Struct, frozen=True, kw_only=True):
    """The entries of a transfer on a tenant's account."""

    transfer: Uid
    code: Annotated[
        str,
        Meta(extra_json_schema={"enum": ["usage", "allowance", "transfer", "correction"]}),
    ]
    pool: str = ""
    hour: Annotated[InstantUs | None, Meta(description="The hour that it settles.")]
    effective_at: InstantUs
    posted_at: Annotated[InstantUs, Meta(description="Of real time.")] = InstantUs(0)
    corrects: Uid | None = None
    paid: Amount
    earned: Amount
    # None only for a portal from before `earned_borne` was published.
    earned_borne: Annotated[
        Amount | None,
        Meta(
            description="What of `earned` the operator paid, because rounds were late.",
            extra_json_schema={"nullable": False},
        ),
    ] = None
