"""Django application `tenants`."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Tenants, members, quotas and budgets."""

    default_auto_field = "django.db.models.BigAutoField"
    name = "tenants"
