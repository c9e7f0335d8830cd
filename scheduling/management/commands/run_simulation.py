"""`manage.py run_simulation`: run one simulation, in a process that only a worker starts."""

import os
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from scheduling.services.execute_simulation import execute_simulation

NICE = 10  # a lower priority than rounds, pages and metering


class Command(BaseCommand):
    """Runs a simulation that a worker has claimed, at a low priority."""

    help = "Run a simulation that was requested on a pool's page (started by a worker)."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the arguments: the simulation, and the claim under which it may be written."""
        parser.add_argument("simulation", type=int)
        parser.add_argument("claim")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the simulation, and store the result in its row."""
        os.nice(NICE)
        parent = os.getppid()
        execute_simulation(
            options["simulation"],
            options["claim"],
            timer=time.monotonic,
            is_orphan=lambda: os.getppid() != parent,
        )
