"""Addresses of pools and their prices."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.pools import prices, views

urlpatterns: list[URLPattern] = [
    path("pools/<slug:name>/", views.pool, name="pool"),
    path("pools/<slug:name>/prices/", prices.prices, name="prices"),
]
