"""`manage.py rotate_log_key`: make a new key for heads of logs; old ones sign for a while, too."""

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tenants.transparency.keys import OVERLAP_DAYS, OVERLAP_DAYS_MAX, LogKeyError, rotate


class Command(BaseCommand):
    """Make a new key, and print until when the old keys sign."""

    help = "Sign the heads of logs with a new key; the old key also signs for some days."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--overlap-days",
            type=int,
            default=OVERLAP_DAYS,
            help=f"days that the old key also signs, 0 to {OVERLAP_DAYS_MAX} (default:"
            f" {OVERLAP_DAYS})",
        )
        parser.add_argument(
            "--lost", action="store_true", help="the old key's file is lost: it stops signing now"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Rotate the key; exit with 1 and the error on failure."""
        days = options["overlap_days"]
        if not 0 <= days <= OVERLAP_DAYS_MAX:
            raise CommandError(f"--overlap-days is {days}, not 0 to {OVERLAP_DAYS_MAX}")
        try:
            public = rotate(overlap=timedelta(days=days), is_lost=options["lost"])
        except LogKeyError as error:
            raise CommandError(str(error)) from error
        ended = "has ended" if options["lost"] else f"also signs for {days} days"
        self.stdout.write(f"new key {public.hex()}; the old one {ended}")
