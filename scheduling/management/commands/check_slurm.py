"""`manage.py check_slurm POOL`: check whether a cluster's settings allow a pool to work."""

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from scheduling.engine.executors.local_files import jobs_root
from scheduling.engine.executors.slurm.checks import check_by_trial, check_cluster, pool_needs
from scheduling.engine.executors.slurm.findings import ClusterFinding, Level
from scheduling.engine.executors.slurm.pool_checks import check_pool
from scheduling.management.cluster_options import add_cluster_arguments, chosen_cluster


class Command(BaseCommand):
    """Query the cluster's tools, and print a line per finding and a total."""

    help = "Check a Slurm cluster before or while a pool runs on it."

    def add_arguments(self, parser: CommandParser) -> None:
        add_cluster_arguments(parser)
        parser.add_argument("--run", action="store_true", help="also run a tiny job on one node")
        parser.add_argument(
            "--node", default="", help="node to run on (default: the first that is up)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Check the cluster, and exit with 1 if there is an error; warnings do not count."""
        cluster, pool = chosen_cluster(options)
        lines: Iterator[ClusterFinding] = check_cluster(cluster, pool_needs(pool) if pool else None)
        if pool is not None:
            lines = chain(lines, check_pool(pool))
        if options["run"]:
            lines = chain(lines, check_by_trial(cluster, jobs_root(), options["node"]))
        levels: Counter[Level] = Counter()
        for finding in lines:
            levels[finding.level] += 1
            self.stdout.write(str(finding))
        errors, warnings = levels[Level.ERROR], levels[Level.WARNING]
        self.stdout.write(f"errors: {errors}, warnings: {warnings}, ok: {levels[Level.OK]}")
        if errors:
            sys.exit(1)
