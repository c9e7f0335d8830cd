"""Django application `scheduling`."""

from django.apps import AppConfig


class SchedulingConfig(AppConfig):
    name = "scheduling"
