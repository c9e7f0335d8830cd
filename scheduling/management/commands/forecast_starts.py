"""`manage.py forecast_starts`: make one forecast, in a process that only a worker starts."""

import os
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from scheduling.services.execute_forecast import execute_forecast

NICE = 19  # the lowest priority


class Command(BaseCommand):
    """Makes a forecast that a worker has claimed, at the lowest priority."""

    help = "Estimate when a pool's queued jobs will start (started by a worker)."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the arguments: the forecast, and the claim under which its result may be written."""
        parser.add_argument("forecast", type=int)
        parser.add_argument("claim")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the forecast, and store the result in its row."""
        os.nice(NICE)
        parent = os.getppid()
        execute_forecast(
            options["forecast"],
            options["claim"],
            timer=time.monotonic,
            cpu=time.process_time,
            is_orphan=lambda: os.getppid() != parent,
        )
