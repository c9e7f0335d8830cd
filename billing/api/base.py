"""Parameters of the money views: the tenant, the pool and the time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from scheduling.api.base import SchedulingView
from scheduling.api.schemas import POOL, SINCE, TENANT, UNTIL
from scheduling.engine.clock import read_clock
from scheduling.selectors.pools.lines import PoolFacts
from tenants.api.base import Who
from tenants.api.problems import bad_field, not_there
from tenants.api.times import read_time
from tenants.models import Tenant
from tenants.permissions import Action
from tenants.scopes import site_scope
from tenants.selectors.quotas import pools_of

FIRST_YEAR = 1970
DEFAULT, LONGEST = timedelta(days=7), timedelta(days=400)
STRETCH = (TENANT, POOL, SINCE, UNTIL)


@dataclass(frozen=True, slots=True)
class AskedTime:
    """A requested range of pool time."""

    since: datetime
    until: datetime


class MoneyView(SchedulingView):
    """A view that reads the tenant, the pool and the time from the query."""

    who = Who.TENANT

    def asked_ids(self) -> Sequence[int] | None:
        """Return the ids of the tenants in the query, or else of the caller's; None means all."""
        tenant = self.filtered_tenant(Action.SEE_MONEY)
        if tenant is not None:
            return [tenant.pk]
        return None if self.sees_all(Action.SEE_MONEY) else sorted(self.access.tenant_ids)

    def asked_pool(self, tenant: Tenant) -> PoolFacts:
        """Return the pool that the query names, or the tenant's only pool.

        Raises:
            Problem: 404 if the tenant has no quota in it, 400 if the query must name a pool.
        """
        with site_scope():
            own = pools_of(tenant.pk)
        if self.request.query_params.get("pool", ""):
            facts = self.query_pool()
            if facts.id not in own:
                raise not_there()
            return facts
        mine = [facts for facts in self.pools() if facts.id in own]
        if len(mine) != 1:
            raise bad_field("pool", "is required", "GET /api/v1/pools lists your pools.")
        return mine[0]

    def asked_instants(self) -> tuple[datetime | None, datetime | None]:
        """Return `since` and `until` of the query.

        Raises:
            Problem: 400 if either is too early for the database.
        """
        since, until = read_time(self.request, "since"), read_time(self.request, "until")
        for name, instant in (("since", since), ("until", until)):
            if instant is not None and instant.year <= FIRST_YEAR:
                raise bad_field(name, "is too long ago", f"Give one after {FIRST_YEAR}.")
        return since, until

    def asked_time(self, facts: PoolFacts) -> AskedTime:
        """Return `since` and `until` of the query, by default a week up to today.

        Raises:
            Problem: 400 if the range is empty or longer than `LONGEST`.
        """
        since, until = self.asked_instants()
        if until is None:
            with site_scope():
                now = read_clock(facts.id).pool_at
            until = datetime.combine(now.astimezone(UTC).date(), time(), UTC) + timedelta(days=1)
        since = until - DEFAULT if since is None else since
        if since >= until:
            raise bad_field("until", "is not after `since`", "Give a later one.")
        if until - since > LONGEST:
            raise bad_field("since", "is too long before `until`", "Request at most 400 days.")
        return AskedTime(since, until)
