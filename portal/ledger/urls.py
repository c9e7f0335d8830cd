"""Addresses of ledgers."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.ledger import views

urlpatterns: list[URLPattern] = [
    path("ledger/", views.accounts, name="ledger"),
    path("t/<slug:slug>/ledger/", views.ledger, name="ledger"),
    path("t/<slug:slug>/credit/", views.credit, name="credit"),
    path("t/<slug:slug>/ledger/statement/", views.statement, name="statement"),
    path("t/<slug:slug>/ledger/statement.csv", views.statement_file, name="statement-file"),
    path("t/<slug:slug>/ledger/<uuid:transfer>/", views.transfer, name="transfer"),
]
