"""Prices, usage, and what jobs cost, for the REST API."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import Sum
from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from billing.models import Book, UsageLine
from billing.selectors import PostedPricePoint, has_prices, posted_prices, prices_now
from billing.selectors.statements import HOUR
from billing.selectors.usage import line_transfer, term_round
from scheduling.api.base import SchedulingView
from scheduling.api.schemas import PAGE_QUERY, POOL, SINCE, TENANT, UNTIL, Credits
from scheduling.engine.clock import read_clock
from scheduling.models import Job
from scheduling.selectors.capacity import type_capacities
from scheduling.selectors.lines import PoolFacts
from scheduling.selectors.price_forecasts import (
    PriceForecastView,
    no_forecast,
    price_forecasts,
)
from tenants.answers import credits_text
from tenants.api.cursors import make_cursor, read_cursor, read_limit
from tenants.api.problems import bad_field, not_there
from tenants.api.times import read_time, time_text
from tenants.models import Tenant
from tenants.permissions import Action
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


class PriceRow(s.Serializer[object]):
    """What a borrowed GPU-hour of a type costs from a round on, and the use it came from."""

    pool = s.CharField()
    gpu_type = s.CharField()
    price = Credits()
    currency = s.CharField()
    used = s.IntegerField()
    capacity = s.IntegerField()
    base = Credits()
    theta = s.CharField()
    queued = s.IntegerField(allow_null=True, help_text="GPUs queued for borrowing, where they add.")
    surcharge = Credits(allow_null=True, help_text="What the queue adds; it is in the price.")
    surcharge_step = s.CharField(allow_null=True, help_text="Of the base, per round at most.")
    surcharge_cap = s.CharField(allow_null=True, help_text="Times the base, at most.")
    valid_from_round = s.IntegerField()
    posted_at = s.DateTimeField()


class PricePage(s.Serializer[object]):
    """Prices of pools."""

    results = PriceRow(many=True)
    next = s.CharField(allow_null=True)


class ForecastInstant(s.Serializer[object]):
    """Quantiles of the price in force at an instant of pool time."""

    at = s.DateTimeField()
    p10 = Credits()
    p50 = Credits()
    p90 = Credits()


class PriceForecastRow(s.Serializer[object]):
    """The newest forecast of a GPU type's price."""

    pool = s.CharField()
    gpu_type = s.CharField()
    round = s.IntegerField(allow_null=True, help_text="The last round before it.")
    at = s.DateTimeField(allow_null=True)
    points = ForecastInstant(many=True)
    reason = s.CharField(help_text="Why there are no points; empty where there are.")
    counted = s.IntegerField(help_text="Instants of earlier forecasts that have passed.")
    hits = s.IntegerField(help_text="Of these, at how many the price was from p10 to p90.")


class PriceForecastPage(s.Serializer[object]):
    """Forecasts of a pool's prices."""

    results = PriceForecastRow(many=True)
    next = s.CharField(allow_null=True)


class UsageRow(s.Serializer[object]):
    """GPU-time of one lease term, own or borrowed."""

    tenant = s.CharField()
    pool = s.CharField()
    job = s.UUIDField()
    lease = s.IntegerField()
    term = s.IntegerField()
    round = s.IntegerField(
        allow_null=True,
        help_text="The round that granted or renewed the term: its price is the one posted for it.",
    )
    meter = s.ChoiceField(["own", "borrowed"])
    gpu_type = s.CharField()
    gpus = s.IntegerField()
    price = Credits()
    starts_at = s.DateTimeField()
    ends_at = s.DateTimeField()
    amount = Credits()
    carried = s.IntegerField(
        allow_null=True,
        help_text="The remainder that the amount took over from the lease's terms before, in"
        " 1/3,600,000,000 of a micro-credit; null: own GPUs, or from before remainders were"
        " carried. amount = gpus x price x time + carried, to the nearest micro-credit.",
    )
    charged_until = s.DateTimeField(
        allow_null=True,
        help_text="The end of the time that the amount is for, if rounds were late for the term:"
        " its expiry, or the end of its minimum runtime. null: `ends_at`.",
    )
    borne = Credits(
        help_text="What the operator paid the lenders for the rest of the time; no part of the"
        " amount."
    )
    hour = s.DateTimeField(help_text="The first instant of the hour that it is settled in.")
    transfer = s.UUIDField(
        allow_null=True, help_text="null: not settled yet, or nothing to pay for it."
    )


class UsagePage(s.Serializer[object]):
    """A page of usage."""

    results = UsageRow(many=True)
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
            currencies = {facts.book: Charges().currency(facts.book) for facts in pools}
            rows = [
                _price(point, facts, currencies[facts.book])
                for facts in pools
                for point in prices_now(facts.id)
            ]
        return Response({"results": rows, "next": None})


