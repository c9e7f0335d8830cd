"""`manage.py sync_nodes POOL --user NAME`: add the nodes of a pool's engine to the pool."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduling.engine.executors.base import ExecutorError
from scheduling.management.cluster_options import named_pool
from scheduling.services.node_sync import (
    SyncedNode,
    engine_nodes,
    plan_node_sync,
    pools_beside,
    sync_nodes,
)
from tenants.audit import Actor
from tenants.management.acting import acting_as

SIGNS = {"added": "+", "changed": "~", "drained": "-"}
UNITS = {"gpus": ("GPU", "GPUs"), "cpus": ("CPU", "CPUs"), "memory_mb": ("MB of memory",) * 2}


class Command(BaseCommand):
    """Add new nodes, change nodes that differ, and drain nodes that are gone."""

    help = "Add, change and drain a pool's nodes to match its engine; never remove them"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("pool", help="its name")
        parser.add_argument("--dry-run", action="store_true", help="only show what would change")
        parser.add_argument("--user", help="the operator, for the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line for each change, and for each node that stays unchanged."""
        pool = named_pool(options["pool"])
        is_dry = options["dry_run"]
        acting: AbstractContextManager[Actor | None]
        acting = nullcontext() if is_dry else acting_as(options["user"])
        try:
            # Check the user first: the engine may be slow or fail to answer.
            with acting as actor:
                there, beside = engine_nodes(pool), pools_beside(pool)
                if actor is None:
                    changes, left = plan_node_sync(pool, there, beside)
                else:
                    changes, left = sync_nodes(actor=actor, pool=pool, there=there, beside=beside)
        except ExecutorError as error:
            raise CommandError(str(error)) from error
        for change in changes:
            self.stdout.write(_line(change))
        for name, why in left:
            self.stderr.write(f"! {name}: {why}")
        if not changes:
            self.stdout.write("nothing to change")
        elif is_dry:
            self.stdout.write("nothing written: use --user NAME instead of --dry-run")


def _amount(count: object, name: str) -> str:
    one, many = UNITS[name]
    return f"{count} {one if count == 1 else many}"


def _line(change: SyncedNode) -> str:
    head = f"{SIGNS[change.kind]} {change.name}: "
    if change.kind == "drained":
        return head + "drained: its engine no longer has it"
    parts = {name: _amount(change.after[name], name) for name in UNITS if name in change.after}
    if change.kind == "added":
        return f"{head}{change.after['gpu_type']}, {', '.join(parts.values())}"
    return head + ", ".join(f"{change.before[name]} -> {word}" for name, word in parts.items())
