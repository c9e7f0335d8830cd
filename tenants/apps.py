"""Django application `tenants`."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Tenants, members, quotas and budgets."""

    name = "tenants"
