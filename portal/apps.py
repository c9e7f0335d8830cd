"""Django application `portal`, the outermost layer."""

from django.apps import AppConfig


class PortalConfig(AppConfig):
    """Pages, the API's root, start-up checks, and the process tree."""

    name = "portal"

    def ready(self) -> None:
        # `shared_task` needs the application in every process that sends a wake-up.
        from portal.site import celery, checks  # noqa: F401, PLC0415 - registers, once models are there
