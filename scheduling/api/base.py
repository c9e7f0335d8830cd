"""Base classes of the views of pools and jobs: visible rows for the caller, and locked edits."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from rest_framework.request import Request

from scheduling.engine.clock import read_clock
from scheduling.models import Job, Node, Pool
from scheduling.selectors.jobs.lists import find_visible_job
from scheduling.selectors.pools.lines import PoolFacts, all_pool_ids, pool_facts, pool_id_named
from tenants.answers import Answer, plain
from tenants.api.base import ApiView, Who
from tenants.api.operate import OperateView
from tenants.api.problems import Problem, bad_field, not_there
from tenants.api.resources import Shown
from tenants.models import Quota, Tenant
from tenants.permissions import SITE_ACTIONS, Action, may_in_pool, may_on_site, seen_tenants
from tenants.scopes import site_scope, tenants_scope
from tenants.selectors.quotas import pool_tenants, pools_of
from tenants.tokens import Scope

Seen = TypeVar("Seen")
KEY_HEADER, KEY_MAX = "Idempotency-Key", 255
REPLAY_HEADER = "Idempotent-Replayed"


class SchedulingView(ApiView):
    """Base of views that find jobs and pools that the caller may see; 404 for others."""

    def sees_all(self, action: Action) -> bool:
        """Return whether the caller's site role covers every tenant."""
        return action in SITE_ACTIONS.get(self.access.site_role, frozenset())

    def tenants(self) -> Collection[int] | None:
        """Return ids of the tenants whose jobs the caller may see, or None for all tenants."""
        return seen_tenants(self.access)

    def asked_tenants(self) -> Collection[int] | None:
        """Return the queried tenant as a list, or all tenants of the caller (`tenants()`)."""
        tenant = self.filtered_tenant()
        return self.tenants() if tenant is None else [tenant.pk]

    def job(self, uid: UUID) -> Job:
        """Return a job of one of the caller's tenants.

        Raises:
            Problem: 404.
        """
        return self.visible(uid, find_visible_job)

    def visible(
        self, uid: UUID, find: Callable[[UUID, Collection[int] | None], Seen | None]
    ) -> Seen:
        """Return a row of the caller's tenants, or raise a 404 as `job`."""
        tenants = self.tenants()
        with tenants_scope(tenants):
            row = find(uid, tenants)
        if row is None:
            raise not_there()
        return row

    def pool(self, name: str) -> PoolFacts:
        """Return a pool that the caller may see.

        Raises:
            Problem: 404.
        """
        with site_scope():
            pool_id = pool_id_named(name)
            facts = pool_facts(pool_id) if pool_id is not None else None
            tenants = pool_tenants(facts.id) if facts is not None else frozenset()
        if facts is None or not may_in_pool(self.access, Action.SEE_POOL, tenants):
            raise not_there()
        return facts

    def pools(self) -> list[PoolFacts]:
        """Return all pools that the caller may see, oldest first."""
        with site_scope():
            if self.sees_all(Action.SEE_POOL):
                ids = all_pool_ids()
            else:
                ids = sorted({id_ for tenant in self.access.tenant_ids for id_ in pools_of(tenant)})
            return [facts for id_ in ids if (facts := pool_facts(id_)) is not None]

    def query_pool(self) -> PoolFacts:
        """Return the pool that the query names, or the only pool that the caller may see.

        Raises:
            Problem: 404, or 400 if the query names no pool and the caller may see several.
        """
        name = self.request.query_params.get("pool", "")
        if name:
            return self.pool(name)
        pools = self.pools()
        if len(pools) != 1:
            raise bad_field("pool", "is required", "GET /api/v1/pools lists your pools.")
        return pools[0]

    def asked_tenant(self) -> Tenant:
        """Return the tenant that the query names, or the caller's only tenant.

        Raises:
            Problem: 404, or 400 if the query names no tenant and the caller has several.
        """
        tenant = self.filtered_tenant(Action.SEE_MONEY)
        if tenant is not None:
            return tenant
        if len(self.access.memberships) != 1:
            raise bad_field("tenant", "is required", "Name one of your tenants.")
        return self.tenant(self.access.memberships[0].slug, Action.SEE_MONEY, seen=Action.SEE_MONEY)

    def submitting_tenant(self, slug: object) -> Tenant:
        """Return the tenant that a body names, or the only tenant for which the caller may submit.

        Raises:
            Problem: 400 if the caller has no such tenant, 403 if the caller's role is too low.
        """
        if slug is not None:
            return self.own_tenant(slug, Action.SUBMIT)
        memberships = self.access.memberships
        if len(memberships) > 1:
            yours = ", ".join(membership.slug for membership in memberships)
            raise bad_field("tenant", "is required", f"You are in several: {yours}.")
        if not memberships:
            raise Problem("role", "You are in no tenant, so nothing can be submitted.")
        return self.tenant(memberships[0].slug, Action.SUBMIT)


