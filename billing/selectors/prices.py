"""Read-only queries of posted prices for pages."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from django.db.models import CharField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from billing.models import Book, PostedPrice
from scheduling.models import GpuType, Node, Pool
from tenants.answers import Answer, about, formatted_as
from tenants.sql import fetch_rows

Factor = Annotated[Decimal, formatted_as(str, type="string")]


class PriceRow(Answer, frozen=True):
    """The price of a borrowed GPU-hour of a type from a round on, and the GPU use behind it."""

    pool: str
    gpu_type: str
    price: Decimal
    currency: str
    used: int
    capacity: int
    base: Decimal
    theta: Factor
    queued: Annotated[int | None, about("GPUs queued for borrowing, if they add a surcharge.")]
    surcharge: Annotated[Decimal | None, about("Surcharge for queued GPUs, included in the price.")]
    surcharge_step: Annotated[
        Factor | None, about("Maximum change per round, in percent of the base.")
    ]
    surcharge_cap: Annotated[Factor | None, about("Maximum surcharge, in multiples of the base.")]
    valid_from_round: int
    posted_at: datetime


def prices_now(pool_id: int) -> list[PriceRow]:
    """Return the last posted price of each GPU type of a pool, slowest first, with one query."""
    # A single index lookup per type: a pool may have millions of prices.
    of_type = PostedPrice.objects.filter(pool_id=pool_id, gpu_type=OuterRef("pk"))
    latest = of_type.order_by("-posted_at", "-valid_from_round").values("pk")[:1]
    chosen = GpuType.objects.annotate(price=Subquery(latest)).filter(price__isnull=False)
    points = PostedPrice.objects.filter(pk__in=chosen.values("price"))
    return _rows(pool_id, points.order_by("gpu_type__rank", "gpu_type__name"))


def price_history(
    pool_id: int, gpu_type: str, *, since: datetime, until: datetime, points: int = 300
) -> list[PriceRow]:
    """Return prices posted in [since, until), oldest first; at most `points`. Two queries.

    If there are more, the range is split into `points` equal intervals, and the last price in each
    is returned. Posted prices are never averaged. Each interval is one index lookup, so a year of
    rounds takes no longer than a day.
    """
    rows = fetch_rows(
        """
        WITH span AS (
            SELECT %(since)s::timestamptz AS since,
                   (%(until)s::timestamptz - %(since)s::timestamptz) / %(points)s AS step
        )
        SELECT price.id
        FROM span
        CROSS JOIN generate_series(1, %(points)s) stretch
        CROSS JOIN LATERAL (
            SELECT p.id FROM billing_postedprice p
            WHERE p.pool_id = %(pool)s
              AND p.gpu_type_id = (SELECT id FROM scheduling_gputype WHERE name = %(type)s)
              AND p.posted_at >= span.since + (stretch - 1) * span.step
              AND p.posted_at < CASE WHEN stretch = %(points)s THEN %(until)s::timestamptz
                                     ELSE span.since + stretch * span.step END
            ORDER BY p.posted_at DESC LIMIT 1
        ) price
        """,
        {
            "since": since,
            "until": until,
            "points": points,
            "pool": pool_id,
            "type": gpu_type,
        },
    )
    chosen = [price for (price,) in rows]
    return _rows(pool_id, PostedPrice.objects.filter(pk__in=chosen).order_by("posted_at"))


def posted_prices(
    pool_id: int,
    gpu_type: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    before_round: int | None = None,
    limit: int = 50,
) -> list[PriceRow]:
    """Return prices posted in [since, until), newest first, at most `limit`, with one query.

    `before_round`: only prices valid from an earlier round on.
    """
    # The filter uses the type's key: by name, the query would read and sort all prices.
    type_id = GpuType.objects.filter(name=gpu_type).values("pk")[:1]
    prices = PostedPrice.objects.filter(pool_id=pool_id, gpu_type_id=type_id)
    if since is not None:
        prices = prices.filter(posted_at__gte=since)
    if until is not None:
        prices = prices.filter(posted_at__lt=until)
    if before_round is not None:
        prices = prices.filter(valid_from_round__lt=before_round)
    return _rows(pool_id, prices.order_by("-valid_from_round")[:limit])


def price_in_round(pool_id: int, gpu_type: str, number: int) -> list[PriceRow]:
    """Return the price that terms of a round pay, and the price before that, with one query.

    The list is shorter if fewer were posted.
    """
    return posted_prices(pool_id, gpu_type, before_round=number + 1, limit=2)


def every_price(
    pool_id: int, *, since: datetime, until: datetime, gpu_type: str = "", limit: int
) -> list[PriceRow]:
    """Return the first `limit` prices posted in [since, until), oldest first, with one query.

    If `gpu_type` is empty, prices of all types are returned.
    """
    prices = PostedPrice.objects.filter(pool_id=pool_id, posted_at__gte=since, posted_at__lt=until)
    if gpu_type:
        prices = prices.filter(gpu_type__name=gpu_type)
    return _rows(pool_id, prices.order_by("posted_at", "gpu_type__name")[:limit])


def has_prices(pool_id: int, gpu_type: str) -> bool:
    """Return whether the pool posts prices of the type, or ever did. At most two queries.

    Prices of a new pool's types are posted after its first round.
    """
    has_nodes = Node.objects.filter(pool_id=pool_id, gpu_type__name=gpu_type).exists()
    posted = PostedPrice.objects.filter(pool_id=pool_id, gpu_type__name=gpu_type)
    return has_nodes or posted.exists()


def _rows(pool_id: int, prices: QuerySet[PostedPrice]) -> list[PriceRow]:
    pool = Pool.objects.filter(pk=pool_id)
    book = Book.objects.filter(slug=Subquery(pool.values("book")[:1]))
    rows = prices.annotate(
        named=Subquery(pool.values("name")[:1]),
        currency=Coalesce(
            Subquery(book.values("currency")[:1]),
            Subquery(pool.values("book")[:1]),
            output_field=CharField(),
        ),
    ).values_list(
        *("named", "gpu_type__name", "price", "currency", "used", "capacity", "base", "theta"),
        *("queued", "surcharge", "surcharge_step", "surcharge_cap"),
        *("valid_from_round", "posted_at"),
    )
    return [PriceRow(*row) for row in rows]
