"""Requests of a tenant for its own quota: lending and borrowing, maximum price, offers."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, ClassVar

from django.utils.translation import gettext as _
from msgspec import Meta

from evenshare_core.domain.entitlements import Mode
from evenshare_core.domain.offers import OwnSharing
from evenshare_core.units import COUNT_MAX
from tenants.input.errors import FieldErrors
from tenants.input.readers import NOT_AMOUNT
from tenants.input.requests import Input, Request
from tenants.requests import MODES, GpuCount


def _read_by_offer(given: Mapping[str, object], errors: FieldErrors) -> bool:
    value = given.get("by_offer", False)
    if isinstance(value, bool):
        return value
    errors.add(
        "by_offer", _("must be true or false"), _("true: idle quota is lent only by offers.")
    )
    return False


class SharingRequest(Request, frozen=True, kw_only=True):
    """A tenant's settings for one GPU type; stricter bounds of the quota take precedence."""

    NOUN: ClassVar[str] = "these settings"
    NULL_IS_ABSENT: ClassVar[bool] = False

    mode: Annotated[
        str,
        Meta(description="Whether the tenant lends idle quota and whether it borrows."),
        Input(
            label="Mode",
            choices=MODES,
            complaint="is not a mode",
            advice=f"Choose one of {', '.join(MODES)}.",
        ),
    ] = Mode.LEND_AND_BORROW.value
    borrow_limit: Annotated[
        GpuCount | None,
        Meta(description="Maximum number of borrowed GPUs; null: the operator's limit."),
        Input(label="Borrows at most", unit="GPUs", hint="Empty: the operator's limit."),
    ] = None
    lend_limit: Annotated[
        GpuCount | None,
        Meta(description="Maximum number of idle GPUs to lend; null: the operator's limit."),
        Input(label="Lends at most", unit="GPUs", hint="Empty: the operator's limit."),
    ] = None
    by_offer: Annotated[
        bool,
        Meta(description="Whether its idle quota is lent only by its offers, or at any price."),
        Input(label="Lend idle quota", read=_read_by_offer),
    ] = False

    @property
    def own(self) -> OwnSharing:
        """The settings in the form that rounds read."""
        return OwnSharing(Mode(self.mode), self.borrow_limit, self.lend_limit, self.by_offer)


class PriceLimitRequest(Request, frozen=True, kw_only=True):
    """The maximum price of all jobs of a tenant in a pool."""

    NOUN: ClassVar[str] = "a price limit"
    NULL_IS_ABSENT: ClassVar[bool] = False

    max_price: Annotated[
        Decimal | None,
        Meta(
            description="Maximum price in credits per borrowed GPU-hour for all jobs without a"
            " lower one; null: no limit."
        ),
        Input(
            label="Maximum price of all jobs",
            unit="credits / GPU-h",
            hint="For borrowed GPUs, unless a job has a lower maximum. Empty: no limit.",
            complaint=NOT_AMOUNT,
            advice='Credits per GPU-hour as a text, such as "0.25", or null for no limit.',
        ),
    ]


class PeopleRule(StrEnum):
    """The order of a tenant's jobs at the tenant's places."""

    FIRST_COME = "first_come"
    EQUAL = "equal"  # first the person with the fewest GPUs


class PeopleRequest(Request, frozen=True, kw_only=True):
    """The order of a tenant's people at its places in the queue of a pool."""

    NOUN: ClassVar[str] = "a share of people"

    people: Annotated[
        str,
        Meta(
            max_length=16,
            description="first_come: jobs keep the order of arrival. equal: at the same places, the"
            " person with the fewest GPUs comes first.",
        ),
        Input(label="People of the tenant", choices=tuple(PeopleRule)),
    ]


class OfferRequest(Request, frozen=True, kw_only=True):
    """An offer of idle quota in the pool that the URL names."""

    NOUN: ClassVar[str] = "an offer"

    gpu_type: Annotated[
        str,
        Meta(min_length=1, max_length=31, description="A GPU type of which the tenant has quota."),
        Input(label="GPU type", complaint="is not a GPU type", is_shown=True),
    ]
    gpus: Annotated[
        int,
        Meta(ge=1, le=COUNT_MAX, description="Maximum number of idle GPUs to lend."),
        Input(label="GPUs", hint="GPUs that are lent while they are idle.", is_shown=True),
    ]
    floor_price: Annotated[
        Decimal,
        Meta(
            description="Lowest posted price per GPU-hour, in credits, at which they are lent;"
            " 0: any price."
        ),
        Input(
            label="Floor price",
            unit="credits / GPU-h",
            hint="While the posted price is below it, nothing is lent.",
        ),
    ] = Decimal(0)
    until: Annotated[
        datetime | None,
        Meta(description="When it ends, in pool time; by default when it is revoked."),
        Input(label="Until", hint="In UTC of the pool's clock. Empty: until revoked."),
    ] = None
