"""REST answers about a tenant's money in a pool, from which a statement is verified.

The portal makes these structs from its tables, REST writes them as docs/api.md documents, and
`evenshare_core.verification.statement_rows` reads them again. Fields with a default are not needed
for verification, or older portals do not return them.
"""

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


# In a lender's rows: until when the borrower was charged.
ChargedUntil = Annotated[
    InstantUs | None,
    Meta(
        description="The end of the time for which the borrower was charged, if rounds were"
        " late for the term. null: the end of the term."
    ),
]
TermRound = Annotated[
    Int | None,
    Meta(
        description="The round that granted or renewed the term; the term has the price"
        " posted for this round."
    ),
]
SettledHour = Annotated[
    InstantUs, Meta(description="The start of the hour in which it is settled.")
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
            description="The remainder carried over from the lease's previous terms, in"
            " 1/3,600,000,000 of a micro-credit. null: own GPUs, or a term from"
            " before remainders were carried. amount = gpus x price x time +"
            " carried, to the nearest micro-credit."
        ),
    ]
    charged_until: Annotated[
        InstantUs | None,
        Meta(
            description="The end of the charged time, if rounds were late for the term: its"
            " expiry, or the end of its minimum runtime. null: `ends_at`."
        ),
    ] = None
    borne: Annotated[
        Amount,
        Meta(
            description="What the operator paid the lenders for the rest of the time; not"
            " included in the amount."
        ),
    ] = Amount(0)
    hour: SettledHour
    transfer: Annotated[Uid | None, Meta(description="null: not settled yet, or nothing to pay.")]

    @property
    def charged_us(self) -> int:
        """The time to which the amount applies; in a wrong row it may be negative or too long."""
        until_us = self.ends_at if self.charged_until is None else self.charged_until
        return until_us - self.starts_at


class LenderRow(Struct, frozen=True):
    """A lender of a borrowed term."""

    name: Annotated[
        str,
        Meta(
            description="The name that the pool shows to you; `operator` for unallocated capacity."
        ),
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
            description="As in usage rows, in 1/3,600,000,000 of a micro-credit. null: a term"
            " from before remainders were carried; its weights are integrals of"
            " idle quota, in GPU-microseconds."
        ),
    ]
    charge: Annotated[
        Amount,
        Meta(
            description="gpus x price x time + carried, to the nearest micro-credit. The borrower"
            " paid it less `borne`."
        ),
    ]
    weight: Annotated[Whole, Meta(description="The weight of this tenant, a whole number.")]
    weights: Annotated[Whole, Meta(description="The sum of all lenders' weights.")]
    lenders: Annotated[
        tuple[LenderRow, ...] | None,
        Meta(
            description="All lenders, in the order that decides between equal remainders of the"
            " split. null: the pool hides other tenants."
        ),
    ]
    rounded_up: Annotated[
        bool,
        Meta(
            description="Whether the tenant got one of the micro-credits that were left after"
            " rounding down."
        ),
    ]
    earned: Annotated[
        Amount, Meta(description="charge x weight / weights, by the largest remainder.")
    ]
    counts_from: Annotated[
        InstantUs | None,
        Meta(
            description="The time from which idle quota counts for the weight: `starts_at`, or"
            " later if the start was reported late. null: no event closes the term."
        ),
    ]
    counts_until: InstantUs | None
    idle_then: Annotated[
        InstantRow | None,
        Meta(
            description="Idle quota at `counts_from`, if `counts_until` is the same time; the"
            " weight follows from it. null: the weight follows from all idle quota between the two"
            " times."
        ),
    ]
    hour: SettledHour
    transfer: Annotated[Uid | None, Meta(description="null: not settled, or a charge of 0.")]
    charged_until: ChargedUntil = None
    # None only for a portal from before `borne` was published.
    borne: Annotated[
        Amount | None,
        Meta(
            description="The part of `charge` that the operator paid, because rounds were late.",
            extra_json_schema={"nullable": False},
        ),
    ] = None
    earned_borne: Annotated[
        Amount | None,
        Meta(
            description="The part of `earned` that the operator paid: `borne`, split in"
            " proportion to what lenders earned, by the largest remainder.",
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
    total: Annotated[Int, Meta(description="Of all lenders together, including the operator.")]


class LateStartRow(Struct, frozen=True, kw_only=True):
    """A promised start that was late, with all factors of its credit."""

    tenant: str
    job: Uid
    gpu_type: str
    gpus: Annotated[Int, Meta(description="The promised GPUs.")]
    rate: Annotated[
        Amount,
        Meta(description="Credits per GPU-hour, an option of the round that made the promise."),
    ]
    latest_at: Annotated[InstantUs, Meta(description="The promised latest start.")]
    until: Annotated[
        InstantUs, Meta(description="When the job started or, if it did not, stopped waiting.")
    ]
    started: bool
    promised_round: Annotated[Int, Meta(description="The round that made the promise.")]
    round: Annotated[Int, Meta(description="The round that found the start late.")]


class EntryRow(Struct, frozen=True, kw_only=True):
    """The entries of a transfer on a tenant's account."""

    transfer: Uid
    code: Annotated[
        str,
        Meta(
            extra_json_schema={
                "enum": ["usage", "allowance", "transfer", "correction", "late_start"]
            }
        ),
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
            description="The part of `earned` that the operator paid, because rounds were late.",
            extra_json_schema={"nullable": False},
        ),
    ] = None
    late_start: Annotated[
        LateStartRow | None,
        Meta(description="The late start that the operator credits; null: another transfer."),
    ] = None
