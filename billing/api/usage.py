"""REST views of prices, usage, and costs of jobs."""

from collections.abc import Iterable
from decimal import Decimal
from operator import itemgetter
from typing import Any

from billing.api.base import STRETCH, MoneyView
from billing.models import Book, UsageLine
from billing.selectors.prices import PriceRow, has_prices, posted_prices, prices_now
from billing.selectors.statements import HOUR
from billing.selectors.usage import job_costs, usage_rows
from evenshare_core.money.rows import UsageRow
from scheduling.api.base import SchedulingView
from scheduling.api.schemas import POOL, SINCE, UNTIL
from scheduling.engine.clock import read_clock
from scheduling.selectors.pools.capacity import type_capacities
from scheduling.selectors.sharing.price_forecasts import (
    PriceForecastRow,
    no_forecast,
    price_forecasts,
)
from tenants.api.base import Who
from tenants.api.problems import bad_field, not_there
from tenants.api.resources import PAGE, Listed, Page, page_of
from tenants.api.times import read_time
from tenants.scopes import site_scope, tenant_scope


class Charges:
    """Provides the charges for the views of jobs."""

    def charges(self, jobs: Iterable[int]) -> dict[int, Decimal]:
        """Return the sum of each job's usage lines, settled or not. A single query."""
        ids = list(jobs)
        return {job: cost.charge for job, cost in job_costs(ids).items()} if ids else {}

    def currency(self, book: str) -> str:
        return Book.objects.filter(slug=book).values_list("currency", flat=True).first() or book


class PriceList(Listed, SchedulingView):
    """List the prices that the next round's terms pay, of one pool or of all your pools."""

    address = "prices"
    operation = "price_list"
    who = Who.POOL
    row = PriceRow
    about = "Prices of pools."
    parameters = (POOL,)

    def page(self) -> Page:
        name = self.param("pool")
        pools = [self.pool(name)] if name else self.pools()
        with site_scope():
            return Page([row for facts in pools for row in prices_now(facts.id)])


class PriceHistory(Listed, SchedulingView):
    """List the prices posted for a GPU type, newest first, with base, theta and use of each."""

    address = "prices/<slug:name>/<slug:gpu_type>"
    operation = "price_history"
    who = Who.POOL
    row = PriceRow
    about = PriceList.about
    parameters = (SINCE, UNTIL, *PAGE)

    def page(self, name: str, gpu_type: str) -> Page:
        facts, limit = self.pool(name), self.limit
        before = self.before("prices", facts.id, gpu_type)
        since, until = read_time(self.request, "since"), read_time(self.request, "until")
        with site_scope():
            if not has_prices(facts.id, gpu_type):
                raise not_there()
            points = posted_prices(
                *(facts.id, gpu_type),
                since=since,
                until=until,
                before_round=before,
                limit=limit + 1,
            )
        return page_of(points, limit, lambda last: [last.valid_from_round])


class PriceForecasts(Listed, SchedulingView):
    """List a pool's newest price forecasts by GPU type: p10, p50 and p90 at coming instants.

    They come from 19 simulated runs. At `hits` of `counted` past instants, the posted price was
    between p10 and p90.
    """

    address = "price-forecasts/<slug:name>"
    operation = "price_forecast"
    who = Who.POOL
    row = PriceForecastRow
    about = "Forecasts of a pool's prices."

    def page(self, name: str) -> Page:
        facts = self.pool(name)
        with site_scope():
            now = read_clock(facts.id).pool_at
            made = price_forecasts(facts.id, now=now)
            names = [one.name for one in type_capacities(facts.id)]
        return Page(made.get(one) or no_forecast(facts.name, one) for one in names)


class UsageList(Listed, MoneyView):
    """List a tenant's usage by term, newest first; the amounts add up to its charges.

    A term counts in [`since`, `until`) if its hour of pool time closes in it, like its transfer.
    """

    address = "usage"
    operation = "usage_list"
    row = UsageRow
    about = "A page of usage."
    parameters = (*STRETCH, *PAGE)
    shows = ("Job.uid", "UsageLine.amount", "UsageLine.price")

    def page(self) -> Page:
        tenant = self.asked_tenant()
        before, limit = self.before("usage"), self.limit
        lines = UsageLine.objects.filter(tenant=tenant, **self._asked()).order_by("-id")
        if before is not None:
            lines = lines.filter(id__lt=before)
        with tenant_scope(tenant.pk):
            rows = usage_rows(lines, limit + 1)
        return page_of(rows, limit, lambda one: [one[0]], itemgetter(1))

    def _asked(self) -> dict[str, Any]:
        since, until = self.asked_instants()
        asked: dict[str, Any] = {}
        if self.param("pool"):
            asked["pool_id"] = self.query_pool().id
        for instant, lookup in ((since, "gte"), (until, "lt")):
            if instant is not None:
                asked[f"hour__{lookup}"] = instant - HOUR
        if since is not None and until is not None and since >= until:
            raise bad_field("until", "is not after `since`", "Give a later one.")
        return asked
