"""Addresses of the REST API, version 1. What a view shows of money is wired in here."""

from __future__ import annotations

from django.urls import URLPattern, path, register_converter

from billing.api import Charges, PriceList, UsageList
from portal import api
from scheduling.api import jobs, pools
from tenants.api.views import TokenList, TokenOne

MONEY = Charges()
register_converter(api.Anything, "anything")

urlpatterns: list[URLPattern] = [
    path("tokens", TokenList.as_view(), name="api-tokens"),
    path("tokens/<uuid:uid>", TokenOne.as_view(), name="api-token"),
    path("jobs", jobs.JobList.as_view(money=MONEY), name="api-jobs"),
    path("jobs/bulk", jobs.JobBulk.as_view(), name="api-jobs-bulk"),
    path("jobs/dry-run", jobs.JobDryRun.as_view(money=MONEY), name="api-dry-run"),
    path("jobs/<uuid:uid>", jobs.JobShow.as_view(money=MONEY), name="api-job"),
    path("jobs/<uuid:uid>/cancel", jobs.JobCancel.as_view(money=MONEY), name="api-cancel"),
    path("jobs/<uuid:uid>/why", jobs.JobWhy.as_view(), name="api-why"),
    path("jobs/<uuid:uid>/logs", jobs.JobLogs.as_view(), name="api-logs"),
    path("pools", pools.PoolList.as_view(), name="api-pools"),
    path("pools/<slug:name>", pools.PoolShow.as_view(), name="api-pool"),
    path("pools/<slug:name>/queue", pools.PoolQueue.as_view(), name="api-queue"),
    path("quotas", pools.QuotaList.as_view(), name="api-quotas"),
    path("prices", PriceList.as_view(), name="api-prices"),
    path("rounds", pools.RoundList.as_view(), name="api-rounds"),
    path("rounds/<slug:name>/<int:number>", pools.RoundShow.as_view(), name="api-round"),
    path("usage", UsageList.as_view(), name="api-usage"),
    path("schema", api.Schema.as_view(), name="api-schema"),
    path("docs", api.docs, name="api-docs"),
    path("<anything:rest>", api.Unknown.as_view(), name="api-unknown"),
]
