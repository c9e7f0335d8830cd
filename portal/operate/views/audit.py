"""The audit log: actors, and values before and after each change. It is append-only."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.common.forms import text, whole
from portal.operate.text.audit import (
    action_text,
    audit_headline,
    differences,
    subject_of,
)
from portal.operate.views.console import console_read, page
from tenants.audit import PAGE, audit_page
from tenants.scopes import site_scope
from tenants.selectors.tenants import all_tenants

# The first part of an action's name, with the text of its filter.
KINDS = {
    "quota.": gettext_noop("quotas"),
    "tenant.": gettext_noop("tenants"),
    "member.": gettext_noop("members"),
    "token.": gettext_noop("API tokens"),
    "person.": gettext_noop("people"),
    "access.": gettext_noop("refusals"),
    "pool.": gettext_noop("pool settings"),
    "clock.": gettext_noop("clocks"),
    "price.": gettext_noop("prices"),
    "node.": gettext_noop("nodes"),
    "maintenance.": gettext_noop("maintenance windows"),
    "job.": gettext_noop("jobs"),
    "simulation.": gettext_noop("simulations"),
}


@console_read
def log(request: HttpRequest) -> HttpResponse:
    """Show the newest records first, paged by key."""
    asked = {name: text(request.GET, name) for name in ("action", "subject", "actor")}
    if asked["action"] not in KINDS:
        asked["action"] = ""
    before = whole(request.GET.get("before"))
    with site_scope():
        records, more = audit_page(**asked, before_id=before, limit=PAGE)
        names = {tenant.slug: tenant.name for tenant in all_tenants()}
    rows = [
        (
            row,
            action_text(row.action),
            subject_of(row.subject, names),
            list(differences(row.before, row.after)),
        )
        for row in records
    ]
    query = urlencode({name: value for name, value in asked.items() if value})
    context: dict[str, Any] = {
        "rows": rows,
        "headline": audit_headline(
            [row.actor for row in records], is_all=more is None, is_older=before is not None
        ),
        "asked": asked,
        "kinds": {action: _(kind) for action, kind in KINDS.items()},
        "before": before,
        "more": more,
        "query": query,
        "narrowed": bool(query),
    }
    return page(request, "audit.html", context, key="audit")
