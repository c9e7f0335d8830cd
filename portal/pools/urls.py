"""Addresses of pools, their prices and their start estimates."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.pools.views import pool, prices, starts

urlpatterns: list[URLPattern] = [
    path("pools/<slug:name>/", pool.pool, name="pool"),
    path("pools/<slug:name>/prices/", prices.prices, name="prices"),
    path("pools/<slug:name>/starts/", starts.starts, name="starts"),
]
