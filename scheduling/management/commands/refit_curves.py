"""`manage.py refit_curves`: fit learning curves as long as new reports come; a worker starts it."""

import os
import time
from typing import Any

from django.core.management.base import BaseCommand

from scheduling.engine.refits import refit

NICE = 10  # a lower priority than rounds and pages
PAUSE_S = 2.0
# The process waits this long for more work, because starting a new process takes longer than a fit.
IDLE_S, LIFE_S = 60.0, 1800.0


class Command(BaseCommand):
    """Forecasts the ends of jobs that stop by a metric; exits after it was idle for a while."""

    help = "Fit learning curves to reports of jobs (started by a worker)."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the forecasts; exit when the worker that started this process ends."""
        os.nice(NICE)
        parent, began = os.getppid(), time.monotonic()
        last = began
        while os.getppid() == parent and time.monotonic() - began < LIFE_S:
            if refit():
                last = time.monotonic()
            elif time.monotonic() - last > IDLE_S:
                return
            time.sleep(PAUSE_S)
