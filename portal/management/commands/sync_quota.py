"""`manage.py sync_quota FILE`: show, and on request apply, the changes of a file of quotas.

It is in the outermost app because it reads clocks and nodes, which `tenants` does not know.
"""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduling.selectors.pools.capacity import gpu_type_ids
from scheduling.services.quota_files import pools_today
from tenants.input.errors import InvalidInputError
from tenants.input.readers import REASON_MAX
from tenants.management.acting import acting_as
from tenants.periods import Period, QuotaTerms
from tenants.quota_files import QuotaChange, QuotaLine, read_lines
from tenants.scopes import site_scope
from tenants.services.quota_files import PoolToday, SyncPlan, plan_quota_sync, sync_quotas

SHOWN = 50
SIGNS = {"added": "+", "changed": "~", "removed": "-"}


class Command(BaseCommand):
    """Compare a file with the present and planned quotas. Apply all of its changes or none."""

    help = "Show what a CSV or YAML file of quotas would change; --apply changes it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", help="CSV, or YAML by its ending; - reads CSV from input")
        parser.add_argument("--pool", help="the file may name this pool only")
        parser.add_argument("--apply", action="store_true", help="write it, in one transaction")
        parser.add_argument("--user", help="the operator who applies it, for the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the differences and sums; exit with 1 if the file has an invalid line."""
        name = options["file"]
        try:
            lines = _read(name)
            with site_scope():
                pools, types = _pools(lines, options["pool"]), gpu_type_ids()
                plan = plan_quota_sync(lines, pools, types)
            if options["apply"]:
                reason = f"sync_quota {Path(name).name}"[:REASON_MAX]
                with acting_as(options["user"]) as actor:
                    plan = sync_quotas(
                        actor=actor, lines=lines, pools=pools, types=types, reason=reason
                    )
        except InvalidInputError as error:
            self._refuse(error)
            sys.exit(1)
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(str(error)) from error
        self._tell(plan, pools, applied=options["apply"])

    def _refuse(self, error: InvalidInputError) -> None:
        for one in error.errors[:SHOWN]:
            self.stderr.write(str(one))
        if len(error.errors) > SHOWN:
            self.stderr.write(f"... and {len(error.errors) - SHOWN:,} more")
        self.stderr.write("nothing was changed")

    def _tell(self, plan: SyncPlan, pools: dict[str, PoolToday], *, applied: bool) -> None:
        for change in plan.changes:
            self.stdout.write(_change(change, pools[change.name.pool]))
        for total in plan.sums:
            line = f"{total.pool} {total.gpu_type}: {total.now} of {total.capacity} GPUs"
            if total.most != total.now:
                line += f", {total.most} from {total.at:%Y-%m-%d %H:%M} UTC on"
            if total.over:
                line += f": quotas exceed capacity by {total.over}"
            self.stdout.write(line)
        for warning in plan.warnings:
            self.stdout.write(f"warning: {warning}")
        if not plan.changes:
            self.stdout.write("no change")
            return
        kinds = [change.kind for change in plan.changes]
        counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in SIGNS)
        done = "applied" if applied else "nothing written; to write, add --apply --user NAME"
        self.stdout.write(f"{counted}; {done}")


def _read(name: str) -> list[QuotaLine]:
    if name == "-":
        return read_lines(sys.stdin.read(), is_yaml=False)
    path = Path(name)
    return read_lines(path.read_text("utf-8"), is_yaml=path.suffix.lower() in (".yaml", ".yml"))


def _pools(lines: list[QuotaLine], only: str | None) -> dict[str, PoolToday]:
    """Return the pools in the file, or the named pool if the file has no rows."""
    names = [only] if only else {line.name.pool for line in lines}
    pools = pools_today(names)
    if only and only not in pools:
        raise CommandError(f"there is no pool {only}")
    return pools


def _change(change: QuotaChange, pool: PoolToday) -> str:
    tenant, name, gpu_type = change.name
    head = f"{SIGNS[change.kind]} {tenant} {name} {gpu_type}: "
    before, after = (
        "; ".join(_period(one, pool) for one in rows) for rows in (change.before, change.after)
    )
    if change.kind == "changed":
        return f"{head}{before} -> {after}"
    return head + (after or f"{before} -> ends now")


def _period(period: Period, pool: PoolToday) -> str:
    begins = "now" if period.since <= pool.now else f"{period.since:%Y-%m-%d %H:%M}"
    ends = f" until {period.until:%Y-%m-%d %H:%M}" if period.until else ""
    return f"{_terms(period.terms)} from {begins}{ends}"


def _terms(terms: QuotaTerms) -> str:
    limits = (("borrows", terms.borrow_limit), ("lends", terms.lend_limit))
    limits_text = "".join(f", {word} at most {most}" for word, most in limits if most is not None)
    return f"{terms.gpus} {terms.mode}{limits_text}"
