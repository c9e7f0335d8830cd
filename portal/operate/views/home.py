"""The console's first page: alerts, then pools and the last changes."""

from collections import Counter
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.charts.figures import thousands
from portal.common.clocks import pool_now
from portal.operate.text.audit import action_text, subject_of
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
from scheduling.selectors.pools.vitals import active_jobs, gpu_counts
from scheduling.selectors.sharing.quota_requests import count_open_requests, list_quota_requests
from scheduling.services.jobs import release_job
from tenants.audit import audit_page
from tenants.scopes import site_scope
from tenants.selectors.tenants import all_tenants

LISTED = 5  # open requests for quota
CHANGES = 6
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
    """Show the queue, worst first, and below it every pool and the last changes."""
    with site_scope():
        pools = all_pools()
        now = {facts.id: pool_now(facts).pool_at for facts in pools}
        alerts = queue(pools, now, with_jobs=may_see_jobs(request))
        used, jobs = _used_gpus(), active_jobs()
        changes = audit_page(limit=CHANGES)[0]
        names = {tenant.slug: tenant.name for tenant in all_tenants()}
        requests = list_quota_requests(None, state="open", limit=LISTED)[0]
        waiting = sum(count_open_requests().values())
    count = len(alerts)
    context = {
        "alerts": alerts,
        "count_text": _(NUMBERS[count]) if count in NUMBERS else thousands(count),
        "pools": [
            (facts, line_of(facts), used[facts.id], jobs.get((facts.id, "pending"), 0))
            for facts in pools
        ],
        "changes": [
            (row, action_text(row.action), subject_of(row.subject, names)) for row in changes
        ],
        "requests": requests,
        "requests_title": open_text(waiting),
        "live": True,
    }
    return page(request, "home.html", context, key="queue")


def _used_gpus() -> Counter[int]:
    """Return by pool the number of GPUs that leases hold."""
    used: Counter[int] = Counter()
    for count in gpu_counts():
        used[count.pool] += count.used
    return used


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
