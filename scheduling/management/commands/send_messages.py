"""`manage.py send_messages`: send due messages as long as there are any; a worker starts it."""

import os
import time
from typing import Any

from django.core.management.base import BaseCommand

from scheduling.engine.clock import wall_now
from scheduling.outbox.send import Sender

NICE = 5  # a lower priority than rounds and pages
PAUSE_S = 1.0
# The process waits this long for more messages, because starting a new process takes longer.
IDLE_S, LIFE_S = 120.0, 3600.0


class Command(BaseCommand):
    """Sends messages; exits after it was idle for a while."""

    help = "Send messages to people (started by a worker)."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Send; exit when the worker that started this process ends."""
        os.nice(NICE)
        parent, began = os.getppid(), time.monotonic()
        last = began
        sender = Sender(wall_now, stops=lambda: os.getppid() != parent)
        while os.getppid() == parent and time.monotonic() - began < LIFE_S:
            if sender.run():
                last = time.monotonic()
            elif time.monotonic() - last > IDLE_S:
                return
            time.sleep(PAUSE_S)
