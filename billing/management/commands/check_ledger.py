"""`manage.py check_ledger`: print one line per invariant of the books; fail if one is broken."""

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from billing.checks import run_checks
from billing.checks.base import CheckReport

SHOWN = ("name", "checked", "violations", "ok")


class Command(BaseCommand):
    """Check the books on one consistent state, on the live system."""

    help = "Check every invariant of the books; exit 1 if one is broken."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="results as one JSON document")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the results; exit with 1 after a violation."""
        results = run_checks()
        if options["json"]:
            shown = [{name: getattr(row, name) for name in SHOWN} for row in results]
            self.stdout.write(json.dumps(shown, indent=2))
        else:
            for result in results:
                self._print(result)
        if not all(result.ok for result in results):
            sys.exit(1)

    def _print(self, result: CheckReport) -> None:
        verdict = "ok    " if result.ok else "BROKEN"
        self.stdout.write(f"{verdict} {result.name:28} {result.checked:>9,} checked")
        for violation in result.violations:
            self.stdout.write(f"         {violation}")
