"""`manage.py up`: the whole portal as one supervised process tree."""

from typing import Any

from django.core.management.base import BaseCommand

from portal.embedded import supervisor


class Command(BaseCommand):
    """Lists `up` in `manage.py help`; manage.py itself starts the portal without this class."""

    help = "Start PostgreSQL, Valkey, web, workers and beat; PORT and VERBOSE are read."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        raise SystemExit(supervisor.main())
