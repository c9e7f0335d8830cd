"""The frame of every page: menu, viewer, round line, command to verify rounds.

Everything is lazy, so an error page that shows none of it makes no query. A view can override a
value in its context.
"""

from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from portal.charts.page import NavItem, RoundLine, Viewer
from portal.common import access, clocks
from portal.common.pool_switch import pool_choices
from portal.site.request_id import request_id_of
from portal.site.script_texts import script_texts
from scheduling.selectors.pools.lines import PoolFacts
from tenants.models import Membership, User
from tenants.permissions import Action, may_in_tenant, may_on_site
from tenants.selectors.access import Access


def frame(request: HttpRequest) -> dict[str, Any]:
    """Return the context of templates/base.html, as a context processor."""
    return {
        "nav": SimpleLazyObject(lambda: nav(request)),
        "viewer": SimpleLazyObject(lambda: viewer(request)),
        "round_line": SimpleLazyObject(lambda: line(request)),
        "pool_choices": SimpleLazyObject(lambda: pool_choices(request)),
        "pool_query": SimpleLazyObject(lambda: pool_query(request)),
        "recompute_command": SimpleLazyObject(lambda: recompute_command(request)),
        "login_url": reverse("login"),
        "logout_url": reverse("logout"),
        "account_url": reverse("account"),
        "tokens_url": reverse("tokens"),
        "notifications_url": reverse("notifications"),
        "api_docs_url": reverse("api-docs"),
        "home_url": reverse("front"),
        "tour_url": "" if settings.PRODUCTION else f"{reverse('front')}?tour",
        "request_id": request_id_of(request),
        "script_texts": script_texts(),
    }


def nav(request: HttpRequest) -> list[NavItem]:
    """Return the menu: a tenant's pages if there is a tenant, then the pool's."""
    who, note = access.access(request), access.about(request)
    if who.user_id is None or who.is_unassigned:
        return []
    slug = note.tenant.slug if note.tenant else who.home.slug if who.home else ""
    items = []
    pool, asked = access.pool_of_page(request), pool_query(request)
    if slug and _may_open(who, note, slug):
        jobs = _own_jobs(who, slug, asked if note.chose_pool else "")
        items.append(NavItem("overview", _("Overview"), reverse("dashboard", args=[slug]) + asked))
        items.append(NavItem("jobs", _("Jobs"), reverse("job-list", args=[slug]) + jobs))
    if pool is not None:
        items.append(NavItem("pool", _("Pool"), reverse("pool", args=[pool.name])))
        items.append(NavItem("rounds", _("Rounds"), reverse("round-list", args=[pool.name])))
    if who.home is not None or may_on_site(who.site_role, Action.SEE_MONEY):
        items.append(NavItem("ledger", _("Ledger"), reverse("ledger") + asked))
    if slug and _may_open(who, note, slug):
        items.append(NavItem("members", _("Members"), reverse("members", args=[slug])))
    if may_on_site(who.site_role, Action.SEE_SITE):
        items.append(NavItem("operator", _("Operator"), reverse("operate")))
    return items


def _own_jobs(who: Access, slug: str, asked: str) -> str:
    """Return the query of the list of jobs that the menu opens: a member's own jobs come first."""
    role = getattr(who.membership_named(slug), "role", "")
    if role != Membership.Role.MEMBER:
        return asked
    return f"{asked}&submitter=me" if asked else "?submitter=me"


def pool_query(request: HttpRequest) -> str:
    """Return the query that selects the page's pool on a tenant's pages; empty by default.

    The tenant is the page's, else the viewer's own. Without a pool in the URL, a tenant's pages
    show the tenant's first pool.
    """
    who, note, pool = access.access(request), access.about(request), access.pool_of_page(request)
    tenant_id = note.tenant.pk if note.tenant else who.home.tenant_id if who.home else None
    if pool is None or tenant_id is None:
        return ""
    own = access.pools_of_tenant(request, tenant_id)
    is_default = own[:1] == [pool.name] and not note.chose_pool
    if is_default or len(own) < 2 or pool.name not in own:
        return ""
    return f"?{urlencode({'pool': pool.name})}"


def _may_open(who: Access, note: access.About, slug: str) -> bool:
    """Return whether the viewer may open the pages of the menu's tenant."""
    if note.tenant is not None:
        return may_in_tenant(who, Action.SEE_TENANT, note.tenant.pk)
    return who.membership_named(slug) is not None


def viewer(request: HttpRequest) -> Viewer | None:
    """Return the viewer for the masthead, or None for a visitor."""
    who, note = access.access(request), access.about(request)
    if who.user_id is None:
        return None
    membership = who.home
    if note.tenant is not None:
        membership = who.membership_of(note.tenant.pk) or membership
    if who.is_unassigned:
        return Viewer(who.name, pgettext("of an account", "no tenant"), "")
    if membership is None:
        return Viewer(who.name, str(User.SiteRole(who.site_role).label), "")
    role = str(Membership.Role(membership.role).label)
    return Viewer(who.name, role, membership.name, _tenants(who))


def _tenants(who: Access) -> tuple[tuple[str, str], ...]:
    """Return links to a person's tenants, if there are several."""
    if len(who.memberships) < 2:
        return ()
    return tuple((row.name, reverse("dashboard", args=[row.slug])) for row in who.memberships)


def line(request: HttpRequest) -> RoundLine | None:
    """Return the round line of the page's pool, or None without a pool."""
    facts = access.pool_of_page(request)
    return None if facts is None else line_of(facts)


def line_of(facts: PoolFacts) -> RoundLine:
    round_url = ""
    if facts.number is not None:
        round_url = reverse("round", args=[facts.name, facts.number])
    return clocks.round_line(
        facts,
        url=reverse("round-line", args=[facts.name]),
        round_url=round_url,
        pool_url=reverse("pool", args=[facts.name]),
    )


def recompute_command(request: HttpRequest) -> str:
    """Return the command that verifies the pool's last rounds."""
    facts = access.pool_of_page(request)
    return "" if facts is None else verify_last_command(facts)


def verify_last_command(facts: PoolFacts) -> str:
    """Return the command that verifies the pool's last rounds on the user's machine, if any exist.

    It names no round: the very last one might not be sealed yet.
    """
    return "" if facts.number is None else f"evenshare round verify --last 10 --pool {facts.name}"
