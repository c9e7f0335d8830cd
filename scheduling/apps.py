"""Django application `scheduling`."""

from django.apps import AppConfig


class SchedulingConfig(AppConfig):
    """Pools, jobs, leases, rounds and the engine that runs them."""

    default_auto_field = "django.db.models.BigAutoField"
    name = "scheduling"
