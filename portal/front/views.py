"""The front page: an introduction, sign-in buttons and a short tour, with the pool's figures."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from billing.selectors.totals import sum_moved
from portal.common.access import access, pool_of_page
from portal.demo.names import BIDDING_POOL, DEADLINE_POOL, SLURM_POOL
from portal.demo.people import DEMO_PEOPLE
from portal.front.text import demo_sign_ins, front_stats, tour
from portal.site.context import verify_last_command
from scheduling.selectors.pools.lines import pool_id_named, pool_so_far
from tenants.permissions import Action, may_on_site
from tenants.scopes import site_scope
from tenants.selectors.access import Access, home_of


@require_safe
def front(request: HttpRequest) -> HttpResponse:
    """Show visitors the front page; redirect users to their first page, except for the tour."""
    who = access(request)
    if who.user_id is not None and ("tour" not in request.GET or settings.PRODUCTION):
        return redirect(_home(request, who))
    if settings.PRODUCTION:
        return redirect("login")
    pool = pool_of_page(request)
    context: dict[str, Any] = {"sign_ins": demo_sign_ins(), "pool": pool, "live": True}
    if pool is not None:
        with site_scope():
            so_far = pool_so_far(pool.id)
            moved = sum_moved(pool.book)
            membership = home_of(DEMO_PEOPLE["researcher"])
            lender = home_of(DEMO_PEOPLE["manager"])
            bidding = BIDDING_POOL if pool_id_named(BIDDING_POOL) is not None else ""
            # The pool may exist from an earlier start although its cluster does not run now.
            runs = bool(settings.DEMO_SLURM_CONF) and pool_id_named(SLURM_POOL) is not None
            cluster = SLURM_POOL if runs else ""
            deadlines = DEADLINE_POOL if pool_id_named(DEADLINE_POOL) is not None else ""
        context |= {
            "so_far": so_far,
            "stats": front_stats(pool, so_far, moved),
            "steps": tour(
                pool,
                reverse("job-list", args=[membership.slug]) if membership else "",
                bidding=bidding,
                lender=lender.slug if lender else "",
                deadlines=deadlines,
                cluster=cluster,
            ),
            "command": verify_last_command(pool),
        }
    return render(request, "front/front.html", context)


def _home(request: HttpRequest, who: Access) -> str:
    if who.home is not None:
        return reverse("dashboard", args=[who.home.slug])
    if who.is_unassigned:
        return reverse("account")
    pool = pool_of_page(request)
    if pool is not None and may_on_site(who.site_role, Action.SEE_TENANT):
        return reverse("pool", args=[pool.name])
    return reverse("ledger")  # a user who sees no tenant has a role for money
