"""Posted prices for pages. Nothing here writes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db import connection

from billing.models import PostedPrice


@dataclass(frozen=True, slots=True)
class PostedPricePoint:
    """The price of a GPU-hour that was posted at an instant, and the use it came from."""

    gpu_type: str
    price: Decimal
    used: int
    capacity: int
    base: Decimal
    theta: Decimal
    valid_from_round: int
    posted_at: datetime


def prices_now(pool_id: int) -> list[PostedPricePoint]:
    """Return the last posted price of each GPU type of a pool, slowest type first. One query."""
    latest = (
        PostedPrice.objects.filter(pool_id=pool_id)
        .select_related("gpu_type")
        .order_by("gpu_type_id", "-posted_at", "-valid_from_round")
        .distinct("gpu_type_id")
    )
    slowest_first = sorted(latest, key=lambda row: (row.gpu_type.rank, row.gpu_type.name))
    return list(map(_point, slowest_first))


def price_history(
    pool_id: int, gpu_type: str, *, since: datetime, until: datetime, points: int = 300
) -> list[PostedPricePoint]:
    """Return prices posted in [since, until), oldest first; at most `points`. Two queries.

    Where there are more, the last one of each of `points` equal stretches of time stands for
    its stretch: a posted price is never averaged.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT DISTINCT ON (stretch) price.id
            FROM billing_postedprice price
            JOIN scheduling_gputype type ON type.id = price.gpu_type_id
            CROSS JOIN LATERAL width_bucket(
                extract(epoch FROM price.posted_at), extract(epoch FROM %s::timestamptz),
                extract(epoch FROM %s::timestamptz), %s
            ) stretch
            WHERE price.pool_id = %s AND type.name = %s
              AND price.posted_at >= %s AND price.posted_at < %s
            ORDER BY stretch, price.posted_at DESC
            """,
            [since, until, points, pool_id, gpu_type, since, until],
        )
        chosen = [price for (price,) in cursor.fetchall()]
    prices = PostedPrice.objects.filter(pk__in=chosen).select_related("gpu_type")
    return [_point(price) for price in prices.order_by("posted_at")]


def posted_prices(
    pool_id: int,
    gpu_type: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    before_round: int | None = None,
    limit: int = 50,
) -> list[PostedPricePoint]:
    """Return prices posted in [since, until), newest first, at most `limit`. One query.

    `before_round`: those that are valid from earlier rounds on.
    """
    prices = PostedPrice.objects.filter(pool_id=pool_id, gpu_type__name=gpu_type)
    if since is not None:
        prices = prices.filter(posted_at__gte=since)
    if until is not None:
        prices = prices.filter(posted_at__lt=until)
    if before_round is not None:
        prices = prices.filter(valid_from_round__lt=before_round)
    newest = prices.select_related("gpu_type").order_by("-valid_from_round")
    return [_point(price) for price in newest[:limit]]


def has_prices(pool_id: int, gpu_type: str) -> bool:
    """Whether a price of the type was ever posted in the pool. One query."""
    return PostedPrice.objects.filter(pool_id=pool_id, gpu_type__name=gpu_type).exists()


def _point(price: PostedPrice) -> PostedPricePoint:
    return PostedPricePoint(
        gpu_type=price.gpu_type.name,
        price=price.price,
        used=price.used,
        capacity=price.capacity,
        base=price.base,
        theta=price.theta,
        valid_from_round=price.valid_from_round,
        posted_at=price.posted_at,
    )
