"""Prices, usage, and what jobs cost, for the REST API."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, ClassVar

from django.db.models import Sum
from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from billing.models import Book, UsageLine
from billing.selectors import PriceRow, has_prices, posted_prices, prices_now
from billing.selectors.statements import HOUR
from billing.selectors.usage import usage_rows
from evenshare_core.money.rows import UsageRow
from scheduling.api.base import SchedulingView
from scheduling.api.schemas import POOL, SINCE, TENANT, UNTIL
from scheduling.engine.clock import read_clock
from scheduling.selectors.pools.capacity import type_capacities
from scheduling.selectors.sharing.price_forecasts import (
    PriceForecastRow,
    no_forecast,
    price_forecasts,
)
from tenants.answers import plain
from tenants.api.answer_schemas import answer_serializer
from tenants.api.cursors import make_cursor, read_cursor, read_limit
from tenants.api.problems import bad_field, not_there
from tenants.api.resources import PAGE
from tenants.api.times import read_time
from tenants.scopes import site_scope, tenant_scope

FIRST_YEAR = 1970


class Charges:
    """What the views of jobs show of money."""

    def charges(self, jobs: Iterable[int]) -> dict[int, Decimal]:
        """Return the sum of each job's usage lines, settled or not. One query."""
        ids = list(jobs)
        if not ids:
            return {}
        sums = UsageLine.objects.filter(job__in=ids).values("job").annotate(all=Sum("amount"))
        return {row["job"]: row["all"] for row in sums}

    def currency(self, book: str) -> str:
        """Return the word for a book's credits."""
        return Book.objects.filter(slug=book).values_list("currency", flat=True).first() or book


class PricePage(s.Serializer[object]):
    """Prices of pools."""

    results = answer_serializer(PriceRow)(many=True)
    next = s.CharField(allow_null=True)


class PriceForecastPage(s.Serializer[object]):
    """Forecasts of a pool's prices."""

    results = answer_serializer(PriceForecastRow)(many=True)
    next = s.CharField(allow_null=True)


class UsagePage(s.Serializer[object]):
    """A page of usage."""

    results = answer_serializer(UsageRow)(many=True)
    next = s.CharField(allow_null=True)


class PriceList(SchedulingView):
    """Posted prices."""

    query: ClassVar[tuple[str, ...]] = ("pool",)

    @extend_schema(operation_id="price_list", responses={200: PricePage}, parameters=[POOL])
    def get(self, request: Request) -> Response:
        """List the prices that the next round's terms pay, of one pool or of all of yours."""
        name = request.query_params.get("pool", "")
        pools = [self.pool(name)] if name else self.pools()
        with site_scope():
            rows = [row for facts in pools for row in prices_now(facts.id)]
        return Response({"results": plain(rows), "next": None})


class PriceHistory(SchedulingView):
    """What was posted for a GPU type, round by round."""

    query: ClassVar[tuple[str, ...]] = ("since", "until", "cursor", "limit")

    @extend_schema(
        operation_id="price_history",
        responses={200: PricePage},
        parameters=[SINCE, UNTIL, *PAGE],
    )
    def get(self, request: Request, name: str, gpu_type: str) -> Response:
        """List the prices posted for a GPU type, newest first, with base, theta and use of each."""
        facts, limit = self.pool(name), read_limit(request)
        route = f"prices.{facts.id}.{gpu_type}"
        key = read_cursor(request, route)
        since, until = read_time(request, "since"), read_time(request, "until")
        with site_scope():
            if gpu_type not in {one.name for one in type_capacities(facts.id)} and not has_prices(
                facts.id, gpu_type
            ):
                raise not_there()
            points = posted_prices(
                *(facts.id, gpu_type),
                since=since,
                until=until,
                before_round=key[0] if key else None,
                limit=limit + 1,
            )
        shown = points[:limit]
        more = len(points) > limit
        following = make_cursor(route, shown[-1].valid_from_round) if more else None
        return Response({"results": plain(shown), "next": following})


class PriceForecasts(SchedulingView):
    """How prices may go in the next hours."""

    query: ClassVar[tuple[str, ...]] = ()

    @extend_schema(operation_id="price_forecast", responses={200: PriceForecastPage})
    def get(self, request: Request, name: str) -> Response:  # noqa: ARG002 - DRF's signature
        """List a pool's newest price forecasts by GPU type: p10, p50 and p90 at coming instants.

        Of 19 simulated runs; `hits` of `counted` past instants had a posted price from p10 to p90.
        """
        facts = self.pool(name)
        with site_scope():
            now = read_clock(facts.id).pool_at
            made = price_forecasts(facts.id, now=now)
            names = [one.name for one in type_capacities(facts.id)]
        rows = [made.get(one) or no_forecast(facts.name, one) for one in names]
        return Response({"results": plain(rows), "next": None})


class UsageList(SchedulingView):
    """What a tenant used."""

    query: ClassVar[tuple[str, ...]] = ("tenant", "pool", "since", "until", "cursor", "limit")

    @extend_schema(
        operation_id="usage_list",
        responses={200: UsagePage},
        parameters=[TENANT, POOL, SINCE, UNTIL, *PAGE],
    )
    def get(self, request: Request) -> Response:
        """List a tenant's usage by term, newest first; amounts sum to what it is charged.

        A term counts in [`since`, `until`) when its hour of pool time closes in it, as its
        transfer does.
        """
        tenant = self.asked_tenant()
        key, limit = read_cursor(request, "usage"), read_limit(request)
        lines = UsageLine.objects.filter(tenant=tenant, **self._asked(request)).order_by("-id")
        if key:
            lines = lines.filter(id__lt=key[0])
        with tenant_scope(tenant.pk):
            page = usage_rows(lines, limit + 1)
        more = make_cursor("usage", page[limit - 1][0]) if len(page) > limit else None
        return Response({"results": [plain(row) for _, row in page[:limit]], "next": more})

    def _asked(self, request: Request) -> dict[str, Any]:
        since, until = read_time(request, "since"), read_time(request, "until")
        asked: dict[str, Any] = {}
        if request.query_params.get("pool", ""):
            asked["pool_id"] = self.query_pool().id
        for name, instant, lookup in (("since", since, "gte"), ("until", until, "lt")):
            if instant is not None:
                if instant.year <= FIRST_YEAR:
                    raise bad_field(name, "is too long ago", f"Give one after {FIRST_YEAR}.")
                asked[f"hour__{lookup}"] = instant - HOUR
        if since is not None and until is not None and since >= until:
            raise bad_field("until", "is not after `since`", "Give a later one.")
        return asked
