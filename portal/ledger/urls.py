"""URLs of ledgers."""

from django.urls import URLPattern, path

from portal.ledger.views import contribution, income, ledger, statements

urlpatterns: list[URLPattern] = [
    path("ledger/", ledger.accounts, name="ledger"),
    path("t/<slug:slug>/ledger/", ledger.ledger, name="ledger"),
    path("t/<slug:slug>/credit/", ledger.credit, name="credit"),
    path("t/<slug:slug>/ledger/statement/", statements.statement, name="statement"),
    path("t/<slug:slug>/ledger/statement.csv", statements.statement_file, name="statement-file"),
    path("t/<slug:slug>/ledger/contribution/", contribution.statement, name="contribution"),
    path("t/<slug:slug>/ledger/contribution/line/", income.line, name="income-line"),
    path(
        "t/<slug:slug>/ledger/contribution.csv",
        contribution.statement_file,
        name="contribution-file",
    ),
    path("t/<slug:slug>/ledger/<uuid:transfer>/", ledger.transfer, name="transfer"),
    path("pools/<slug:name>/revenue/", contribution.revenue, name="revenue"),
]