class JobView(Shown, SchedulingView):
    """Base of views that read a job."""

    who = Who.TENANT
    scopes: ClassVar[dict[str, str]] = {"GET": Scope.JOBS_READ.value}

    def number(self, name: str, *, least: int, most: int) -> int | None:
        """Return a whole number of the query, or None if it has none.

        Raises:
            Problem: it is no whole number from `least` to `most`.
        """
        raw = self.param(name)
        if not raw:
            return None
        digits = raw.removeprefix("-")
        if not digits.isascii() or not digits.isdecimal() or len(digits) > 19:
            raise bad_field(name, "must be a whole number")
        if not least <= int(raw) <= most:
            raise bad_field(name, f"must be from {least} to {most}")
        return int(raw)


class SharedPoolView(SchedulingView):
    """Base of views of a tenant in a pool, for all users who may see the tenant."""

    who = Who.TENANT

    def there(
        self, name: str, slug: str, action: Action = Action.SEE_TENANT
    ) -> tuple[PoolFacts, Tenant]:
        """Return a pool, and a tenant that has or had quota in it.

        Raises:
            Problem: 404 if the caller may not see one of them, or the tenant has no quota in the
                pool; 403 if the caller's role is too low.
        """
        tenant = self.tenant(slug, action)
        facts = self.pool(name)
        with site_scope():
            if facts.id not in pools_of(tenant.pk):
                raise not_there()
        return facts, tenant


class OperatePoolView(OperateView):
    """Finds pools by name, for users with a site role."""

    def named(self, name: str) -> Pool:
        """Return a pool.

        Raises:
            Problem: 404.
        """
        pool = Pool.objects.filter(name=name).first()
        if pool is None:
            raise not_there()
        return pool

    def shown(self, leases: Iterable[Answer]) -> list[dict[str, Any]]:
        """Return leases as JSON; jobs are null for a role that may not see them."""
        hidden = {} if may_on_site(self.access.site_role, Action.SEE_TENANT) else {"job": None}
        return [{**plain(lease), **hidden} for lease in leases]

    def asked(self) -> list[Pool]:
        """Return the pool that the query names, or all pools.

        Raises:
            Problem: 404.
        """
        name = self.request.query_params.get("pool", "")
        return [self.named(name)] if name else list(Pool.objects.order_by("id"))

    @contextmanager
    def edited(self, name: str) -> Iterator[tuple[Pool, datetime]]:
        """Lock the pool, its nodes and quotas in a transaction; yield the pool and its time.

        The state that If-Match covers cannot change until the transaction ends.

        Raises:
            Problem: 404.
        """
        with site_scope():
            pool = Pool.objects.select_for_update(no_key=True).filter(name=name).first()
            if pool is None:
                raise not_there()
            list(Node.objects.select_for_update(no_key=True).filter(pool=pool).order_by("id"))
            list(Quota.objects.select_for_update(no_key=True).filter(pool=pool).order_by("id"))
            yield pool, read_clock(pool.pk).pool_at


def idempotency_key(request: Request) -> str | None:
    """Return the request's idempotency key, or None if it has none.

    Raises:
        Problem: the key is too long or not printable ASCII.
    """
    key = request.headers.get(KEY_HEADER)
    if key is None:
        return None
    if not 1 <= len(key) <= KEY_MAX or not key.isascii() or not key.isprintable():
        raise bad_field(KEY_HEADER, f"must be 1 to {KEY_MAX} printable ASCII characters")
    return str(key)


def replay_header(*, is_replay: bool) -> dict[str, str]:
    """Return the header that marks the repeated answer of an earlier request.

    Source: the header's name comes from Stripe's API.
    """
    return {REPLAY_HEADER: "true"} if is_replay else {}


def root_of(request: Request) -> str:
    """Return the base URL of the site that was requested, for links."""
    return request.build_absolute_uri("/").rstrip("/")


def spec_of(request: Request) -> dict[str, Any]:
    """Return a body as a specification; the service checks its fields.

    Raises:
        Problem: the body is not an object.
    """
    if not isinstance(request.data, dict):
        raise bad_field("", "must be an object", "Send fields by name.")
    return request.data


def body_tenant(spec: Any) -> object:
    """Return the tenant that a specification names."""
    return spec.get("tenant") if isinstance(spec, dict) else None
