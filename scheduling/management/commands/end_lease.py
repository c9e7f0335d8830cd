"""`manage.py end_lease POOL [JOB LEASE]`: end a lease whose process its engine does not end."""

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduling.engine.clock import read_clock
from scheduling.management.cluster_options import named_pool
from scheduling.models import Pool
from scheduling.requests.leases import EndLeaseRequest, Processes
from scheduling.selectors.operate.overdue import overdue_leases
from scheduling.services.write_offs import end_lease
from tenants.input.errors import InvalidInputError
from tenants.input.requests import read_request
from tenants.management.acting import acting_as
from tenants.scopes import site_scope


class Command(BaseCommand):
    help = "List a pool's leases that should have ended, or end one of them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("pool", help="the pool's name")
        parser.add_argument(
            "job", nargs="?", type=UUID, help="the job's id; omit it to list leases"
        )
        parser.add_argument("lease", nargs="?", type=int, help="the lease's number within the job")
        parser.add_argument("--user", default="", help="the operator, for the audit log")
        parser.add_argument("--reason", default="", help="the reason, for the audit log")
        parser.add_argument(
            "--processes",
            choices=[one.value for one in Processes],
            help="gone: its GPUs go to other jobs; unknown: the nodes of the lease are drained",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """List the leases, or end one. If this is impossible, print the reason and exit with 1."""
        pool = named_pool(options["pool"])
        if options["job"] is None:
            self._list(pool)
            return
        given = {name: options[name] for name in ("processes", "reason") if options[name]}
        try:
            request, number = read_request(EndLeaseRequest, given), options["lease"] or 0
            with acting_as(options["user"]) as actor:
                is_new = end_lease(
                    actor=actor, pool=pool, job=options["job"], number=number, request=request
                )
        except InvalidInputError as error:
            refused = [f"{one.field}: {one.reason}" for one in error.errors]
            raise CommandError("; ".join(refused)) from error
        said = "the next round" if is_new else "already requested: the next round"
        self.stdout.write(f"{said} ends lease {options['lease']} of job {options['job']}")

    def _list(self, pool: Pool) -> None:
        now = read_clock(pool.pk)
        with site_scope():
            rows = overdue_leases(pool, now.pool_at, now.scale)
        if not rows:
            self.stdout.write(f"no lease of {pool.name} is overdue")
        for row in rows:
            written_off = " the next round ends it" if row.is_written_off else ""
            self.stdout.write(
                f"{row.job.uid} {row.number} {row.tenant} {row.gpus} GPUs on"
                f" {','.join(row.nodes)}, due {row.due:%Y-%m-%dT%H:%M:%SZ}, engine:"
                f" {row.engine.value} {row.error}{written_off}"
            )
