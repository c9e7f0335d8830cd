"""The pool menu next to the round line: the same page for another pool.

The menu is part of the page, not of the round line, which every open page polls.
"""

from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse

from portal.charts.page import LinkChoice
from portal.common.access import about, pool_of_page, pools_of_tenant, visible_pool_names

# For pages of a round, trade or simulation, the list that the menu opens for another pool.
LISTS = {
    "round": "round-list",
    "counterfactual": "round-list",
    "trade": "trades",
    "operate-simulation": "operate-simulations",
}
# Tenant pages that take `?pool=`, with the list that replaces a page of a single object.
TENANT_PAGES = {
    "dashboard": "dashboard",
    "sharing": "sharing",
    "job-list": "job-list",
    "job": "job-list",
    "job-log": "job-list",
    "job-usage": "job-list",
    "job-new": "job-new",
    "job-dry-run": "job-new",
    "profiles": "profiles",
    "profile": "profiles",
    "ledger": "ledger",
    "statement": "statement",
    "contribution": "contribution",
    "transfer": "ledger",
}
# Query parameters that the menu keeps; days and list keys are valid in only one pool.
KEPT = ("state", "q", "by", "window")


def pool_choices(request: HttpRequest) -> list[LinkChoice]:
    """Return the pools that the viewer may see, oldest first; empty if there is only one."""
    names = visible_pool_names(request)
    present = pool_of_page(request)
    if present is None or not [name for name in names if name != present.name]:
        return []
    own = _pools_of_tenant(request)
    return [_choice(request, name, own, is_here=name == present.name) for name in names]


def _pools_of_tenant(request: HttpRequest) -> list[str]:
    """Return the pools for which the page's tenant has this page."""
    tenant = about(request).tenant
    if tenant is None or _route(request) not in TENANT_PAGES:
        return []
    return pools_of_tenant(request, tenant.pk)


def _route(request: HttpRequest) -> str:
    match = request.resolver_match
    return match.url_name or "" if match else ""


def _choice(request: HttpRequest, name: str, own: list[str], *, is_here: bool) -> LinkChoice:
    route, tenant = _route(request), about(request).tenant
    given = set(request.resolver_match.kwargs) if request.resolver_match else set()
    if tenant is not None and name in own:
        page, asked = TENANT_PAGES[route], {"pool": name}
        address = reverse(page, args=[tenant.slug])
    elif "name" in given and (given == {"name"} or route in LISTS):
        page, asked = LISTS.get(route, route), {}
        address = reverse(page, args=[name])
    else:
        return LinkChoice(name, reverse("pool", args=[name]), is_here=is_here, is_other_page=True)
    if page == route:
        asked |= {key: request.GET[key] for key in KEPT if request.GET.get(key)}
    return LinkChoice(name, f"{address}?{urlencode(asked)}" if asked else address, is_here=is_here)
