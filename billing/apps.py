"""Django application `billing`."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    """Prices, usage, and the double-entry ledger."""

    name = "billing"