class PriceHistory(SchedulingView):
    """What was posted for a GPU type, round by round."""

    query: ClassVar[tuple[str, ...]] = ("since", "until", "cursor", "limit")

    @extend_schema(
        operation_id="price_history",
        responses={200: PricePage},
        parameters=[SINCE, UNTIL, *PAGE_QUERY],
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
            currency = Charges().currency(facts.book)
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
        rows = [_price(point, facts, currency) for point in shown]
        return Response({"results": rows, "next": following})


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
        rows = [_forecast(made.get(one) or no_forecast(one), facts) for one in names]
        return Response({"results": rows, "next": None})


class UsageList(SchedulingView):
    """What a tenant used."""

    query: ClassVar[tuple[str, ...]] = ("tenant", "pool", "since", "until", "cursor", "limit")

    @extend_schema(
        operation_id="usage_list",
        responses={200: UsagePage},
        parameters=[TENANT, POOL, SINCE, UNTIL, *PAGE_QUERY],
    )
    def get(self, request: Request) -> Response:
        """List a tenant's usage by term, newest first; amounts sum to what it is charged.

        A term counts in [`since`, `until`) when its hour of pool time closes in it, as its
        transfer does.
        """
        tenant = self._tenant()
        key, limit = read_cursor(request, "usage"), read_limit(request)
        lines = UsageLine.objects.filter(tenant=tenant, **self._asked(request)).order_by("-id")
        if key:
            lines = lines.filter(id__lt=key[0])
        with tenant_scope(tenant.pk):
            related = lines.select_related("pool", "job", "lease", "gpu_type")
            full = related.annotate(round=term_round(), transfer=line_transfer())
            page = list(full[: limit + 1])
        rows = [_usage(line, tenant, line.round, line.transfer) for line in page[:limit]]
        more = make_cursor("usage", page[limit - 1].pk) if len(page) > limit else None
        return Response({"results": rows, "next": more})

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

    def _tenant(self) -> Tenant:
        tenant = self.filtered_tenant(Action.SEE_MONEY)
        if tenant is not None:
            return tenant
        if len(self.access.memberships) != 1:
            raise bad_field("tenant", "is required", "Name one of your tenants.")
        return self.tenant(self.access.memberships[0].slug, Action.SEE_MONEY, seen=Action.SEE_MONEY)


def _price(point: PostedPricePoint, facts: PoolFacts, currency: str) -> dict[str, Any]:
    return {
        "pool": facts.name,
        "gpu_type": point.gpu_type,
        "price": credits_text(point.price),
        "currency": currency,
        "used": point.used,
        "capacity": point.capacity,
        "base": credits_text(point.base),
        "theta": str(point.theta),
        "queued": point.queued,
        "surcharge": None if point.surcharge is None else credits_text(point.surcharge),
        "surcharge_step": None if point.surcharge_step is None else str(point.surcharge_step),
        "surcharge_cap": None if point.surcharge_cap is None else str(point.surcharge_cap),
        "valid_from_round": point.valid_from_round,
        "posted_at": time_text(point.posted_at),
    }


def _forecast(view: PriceForecastView, facts: PoolFacts) -> dict[str, Any]:
    return {
        "pool": facts.name,
        "gpu_type": view.gpu_type,
        "round": view.round,
        "at": None if view.at is None else time_text(view.at),
        "points": [
            {
                "at": time_text(point.at),
                "p10": credits_text(point.p10),
                "p50": credits_text(point.p50),
                "p90": credits_text(point.p90),
            }
            for point in view.points
        ],
        "reason": view.reason,
        "counted": view.counted,
        "hits": view.hits,
    }


def _usage(
    line: UsageLine, tenant: Tenant, round_: int | None, transfer: UUID | None
) -> dict[str, Any]:
    job: Job = line.job
    return {
        "tenant": tenant.slug,
        "pool": line.pool.name,
        "job": str(job.uid),
        "lease": line.lease.number,
        "term": line.term,
        "round": round_,
        "meter": line.meter,
        "gpu_type": line.gpu_type.name,
        "gpus": line.gpus,
        "price": credits_text(line.price),
        "starts_at": time_text(line.starts_at),
        "ends_at": time_text(line.ends_at),
        "amount": credits_text(line.amount),
        "carried": line.carried,
        "charged_until": time_text(line.charged_until),
        "borne": credits_text(line.borne),
        "hour": time_text(line.hour),
        "transfer": str(transfer) if transfer else None,
    }
