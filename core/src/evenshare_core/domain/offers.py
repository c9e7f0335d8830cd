"""What a tenant lends and borrows of its own will, within what its quota allows.

A quota has a mode and limits, which an operator sets: they are bounds. Its tenant may be stricter
in its own settings, and may lend by offers alone: so many GPUs, for a floor price or more. What
holds in a round is the stricter of both, at the price posted for the round (`narrow`), and stands
in the snapshot's entitlements: policies, billing and replays read nothing else.

Source: docs/adr/0168-by-when-lent-gpus-are-back.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from evenshare_core.domain.entitlements import Entitlement, Mode

# From the strictest to the freest.
_FREEDOM = {Mode.RESERVE: 0, Mode.LEND: 1, Mode.LEND_AND_BORROW: 2}


class Offer(NamedTuple):
    """GPUs of idle quota that are lent while the posted price is `floor_micro` or more."""

    gpus: int
    floor_micro: int

    def lends_at(self, price_micro: int) -> bool:
        """Whether it lends at a posted price, in micro-credits per GPU-hour."""
        return self.floor_micro <= price_micro


class OwnSharing(NamedTuple):
    """A tenant's own settings for its quota of a GPU type; limits in GPUs, None: no limit.

    `by_offer`: idle quota is lent by offers alone; else as it is.
    """

    mode: Mode = Mode.LEND_AND_BORROW
    borrow_limit: int | None = None
    lend_limit: int | None = None
    by_offer: bool = False


def offered(offers: Iterable[Offer], price_micro: int) -> int:
    """Return the GPUs of the offers that lend at this price, idle or not."""
    return sum(offer.gpus for offer in offers if offer.lends_at(price_micro))


def narrow(
    bounds: Entitlement, own: OwnSharing, offers: Iterable[Offer], price_micro: int
) -> Entitlement:
    """Return what holds of a quota: the stricter of its bounds and its tenant's own settings.

    `offers`: those that stand, which count only where the settings lend by offer; `price_micro`:
    posted for the round. GPUs stay as they are.
    """
    lend_limit = _lower(bounds.lend_limit, own.lend_limit)
    if own.by_offer:
        lend_limit = _lower(lend_limit, offered(offers, price_micro))
    return replace(
        bounds,
        mode=min(bounds.mode, own.mode, key=_FREEDOM.__getitem__),
        borrow_limit=_lower(bounds.borrow_limit, own.borrow_limit),
        lend_limit=lend_limit,
    )


def lower_price(of_job: int | None, of_tenant: int | None) -> int | None:
    """Return the highest price that a job pays: its own or its tenant's; None without either."""
    return _lower(of_job, of_tenant)


def back_by_us(
    ends_us: Iterable[int], *, at_us: int, round_us: int, notice_us: int, within_us: int | None
) -> int:
    """Return by when GPUs that are not lent any more are back, in us of pool time.

    `ends_us`: when the present terms of the leases that borrow end: none of them goes on into
    quota that is kept, so the round after the last one has them all, once its process has saved
    its state (`notice_us`). `within_us`: where the policy ends running leases for a tenant below
    its quota, the longest that its job waits for that; None: it does not.
    """
    last_us = max(ends_us, default=None)
    if last_us is None:
        return at_us
    by_terms_us = max(last_us, at_us) + round_us + notice_us
    return by_terms_us if within_us is None else min(by_terms_us, at_us + within_us)


def _lower(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
