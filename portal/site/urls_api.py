"""URLs of the REST API, version 1. Dependencies of views on outer apps are injected here."""

from django.urls import URLPattern, path, register_converter

from billing.api import contribution, credit, income, ledger_chain
from billing.api import usage as money
from portal.site import api, api_docs
from scheduling.api import (
    answers,
    bundles,
    chain,
    fairness,
    job_actions,
    job_files,
    job_metrics,
    jobs,
    losses,
    messages,
    nodes,
    overdue,
    pools,
    profiles,
    queue,
    quota_requests,
    quotas,
    rounds,
    sessions,
    sharing,
    sweeps,
    usage,
    verifications,
)
from scheduling.selectors.pools.lines import all_books
from tenants.api import audit, members, tenants, tokens
from tenants.api.resources import addressed, urls_of

register_converter(api.Anything, "anything")

# Modules of views, which declare their URLs.
VIEWS = addressed(
    [
        *(answers, bundles, chain, fairness, jobs, losses, nodes, overdue, pools, profiles, queue),
        *(job_actions, job_files, job_metrics, messages, quotas, rounds, sharing),
        *(quota_requests, sessions, sweeps, usage, verifications),
        *(contribution, credit, income, ledger_chain, money),
        *(audit, members, tenants, tokens),
    ]
)

urlpatterns: list[URLPattern] = [
    *urls_of(VIEWS, money=money.Charges(), books=all_books),
    path("schema", api.Schema.as_view(), name="api-schema"),
    path("docs", api_docs.docs, name="api-docs"),
    path("docs/<slug:resource>", api_docs.resource_page, name="api-resource"),
    path("<anything:rest>", api.Unknown.as_view(), name="api-unknown"),
]
