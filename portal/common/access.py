"""Access checks of views: who the viewer is, and which objects are visible.

An object that the viewer may not see is a 404, like one that does not exist.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponseBase

from scheduling.selectors.pools.lines import (
    PoolFacts,
    all_pool_names,
    first_pool_id,
    pool_facts,
    pool_id_named,
    pool_names_of_tenant,
    pools_of_book,
)
from tenants.models import Tenant, User
from tenants.permissions import Action, may_in_pool, may_in_tenant, may_on_site
from tenants.scopes import site_scope
from tenants.selectors.access import Access, access_of
from tenants.selectors.quotas import pool_tenants, pools_of
from tenants.selectors.tenants import find_tenant

View = Callable[..., HttpResponseBase]


@dataclass
class About:
    """The subject of this request's page, which the page's header also shows."""

    access: Access | None = None
    tenant: Tenant | None = None
    pool: PoolFacts | None = None
    # True if the URL names the pool; False if the pool follows from the tenant or from a job.
    chose_pool: bool = False
    own_pools: dict[int, list[str]] = field(default_factory=dict)


def about(request: HttpRequest) -> About:
    """Return the subject of the request's page, stored in the request."""
    note: About = request.__dict__.setdefault("_evenshare_about", About())
    return note


def access(request: HttpRequest) -> Access:
    """Return the viewer's access; read once per request."""
    note = about(request)
    if note.access is None:
        user = getattr(request, "user", None)
        if isinstance(user, User) or (user is not None and user.is_authenticated):
            with site_scope():
                note.access = access_of(user) if user.is_authenticated else Access()
        else:
            note.access = Access()
    return note.access


def signed_in(view: View) -> View:
    """Redirect visitors without a session to the login page, and back afterwards."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if access(request).user_id is None:
            return redirect_to_login(request.get_full_path())
        return view(request, *args, **kwargs)

    return guarded


def demo_only(view: View) -> View:
    """Wrap a view so that it returns 404 in production."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if settings.PRODUCTION:
            raise Http404
        return view(request, *args, **kwargs)

    return guarded


def tenant_or_404(request: HttpRequest, slug: str, action: Action = Action.SEE_TENANT) -> Tenant:
    """Return a tenant on which the viewer may do `action`.

    Raises:
        Http404: the tenant does not exist, or the viewer may not do this.
    """
    with site_scope():
        tenant = find_tenant(slug)
    if tenant is None or not may_in_tenant(access(request), action, tenant.pk):
        raise Http404
    about(request).tenant = tenant
    return tenant


def pool_or_404(request: HttpRequest, name: str) -> PoolFacts:
    """Return a pool that the viewer may see; in the demo, visitors may see every pool.

    Raises:
        Http404: it does not exist or is not visible.
    """
    with site_scope():
        pool_id = pool_id_named(name)
        facts = pool_facts(pool_id) if pool_id is not None else None
        tenants = pool_tenants(facts.id) if facts is not None else frozenset()
    if facts is None or not may_see_pool(access(request), tenants):
        raise Http404
    note = about(request)
    note.pool, note.chose_pool = facts, True
    return facts


def may_see_pool(viewer: Access, tenants: frozenset[int]) -> bool:
    """Return whether a viewer may see a pool of these tenants; in the demo, visitors may."""
    public = viewer.user_id is None and not settings.PRODUCTION
    return public or may_in_pool(viewer, Action.SEE_POOL, tenants)


def tenant_pool(request: HttpRequest, tenant: Tenant, name: str = "") -> PoolFacts | None:
    """Return the tenant's pool of this name, by default its first; None if it has no pool.

    Raises:
        Http404: the named pool is not one of the tenant's.
    """
    with site_scope():
        pools = pools_of(tenant.pk)
        wanted = pool_id_named(name) if name else next(iter(pools), None)
        if name and wanted not in pools:
            raise Http404
        facts = pool_facts(wanted) if wanted is not None else None
    note = about(request)
    note.pool, note.chose_pool = facts, bool(name)
    return facts


def pools_of_tenant(request: HttpRequest, tenant_id: int) -> list[str]:
    """Return the names of a tenant's pools, oldest first; read once per request."""
    known = about(request).own_pools
    if tenant_id not in known:
        with site_scope():
            known[tenant_id] = pool_names_of_tenant(tenant_id)
    return known[tenant_id]


def visible_pool_names(request: HttpRequest) -> list[str]:
    """Return the names of the pools that the viewer may see, oldest first, with one query.

    Visitors of the demo get none, because the pages require a login.
    """
    who = access(request)
    if who.user_id is None or who.is_unassigned:
        return []
    if not may_on_site(who.site_role, Action.SEE_POOL) and len(who.tenant_ids) == 1:
        return pools_of_tenant(request, *who.tenant_ids)
    with site_scope():
        if may_on_site(who.site_role, Action.SEE_POOL):
            return all_pool_names()
        return pool_names_of_tenant(*who.tenant_ids)


def book_pool(request: HttpRequest, tenant: Tenant, book: str, name: str = "") -> PoolFacts:
    """Return the tenant's pool of this name if it charges to the book, else its first such pool.

    If the tenant has no such pool, viewers who may see every pool get the book's first pool.

    Raises:
        Http404: no pool charges to this book, or the viewer may see none.
    """
    with site_scope():
        pools, own = pools_of_book(book), pools_of(tenant.pk)
    named = [pool for pool in pools if pool.id in own and pool.name == name]
    facts = next((pool for pool in (*named, *pools) if pool.id in own), None)
    if facts is None and pools and may_on_site(access(request).site_role, Action.SEE_POOL):
        facts = pools[0]
    if facts is None:
        raise Http404
    note = about(request)
    note.pool, note.chose_pool = facts, bool(named)
    return facts


def pool_of_page(request: HttpRequest) -> PoolFacts | None:
    """Return the pool of the page's header: the page's, else the tenant's first, else any.

    Return None if no pool exists or the viewer may see none: visitors in production, people without
    a tenant.
    """
    note = about(request)
    if note.pool is not None:
        return note.pool
    viewer = access(request)
    if viewer.user_id is None and settings.PRODUCTION:
        return None
    tenant_id = note.tenant.pk if note.tenant else viewer.home.tenant_id if viewer.home else None
    if viewer.is_unassigned:
        return None
    with site_scope():
        pools = pools_of(tenant_id) if tenant_id is not None else []
        if not pools and tenant_id is not None:
            return None
        pool_id = pools[0] if pools else first_pool_id()
        note.pool = pool_facts(pool_id) if pool_id is not None else None
    return note.pool
