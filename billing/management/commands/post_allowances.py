"""`manage.py post_allowances FILE`: show, and on request post, the allowances of a file."""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.services.allowances import give_allowances, plan_allowances, read_allowances
from tenants.input.errors import InvalidInputError
from tenants.management.acting import acting_as
from tenants.scopes import site_scope

SHOWN = 50


class Command(BaseCommand):
    """Post the new allowances of a file, all of them or none."""

    help = "Show which allowances of a CSV file would be posted; --apply posts them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "file", help="CSV with tenant,amount,name,reason and optionally book; - reads"
        )
        parser.add_argument("--apply", action="store_true", help="post them, in one transaction")
        parser.add_argument("--user", help="the user who applies it, for the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print each line; exit with 1 if the file has an invalid one."""
        try:
            lines = read_allowances(_text(options["file"]))
            if options["apply"]:
                refused = "may not post allowances"
                with acting_as(options["user"], refused=refused) as actor:
                    lines = give_allowances(actor=actor, lines=lines)
            else:
                with site_scope():
                    lines = plan_allowances(lines)
        except InvalidInputError as error:
            for one in error.errors[:SHOWN]:
                self.stderr.write(str(one))
            self.stderr.write("nothing was posted")
            sys.exit(1)
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(str(error)) from error
        for line in lines:
            wanted = line.request
            sign = "=" if line.is_posted else "+"
            text = f"{sign} {wanted.tenant} {wanted.book} {wanted.amount} {wanted.name}"
            self.stdout.write(text + (": posted before" if line.is_posted else ""))
        new = sum(not line.is_posted for line in lines)
        done = "posted" if options["apply"] else "nothing posted: use --apply --user NAME"
        self.stdout.write(f"{new} of {len(lines)} new; {done}")


def _text(name: str) -> str:
    return sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
