"""URLs of the operator's console."""

from django.urls import URLPattern, path

from portal.operate.views import (
    audit,
    credit,
    health,
    home,
    nodes,
    people,
    policies,
    pools,
    quota_requests,
    quotas,
    simulations,
    tenants,
)

urlpatterns: list[URLPattern] = [
    path("", home.home, name="operate"),
    path("jobs/<uuid:uid>/release/", home.release, name="operate-release"),
    path("tenants/", tenants.tenant_list, name="operate-tenants"),
    path("tenants/<slug:slug>/", tenants.members, name="operate-tenant"),
    path("people/", people.people, name="operate-people"),
    path("credit/", credit.accounts, name="operate-credit"),
    path("credit/<slug:slug>/<slug:book>/", credit.terms, name="operate-credit-terms"),
    path("audit/", audit.log, name="operate-audit"),
    path("quota-requests/", quota_requests.requests, name="operate-quota-requests"),
    path("quota-requests/<uuid:uid>/", quota_requests.one, name="operate-quota-request"),
    path("pools/<slug:name>/quotas/", quotas.grid, name="operate-quotas"),
    path("pools/<slug:name>/quotas/undo/", quotas.undo, name="operate-quotas-undo"),
    path("pools/<slug:name>/nodes/", nodes.nodes, name="operate-nodes"),
    path("pools/<slug:name>/settings/", pools.settings, name="operate-pool"),
    path("pools/<slug:name>/policies/", policies.policies, name="operate-policies"),
    path("pools/<slug:name>/health/", health.health, name="operate-health"),
    path("pools/<slug:name>/what-if/", simulations.simulations, name="operate-simulations"),
    path(
        "pools/<slug:name>/what-if/<int:number>/", simulations.simulation, name="operate-simulation"
    ),
    path(
        "pools/<slug:name>/what-if/<int:number>/cancel/",
        simulations.cancel,
        name="operate-simulation-cancel",
    ),
    path(
        "pools/<slug:name>/what-if/<int:number>/show/",
        simulations.show,
        name="operate-simulation-show",
    ),
]
