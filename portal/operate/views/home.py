"""The console's first page: alerts, then pools and tenants."""

from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.charts.figures import thousands
from portal.common.clocks import pool_now
from portal.operate.text.queue import queue
from portal.operate.text.quota_requests import open_text
from portal.operate.views.console import (
    actor_of,
    console_act,
    console_read,
    may_see_jobs,
    page,
)
from portal.site.context import line_of
from scheduling.selectors.jobs.lists import find_visible_job
from scheduling.selectors.operate.console import all_pools
from scheduling.selectors.sharing.quota_requests import count_open_requests, list_quota_requests
from scheduling.services.jobs import release_job
from tenants.scopes import site_scope
from tenants.selectors.tenants import tenant_sizes

LISTED = 5  # open requests for quota
NUMBERS = {
    2: gettext_noop("Two"),
    3: gettext_noop("Three"),
    4: gettext_noop("Four"),
    5: gettext_noop("Five"),
    6: gettext_noop("Six"),
    7: gettext_noop("Seven"),
    8: gettext_noop("Eight"),
    9: gettext_noop("Nine"),
    10: gettext_noop("Ten"),
}


@console_read
def home(request: HttpRequest) -> HttpResponse:
    """Show the queue, worst first, and below it every pool and every tenant."""
    with site_scope():
        pools = all_pools()
        now = {facts.id: pool_now(facts).pool_at for facts in pools}
        alerts = queue(pools, now, with_jobs=may_see_jobs(request))
        tenants = tenant_sizes()
        requests = list_quota_requests(None, state="open", limit=LISTED)[0]
        waiting = sum(count_open_requests().values())
    count = len(alerts)
    context = {
        "alerts": alerts,
        "count_text": _(NUMBERS[count]) if count in NUMBERS else thousands(count),
        "pools": [(facts, line_of(facts)) for facts in pools],
        "tenants": tenants,
        "requests": requests,
        "requests_title": open_text(waiting),
        "live": True,
    }
    return page(request, "home.html", context, key="queue")


@console_act
def release(request: HttpRequest, uid: UUID) -> HttpResponse:
    """Release a job from quarantine, so that it takes part in rounds again."""
    with site_scope():
        job = find_visible_job(uid, None)
    if job is None:
        raise Http404
    release_job(actor=actor_of(request), job=job)
    released = _("Released {job}: the next round includes it.")
    messages.success(request, released.format(job=job.name))
    return redirect("operate")
