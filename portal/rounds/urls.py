"""Addresses of rounds."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.rounds import counterfactual, live, views

urlpatterns: list[URLPattern] = [
    path("pools/<slug:name>/line/", live.round_line, name="round-line"),
    path("pools/<slug:name>/rounds/", views.round_list, name="round-list"),
    path("pools/<slug:name>/rounds/<int:number>/", views.round_page, name="round"),
    path(
        "pools/<slug:name>/rounds/<int:number>/otherwise/",
        counterfactual.otherwise_page,
        name="otherwise",
    ),
]
