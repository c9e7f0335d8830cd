"""`manage.py export_quota`: write the present and planned quotas as a file for `sync_quota`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduling.selectors.pools.capacity import gpu_type_ids
from scheduling.services.quota_files import pools_today
from tenants.quota_files import format_csv, format_yaml
from tenants.scopes import site_scope
from tenants.services.quota_files import export_quotas


class Command(BaseCommand):
    """Write quotas to the standard output."""

    help = "Write quotas as CSV or YAML, to be reviewed and given to sync_quota."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--pool", help="this pool only")
        parser.add_argument("--format", choices=["csv", "yaml"], default="csv")
        parser.add_argument("--history", action="store_true", help="past periods too")

    def handle(self, *args: Any, **options: Any) -> None:
        only = options["pool"]
        with site_scope():
            pools = pools_today([only] if only else None)
            if only and not pools:
                raise CommandError(f"there is no pool {only}")
            rows = export_quotas(pools.values(), gpu_type_ids(), history=options["history"])
        written = format_yaml(rows) if options["format"] == "yaml" else format_csv(rows)
        self.stdout.write(written, ending="")
