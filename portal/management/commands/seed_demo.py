"""`manage.py seed_demo`: make the demo's pool and people, once."""

from typing import Any

from django.core.management.base import BaseCommand

from portal.demo.philly import seed_demo


class Command(BaseCommand):
    """Seed the demo, unless it exists."""

    help = "Make the demo's pools, tenants and people, unless they exist."

    def handle(self, *args: Any, **options: Any) -> None:
        made = seed_demo()
        self.stdout.write("the demo is made" if made else "the demo already exists")
