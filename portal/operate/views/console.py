"""Access checks of the console's pages, and code that its forms share."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, pgettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.charts.page import NavItem
from portal.common.access import about, access, signed_in
from portal.common.clocks import Clocks, pool_now, shows_the_wall
from portal.site.request_id import request_id_of
from scheduling.engine.installed import missing_part
from scheduling.models import Pool
from scheduling.selectors.pools.lines import (
    PoolFacts,
    all_pool_names,
    find_pool,
    pool_facts,
    pool_id_named,
)
from tenants.audit import Actor
from tenants.input.errors import invalid
from tenants.models import User
from tenants.permissions import Action, may_on_site
from tenants.refusals import ROLE_GONE, record_refusal
from tenants.scopes import site_scope

View = Callable[..., HttpResponseBase]
POOL_PAGES = (
    ("quotas", gettext_noop("Quotas"), "operate-quotas"),
    ("nodes", gettext_noop("Nodes"), "operate-nodes"),
    ("settings", gettext_noop("Settings"), "operate-pool"),
    ("policies", gettext_noop("Policies"), "operate-policies"),
    ("health", gettext_noop("Round health"), "operate-health"),
    ("simulations", gettext_noop("What if"), "operate-simulations"),
)


def _let_in(view: View, action: Action = Action.OPERATE) -> View:
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        role = access(request).site_role
        is_change = request.method == "POST"
        if is_change and not may_on_site(role, action):
            _record(request, role)
        if not may_on_site(role, Action.SEE_SITE):
            raise Http404
        if is_change and not may_on_site(role, action):
            raise PermissionDenied
        try:
            return view(request, *args, **kwargs)
        except PermissionDenied:
            _record(request, None)
            raise

    return signed_in(never_cache(guarded))


def _record(request: HttpRequest, role: str | None) -> None:
    """Record a change that the site role does not allow; None if the role was removed."""
    record_refusal(
        actor_of(request),
        f"{request.method} {request.path}",
        ROLE_GONE if role is None else f"Site role: {role or 'none'}.",
        request.POST.dict(),
    )


def console(view: View) -> View:
    """Restrict a view to operators. Readers of the console may only read; all others get 404."""
    return require_http_methods(["GET", "HEAD", "POST"])(_let_in(view))


def credit_console(view: View) -> View:
    """As `console`, for pages that finance users may change too."""
    return require_http_methods(["GET", "HEAD", "POST"])(_let_in(view, Action.KEEP_CREDIT))


def console_read(view: View) -> View:
    """As `console`, for a page without forms."""
    return require_safe(_let_in(view))


def console_act(view: View) -> View:
    """As `console`, for a URL that only changes something."""
    return require_POST(_let_in(view))


def may_change(request: HttpRequest) -> bool:
    return may_on_site(access(request).site_role, Action.OPERATE)


def may_keep(request: HttpRequest) -> bool:
    """Return whether the viewer may set limits and budgets, post allowances, decide transfers."""
    return may_on_site(access(request).site_role, Action.KEEP_CREDIT)


def may_see_jobs(request: HttpRequest) -> bool:
    """Return whether the viewer may see jobs and pages of every tenant."""
    return may_on_site(access(request).site_role, Action.SEE_TENANT)


def actor_of(request: HttpRequest) -> Actor:
    user = request.user
    if not isinstance(user, User):
        raise PermissionDenied
    return Actor(user, request_id_of(request))


def pool_of_console(request: HttpRequest, name: str) -> tuple[PoolFacts, Pool]:
    """Return the pool of a console page.

    Raises:
        Http404: no pool has this name.
    """
    with site_scope():
        pool_id = pool_id_named(name)
        facts = pool_facts(pool_id) if pool_id is not None else None
        pool = find_pool(facts.id) if facts is not None else None
    if facts is None or pool is None:
        raise Http404
    about(request).pool = facts
    return facts, pool


def page(
    request: HttpRequest, template: str, context: dict[str, Any], *, key: str, status: int = 200
) -> HttpResponse:
    """Render a page of the console with its menu; `key` is the page's entry."""
    with site_scope():
        names = all_pool_names()
    pool = context.get("pool")
    entries = [
        NavItem("queue", pgettext("alerts", "Queue"), reverse("operate")),
        *(NavItem(f"pool-{name}", name, reverse("operate-quotas", args=[name])) for name in names),
        NavItem("quota-requests", _("Quota requests"), reverse("operate-quota-requests")),
        NavItem("tenants", _("Tenants"), reverse("operate-tenants")),
        NavItem("people", _("People"), reverse("operate-people")),
        NavItem("credit", _("Credit"), reverse("operate-credit")),
        NavItem("audit", _("Audit log"), reverse("operate-audit")),
    ]
    beneath, clock, missing = [], None, ""
    if isinstance(pool, PoolFacts):
        missing = missing_part(pool.policy, pool.executor)
        clock = pool_now(pool)
        beneath = [NavItem(k, _(text), reverse(to, args=[pool.name])) for k, text, to in POOL_PAGES]
    return render(
        request,
        f"operate/{template}",
        {
            **context,
            "nav_key": "operator",
            "may_change": may_change(request) or (key == "credit" and may_keep(request)),
            "may_see_jobs": may_see_jobs(request),
            "console_nav": entries,
            "console_key": f"pool-{pool.name}" if isinstance(pool, PoolFacts) else key,
            "pool_nav": beneath,
            "pool_clock": clock if clock and not shows_the_wall(clock) else None,
            "pool_clock_at": Clocks(clock).instant(clock.pool_at) if clock else None,
            "pool_key": key,
            "missing_part": missing,
        },
        status=status,
    )


class Unchanged(str):
    """The message after a button that changed nothing."""

    __slots__ = ()


def nothing_differed() -> Unchanged:
    """Return the message after a form that was sent without changes."""
    return Unchanged(_("No changes, so nothing was saved."))


def tell(request: HttpRequest, said: str) -> None:
    """Show a button's result on the next page; an `Unchanged` is not shown as a success."""
    level = messages.INFO if isinstance(said, Unchanged) else messages.SUCCESS
    messages.add_message(request, level, said)


def no_such_button(*_args: object, **_kwargs: object) -> str:
    """Handle a button that the page does not have.

    Raises:
        InvalidInputError: always.
    """
    raise invalid("do", _("Unknown action."))
