"""`manage.py accept_losses POOL`: declare leases lost that the executor does not list."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from evenshare_core.domain.plurals import plural
from scheduling.management.cluster_options import named_pool
from scheduling.services.executors import accept_losses
from tenants.input.errors import InvalidInputError
from tenants.input.readers import REASON_MAX
from tenants.management.acting import acting_as


class Command(BaseCommand):
    """Make the next round end the leases of a mass disappearance."""

    help = "Accept the loss of leases that a pool's executor does not list."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("pool", help="the pool's name")
        parser.add_argument("--user", required=True, help="the operator, for the audit log")
        parser.add_argument("--reason", default="", help="the reason, for the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        """Accept the losses. If this is impossible, print the reason and exit with 1."""
        pool = named_pool(options["pool"])
        try:
            with acting_as(options["user"]) as actor:
                reason = options["reason"][:REASON_MAX]
                leases, _ = accept_losses(actor=actor, pool=pool, reason=reason)
        except InvalidInputError as error:
            raise CommandError("; ".join(one.reason for one in error.errors)) from error
        self.stdout.write(f"the next round ends {plural(leases, 'lease')} of {pool.name} as lost")
