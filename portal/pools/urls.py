"""Addresses of pools and their prices."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.pools.views import pool, pools, prices

urlpatterns: list[URLPattern] = [
    path("pools/", pools.pools, name="pool-list"),
    path("pools/<slug:name>/", pool.pool, name="pool"),
    path("pools/<slug:name>/prices/", prices.prices, name="prices"),
]
