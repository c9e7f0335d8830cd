"""The audit log: actors, and values before and after each change. It is append-only."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.http import urlencode

from portal.common.forms import text, whole
from portal.operate.text.audit import action_text, differences
from portal.operate.views.console import console_read, page
from tenants.audit import PAGE, audit_page
from tenants.scopes import site_scope

# The first part of an action's name, with the text of its filter.
KINDS = {
    "quota.": "quotas",
    "tenant.": "tenants",
    "member.": "members",
    "token.": "API tokens",
    "person.": "people",
    "access.": "refusals",
    "pool.": "pool settings",
    "clock.": "clocks",
    "price.": "prices",
    "node.": "nodes",
    "maintenance.": "maintenance",
    "job.": "jobs",
    "simulation.": "simulations",
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
    rows = [
        (row, action_text(row.action), list(differences(row.before, row.after))) for row in records
    ]
    query = urlencode({name: value for name, value in asked.items() if value})
    context: dict[str, Any] = {
        "rows": rows,
        "asked": asked,
        "kinds": KINDS,
        "before": before,
        "more": more,
        "query": query,
        "narrowed": bool(query),
    }
    return page(request, "audit.html", context, key="audit")
