"""Addresses of the REST API, version 1. What views need of an app above is wired in."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path, register_converter

from billing.api import (
    Charges,
    PriceForecasts,
    PriceHistory,
    PriceList,
    UsageList,
    credit,
    ledger_chain,
)
from billing.api.contribution import ContributionShow, IncomeLines, RevenueFairness
from billing.api.income import EntryList, IncomeList
from portal.site import api
from scheduling.api import (
    answers,
    bundles,
    chain,
    jobs,
    losses,
    nodes,
    overdue,
    pools,
    profiles,
    quotas,
    rounds,
    sharing,
    usage,
    verifications,
)
from scheduling.selectors.pools.lines import all_books
from tenants.api.audit import AuditList
from tenants.api.resources import Listed, list_urls
from tenants.api.tenants import TenantList
from tenants.api.tokens import TokenList, TokenOne

MONEY = Charges()
register_converter(api.Anything, "anything")

# What operators change; for finance and auditors to read, for others not there.
OPERATE: list[URLPattern] = [
    path("pools/<slug:name>", pools.OperatePool.as_view()),
    path("pools/<slug:name>/pause", pools.PoolPause.as_view()),
    path("pools/<slug:name>/resume", pools.PoolResume.as_view()),
    path("pools/<slug:name>/scale", pools.PoolScale.as_view()),
    path("pools/<slug:name>/losses", losses.PoolLossesShow.as_view()),
    path("pools/<slug:name>/losses/accept", losses.PoolLossesAccept.as_view()),
    path("pools/<slug:name>/overdue/<uuid:uid>/<int:number>/end", overdue.OverdueEnd.as_view()),
    path("quotas", quotas.OperateQuotaList.as_view()),
    path("quotas/preview", quotas.QuotaPreview.as_view()),
    path("quotas/<slug:name>/<slug:slug>/<slug:gpu_type>", quotas.OperateQuota.as_view()),
    path("nodes/<slug:name>/<slug:node>", nodes.NodeOne.as_view()),
    path("nodes/<slug:name>/<slug:node>/drain", nodes.NodeDrain.as_view()),
    path("nodes/<slug:name>/<slug:node>/resume", nodes.NodeResume.as_view()),
    path("maintenance/<slug:name>/<int:number>", nodes.WindowOne.as_view()),
    path("credit/<slug:slug>/<slug:book>", credit.OperateCredit.as_view()),
    path("allowances", credit.AllowanceList.as_view()),
    path("transfers", credit.OperateTransferList.as_view()),
    path("transfers/<uuid:uid>/approve", credit.TransferApprove.as_view()),
    path("transfers/<uuid:uid>/refuse", credit.TransferRefuse.as_view()),
]

# Lists whose addresses are in their descriptions.
LISTS: list[type[Listed]] = [
    *(jobs.JobList, pools.PoolList, pools.PoolPreemptions, pools.PoolTrades, quotas.QuotaList),
    *(profiles.ProfileList, sharing.OfferList, TokenList),
    *(nodes.NodeList, nodes.WindowList, overdue.OverdueList, TenantList, AuditList),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("tokens/<uuid:uid>", TokenOne.as_view(), name="api-token"),
    path("jobs/bulk", jobs.JobBulk.as_view(money=MONEY), name="api-jobs-bulk"),
    path("jobs/dry-run", jobs.JobDryRun.as_view(money=MONEY), name="api-dry-run"),
    path("jobs/<uuid:uid>", jobs.JobShow.as_view(money=MONEY), name="api-job"),
    path("jobs/<uuid:uid>/cancel", jobs.JobCancel.as_view(money=MONEY), name="api-cancel"),
    path("jobs/<uuid:uid>/why", jobs.JobWhy.as_view(), name="api-why"),
    path("jobs/<uuid:uid>/deadline", answers.JobDeadline.as_view(), name="api-job-deadline"),
    path("jobs/<uuid:uid>/usage", usage.JobUsageShow.as_view(), name="api-job-usage"),
    path("jobs/<uuid:uid>/logs", jobs.JobLogs.as_view(), name="api-logs"),
    path("pools/<slug:name>", pools.PoolShow.as_view(), name="api-pool"),
    path("pools/<slug:name>/queue", pools.PoolQueue.as_view(), name="api-queue"),
    path(
        "pools/<slug:name>/profiles/<slug:slug>/<slug:profile>",
        profiles.ProfileOne.as_view(),
        name="api-profile",
    ),
    path(
        "pools/<slug:name>/sharing/<slug:slug>", sharing.PoolSharing.as_view(), name="api-sharing"
    ),
    path(
        "pools/<slug:name>/sharing/<slug:slug>/<slug:gpu_type>",
        sharing.TypeSharing.as_view(),
        name="api-sharing-type",
    ),
    path(
        "pools/<slug:name>/offers/<slug:slug>/<uuid:offer>",
        sharing.OfferOne.as_view(),
        name="api-offer",
    ),
    path("price-forecasts/<slug:name>", PriceForecasts.as_view(), name="api-price-forecasts"),
    path("prices", PriceList.as_view(), name="api-prices"),
    path("prices/<slug:name>/<slug:gpu_type>", PriceHistory.as_view(), name="api-price-history"),
    path("contribution", ContributionShow.as_view(), name="api-contribution"),
    path("contribution/lines", IncomeLines.as_view(), name="api-income-lines"),
    path(
        "pools/<slug:name>/revenue-fairness",
        RevenueFairness.as_view(),
        name="api-revenue-fairness",
    ),
    path("rounds", rounds.RoundList.as_view(), name="api-rounds"),
    path("rounds/<slug:name>/<int:number>", rounds.RoundShow.as_view(), name="api-round"),
    path("chain/<slug:name>", chain.ChainHead.as_view(), name="api-chain"),
    path("chain/<slug:name>/records", chain.ChainRecords.as_view(), name="api-chain-records"),
    path("chain/<slug:name>/inclusion", chain.ChainInclusion.as_view(), name="api-chain-inclusion"),
    path(
        "chain/<slug:name>/consistency",
        chain.ChainConsistency.as_view(),
        name="api-chain-consistency",
    ),
    path(
        "chain/<slug:name>/verifications",
        verifications.VerificationList.as_view(),
        name="api-chain-verifications",
    ),
    path("ledgers/<slug:book>/chain", ledger_chain.LedgerHead.as_view(), name="api-ledger-chain"),
    path(
        "ledgers/<slug:book>/chain/records",
        ledger_chain.LedgerRecords.as_view(),
        name="api-ledger-chain-records",
    ),
    path(
        "ledgers/<slug:book>/chain/inclusion",
        ledger_chain.LedgerInclusion.as_view(),
        name="api-ledger-chain-inclusion",
    ),
    path(
        "ledgers/<slug:book>/chain/consistency",
        ledger_chain.LedgerConsistency.as_view(),
        name="api-ledger-chain-consistency",
    ),
    path(
        "rounds/<slug:name>/<int:number>/bundle",
        bundles.RoundBundleShow.as_view(),
        name="api-bundle",
    ),
    path("chain/<slug:name>/names", bundles.DayNamesShow.as_view(), name="api-chain-names"),
    path("bundle-schema", bundles.BundleSchema.as_view(), name="api-bundle-schema"),
    path("usage", UsageList.as_view(), name="api-usage"),
    path("income", IncomeList.as_view(), name="api-income"),
    path("entries", EntryList.as_view(), name="api-entries"),
    path("credit", credit.CreditList.as_view(), name="api-credit"),
    path("transfers", credit.TransferList.as_view(), name="api-transfers"),
    path("operate/", include(OPERATE)),
    *list_urls(LISTS, money=MONEY, books=all_books),
    path("schema", api.Schema.as_view(), name="api-schema"),
    path("docs", api.docs, name="api-docs"),
    path("<anything:rest>", api.Unknown.as_view(), name="api-unknown"),
]
