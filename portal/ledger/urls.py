"""Addresses of ledgers."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.ledger.views import ledger

urlpatterns: list[URLPattern] = [
    path("ledger/", ledger.accounts, name="ledger"),
    path("t/<slug:slug>/ledger/", ledger.ledger, name="ledger"),
    path("t/<slug:slug>/ledger/statement/", ledger.statement, name="statement"),
    path("t/<slug:slug>/ledger/statement.csv", ledger.statement_file, name="statement-file"),
    path("t/<slug:slug>/ledger/<uuid:transfer>/", ledger.transfer, name="transfer"),
]
