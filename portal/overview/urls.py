"""Addresses of a tenant's overview."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.overview import views

urlpatterns: list[URLPattern] = [
    path("t/<slug:slug>/", views.dashboard, name="dashboard"),
]
