"""The cluster of a command: that of a pool, or one given on the command line."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.slurm.options import SlurmOptions, read_options
from scheduling.models import Pool
from scheduling.selectors.pools.lines import no_pool_text
from tenants.scopes import site_scope


def add_cluster_arguments(parser: CommandParser) -> None:
    """Add the arguments for a pool, or for a partition with its slurm.conf."""
    parser.add_argument(
        "pool", nargs="?", help="a pool, whose executor_options give all other options"
    )
    parser.add_argument("--partition", help="without a pool: the partition to check")
    parser.add_argument(
        "--conf", default="", help="path of slurm.conf, unless it is the tools' default"
    )


def chosen_cluster(options: dict[str, Any]) -> tuple[SlurmOptions, Pool | None]:
    """Return the options of the cluster, and the pool, if one was given.

    Raises:
        CommandError: neither or both are given, the pool does not exist, or its options are wrong.
    """
    if bool(options["pool"]) == bool(options["partition"]):
        raise CommandError("give either a pool or a --partition")
    given = {"conf": options["conf"], "partition": options["partition"]}
    pool = named_pool(options["pool"]) if options["pool"] else None
    try:
        if pool is None:
            return read_options(given, "on the command line"), None
        return read_options(pool.executor_options, pool.name), pool
    except ExecutorError as error:
        raise CommandError(str(error)) from error


def named_pool(name: str) -> Pool:
    with site_scope():
        pool = Pool.objects.filter(name=name).first()
        if pool is None:
            raise CommandError(no_pool_text(name))
    return pool
