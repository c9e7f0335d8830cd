"""`manage.py set_executor_options POOL`: set all options of a pool's executor."""

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduling.management.cluster_options import named_pool
from scheduling.requests.executor_options import parse_executor_options
from scheduling.services.executors import change_executor_options
from tenants.input.errors import InvalidInputError
from tenants.input.readers import REASON_MAX
from tenants.management.acting import acting_as


class Command(BaseCommand):
    """Replace a pool's executor options, including those of the portal's machine."""

    help = "Set the options of a pool's executor from JSON; without --user, show them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("pool", help="the pool's name")
        parser.add_argument(
            "file", nargs="?", default="", help="a file with JSON; - or omitted: standard input"
        )
        parser.add_argument("--user", default="", help="the operator, for the audit log")
        parser.add_argument("--reason", default="", help="the reason, for the audit log")
        parser.add_argument(
            "--same-cluster",
            action="store_true",
            help="allow changes of options by which running leases are found, because the"
            " cluster is still the same",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Set the options; if they are wrong, print the errors by field and exit with 1."""
        pool = named_pool(options["pool"])
        if not options["user"]:
            if any(options[name] for name in ("file", "reason", "same_cluster")):
                raise CommandError("nothing is changed without --user NAME, the operator")
            self.stdout.write(json.dumps(pool.executor_options, indent=2, ensure_ascii=False))
            return
        try:
            with acting_as(options["user"]) as actor:
                changed = change_executor_options(
                    actor=actor,
                    pool_id=pool.pk,
                    options=parse_executor_options(_read(options["file"] or "-")),
                    reason=options["reason"][:REASON_MAX],
                    on_host=True,
                    same_cluster=options["same_cluster"],
                )
        except InvalidInputError as error:
            raise CommandError("\n".join(map(str, error.errors))) from error
        self.stdout.write(
            f"the next leases of {pool.name} are launched with it" if changed else "nothing changes"
        )


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{file}: not UTF-8") from error
