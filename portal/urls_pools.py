"""Addresses of pools, rounds, prices and ledgers."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from portal.views import ledger, otherwise, pools, prices, rounds

urlpatterns: list[URLPattern | URLResolver] = [
    path("pools/<slug:name>/", pools.pool, name="pool"),
    path("pools/<slug:name>/prices/", prices.prices, name="prices"),
    path("pools/<slug:name>/rounds/", rounds.round_list, name="round-list"),
    path("pools/<slug:name>/rounds/<int:number>/", rounds.round_page, name="round"),
    path(
        "pools/<slug:name>/rounds/<int:number>/otherwise/",
        otherwise.otherwise_page,
        name="otherwise",
    ),
    path("ledger/", ledger.accounts, name="ledger"),
    path("t/<slug:slug>/ledger/", ledger.ledger, name="ledger"),
    path("t/<slug:slug>/ledger/<uuid:transfer>/", ledger.transfer, name="transfer"),
]
