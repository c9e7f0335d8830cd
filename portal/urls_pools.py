"""Addresses of the pages about pools: node map, rounds, ledger."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.urls import URLPattern, path


def _soon(_request: HttpRequest, **_names: Any) -> HttpResponseBase:
    raise Http404


urlpatterns: list[URLPattern] = [
    path("pools/<slug:name>/", _soon, name="pool"),
    path("pools/<slug:name>/rounds/", _soon, name="round-list"),
    path("pools/<slug:name>/rounds/<int:number>/", _soon, name="round"),
    path("ledger/", _soon, name="ledger"),
]
