"""A tenant's own settings for lending and borrowing, within the bounds of its quota.

A quota's mode and limits are bounds that an operator sets. Its tenant may be stricter, and may lend
only by offers: a number of GPUs, for a floor price or more. In a round the stricter of both
applies, at the price posted for the round (`narrow`). The snapshot's entitlements contain the
result; policies, billing and replays read nothing else.

Source: docs/money.md.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from evenshare_core.domain.entitlements import Entitlement, Mode

# From the strictest mode to the freest.
_FREEDOM = {Mode.RESERVE: 0, Mode.LEND: 1, Mode.LEND_AND_BORROW: 2}


class Offer(NamedTuple):
    """An offer of idle GPUs of a quota, open while the posted price is at least `floor_micro`."""

    gpus: int
    floor_micro: int

    def lends_at(self, price_micro: int) -> bool:
        """Return whether the offer lends at a posted price, in micro-credits per GPU-hour."""
        return self.floor_micro <= price_micro


class OwnSharing(NamedTuple):
    """A tenant's own settings for its quota of a GPU type; limits in GPUs, `None` is unlimited.

    If `by_offer`, idle quota is lent only by offers; else all idle quota is lent.
    """

    mode: Mode = Mode.LEND_AND_BORROW
    borrow_limit: int | None = None
    lend_limit: int | None = None
    by_offer: bool = False


def offered(offers: Iterable[Offer], price_micro: int) -> int:
    """Return how many GPUs the offers make available at this price, idle or not."""
    return sum(offer.gpus for offer in offers if offer.lends_at(price_micro))


def narrow(
    bounds: Entitlement, own: OwnSharing, offers: Iterable[Offer], price_micro: int
) -> Entitlement:
    """Return the entitlement: the stricter of the quota's bounds and the tenant's own settings.

    `offers` are the open ones; they are ignored unless the settings lend by offer. `price_micro` is
    the price posted for the round. The GPUs of the quota do not change.
    """
    lend_limit = lower_limit(bounds.lend_limit, own.lend_limit)
    if own.by_offer:
        lend_limit = lower_limit(lend_limit, offered(offers, price_micro))
    return replace(
        bounds,
        mode=min(bounds.mode, own.mode, key=_FREEDOM.__getitem__),
        borrow_limit=lower_limit(bounds.borrow_limit, own.borrow_limit),
        lend_limit=lend_limit,
    )


def back_by_us(
    ends_us: Iterable[int], *, at_us: int, round_us: int, notice_us: int, within_us: int | None
) -> int:
    """Return the pool time by which GPUs that are no longer lent are back, in us.

    `ends_us` are the ends of the current terms of borrowing leases. A lease is not renewed on quota
    that is not lent. So the GPUs are back by the round after the last end, plus the notice
    (`notice_us`) for saving state. `within_us` is the longest wait of a job if the policy preempts
    for tenants below quota; `None` if it does not preempt.
    """
    last_us = max(ends_us, default=None)
    if last_us is None:
        return at_us
    by_terms_us = max(last_us, at_us) + round_us + notice_us
    return by_terms_us if within_us is None else min(by_terms_us, at_us + within_us)


def lower_limit(one: int | None, other: int | None) -> int | None:
    """Return the lower of two limits; None if neither is set."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
