"""`manage.py shadow_slurm POOL`: watch a partition, and report what policies would have decided.

Nothing is submitted, changed or cancelled: it calls only squeue and sinfo.
"""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from evenshare_core.cli.files import InputError, opened
from evenshare_core.cli.inputs import add_overheads, rules_of
from evenshare_core.csv_cells import write_csv
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.invariants import InvariantViolation
from evenshare_core.domain.plurals import plural
from evenshare_core.formulations.problems import ShareError
from evenshare_core.policies.registry import DEFAULT
from evenshare_core.simulation.pool_files import PoolQuota, nodes_csv, read_quotas
from evenshare_core.simulation.shadow import (
    WatchedPool,
    decide_now,
    observed_side,
    policy_side,
    watched_pool,
)
from evenshare_core.simulation.shadow_report import shadow_csv, shadow_report
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.tables import TableError
from evenshare_core.simulation.workload_files import workload_csv
from evenshare_core.units import SECOND_US
from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.slurm.observation import TENANT_KEYS
from scheduling.engine.executors.slurm.watch import (
    PartitionLook,
    PartitionWatch,
    keep_watching,
    write_file,
)
from scheduling.management.cluster_options import add_cluster_arguments, chosen_cluster
from scheduling.models import Pool

HAPPENED = "Slurm"
DECISION_COLUMNS = ("at", "policy", "job", "tenant", "gpus", "what", "nodes")
SHOWN = 8


class Command(BaseCommand):
    """Watch a partition, then compare Slurm's schedule with that of each policy."""

    help = "Watch a Slurm partition and compare it with policies, without changing anything."

    def add_arguments(self, parser: CommandParser) -> None:
        add_cluster_arguments(parser)
        add = parser.add_argument
        add(
            "--minutes", type=float, default=60, help="minutes to watch; 0: poll once (%(default)s)"
        )
        add("--interval-s", type=float, default=30, help="seconds between polls (%(default)s)")
        add("--out", metavar="FOLDER", help="folder of the recording; a later run continues it")
        add(
            "--tenant",
            choices=TENANT_KEYS,
            default="account",
            help="what counts as a tenant (%(default)s)",
        )
        add("--policy", metavar="P[,P...]", help="policies (the pool's, or the default one)")
        add(
            "--option",
            action="append",
            default=[],
            metavar="P.KEY=VALUE",
            help="an option of a policy",
        )
        add(
            "--quotas",
            metavar="FILE",
            help="CSV of tenant, gpu_type, gpus, ...; default: by demand",
        )
        add("--round-s", type=float, help="seconds between rounds (the pool's, or 10)")
        add("--lease-s", type=float, help="seconds per lease (the pool's, or 900)")
        add_overheads(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Poll until the time is over or the user interrupts; then write the report."""
        if options["minutes"] < 0 or options["interval_s"] < 1:
            raise CommandError("--minutes must be at least 0, --interval-s at least 1")
        try:
            self._watch(options)
        except (InputError, ExecutorError, TableError, ShareError) as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}") from error

    def _watch(self, options: dict[str, Any]) -> None:
        cluster, pool = chosen_cluster(options)
        rules, quotas = _rules(options, pool), _quotas(options["quotas"])
        folder = Path(options["out"]) if options["out"] else None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        names = {gres: name for name, gres in cluster.gres_types.items()}
        watch = PartitionWatch(cluster, folder, options["tenant"], names)
        watch.load()
        decided: list[tuple[object, ...]] = []

        def on_look(look: PartitionLook) -> None:
            seen = watched_pool(watch.watch(), quotas)
            gpus = plural(look.gpus_held, "GPU")
            text = f"running {look.running:,} on {gpus}, queued {look.queued:,}"
            self.stdout.write(f"{datetime.fromtimestamp(look.at, UTC):%H:%M:%S} {text}")
            for one in rules.values():
                rows = self._decided(seen, one)
                decided.extend((look.at, *row) for row in rows)

        try:
            seconds = options["minutes"] * 60
            keep_watching(watch, seconds=seconds, interval_s=options["interval_s"], on_look=on_look)
        except KeyboardInterrupt:
            self.stderr.write("stopped; recorded so far:")
            if not watch.is_open:
                return
        seen = watched_pool(watch.watch(), quotas)
        self._report(seen, watch, rules, decided)
        if folder is not None and seen.sims:
            command = _command(folder, rules, options)
            self.stdout.write(f"the same jobs from an empty pool: {command}")

    def _decided(self, seen: WatchedPool, rules: Rules) -> list[tuple[object, ...]]:
        """Print what a policy would decide now, in one line; return the decision as rows."""
        try:
            decision = decide_now(seen, rules)
        except InvariantViolation as error:
            self.stderr.write(f"{rules.policy}: {error}")
            return []
        rows = _decision_rows(seen, rules.policy, decision)
        starts = [str(row[1]) for row in rows if row[4] == "start"]
        yields = [str(row[1]) for row in rows if row[4] == "yield"]
        self.stdout.write(
            f"  {rules.policy} would start {_some(starts)} and ask {_some(yields)} to yield"
        )
        return rows

    def _report(
        self,
        seen: WatchedPool,
        watch: PartitionWatch,
        rules: Mapping[str, Rules],
        decided: list[tuple[object, ...]],
    ) -> None:
        sides = [observed_side(seen, HAPPENED), *(policy_side(seen, row) for row in rules.values())]
        title = f"Partition {watch.options.partition}: {HAPPENED} and {', '.join(rules)}"
        text = shadow_report(title, seen, sides, watch.remarks())
        if watch.folder is None:
            self.stdout.write(text)
            return
        files = {
            "report.md": text,
            "jobs.csv": shadow_csv(seen, sides),
            "nodes.csv": nodes_csv(seen.watch.nodes),
        }
        if seen.sims:
            files["trace.csv"] = workload_csv(seen.workload, all_estimates=True)
        for name, content in files.items():
            write_file(watch.folder / name, content)
        _append(watch.folder / "decisions.csv", decided)
        self.stdout.write(f"{watch.folder / 'report.md'}")


def _rules(options: dict[str, Any], pool: Pool | None) -> dict[str, Rules]:
    """Return the rules of each policy. The pool's settings are the defaults of the command line."""
    policy = options["policy"] or (pool.policy if pool else DEFAULT)
    given = {
        "policy": policy,
        "option": options["option"],
        "round_s": options["round_s"] or (pool.round_s if pool else 10),
        "lease_s": options["lease_s"] or (pool.lease_s if pool else 900),
        "cold_s": options["cold_s"],
        "checkpoint_s": options["checkpoint_s"],
        "least_lease_s": pool.least_lease_s if pool and not options["lease_s"] else 0,
        "most_lease_s": pool.most_lease_s if pool and not options["lease_s"] else 0,
        "seed": pool.seed if pool else 0,
    }
    rules = rules_of(given)
    if pool is not None and pool.policy in rules and not options["option"]:
        rules[pool.policy] = replace(rules[pool.policy], options=dict(pool.options))
    return rules


def _quotas(name: str | None) -> list[PoolQuota]:
    if name is None:
        return []
    with opened(name) as text:
        return read_quotas(text.read(), int(datetime.now(UTC).timestamp()) * SECOND_US)


def _decision_rows(seen: WatchedPool, policy: str, decision: Decision) -> list[tuple[object, ...]]:
    names = {one.node.id: one.name for one in seen.watch.nodes}
    rows: list[tuple[object, ...]] = []
    for grant in decision.grants:
        job = seen.jobs[grant.job]
        nodes = " ".join(f"{names[node]}:{gpus}" for node, gpus in grant.placement)
        rows.append((policy, job.name, job.tenant, job.gpus, "start", nodes))
    for end in decision.ends:
        job = seen.jobs[end.job]
        nodes = " ".join(f"{name}:{gpus}" for name, gpus in job.shares)
        rows.append((policy, job.name, job.tenant, job.gpus, "yield", nodes))
    return rows


def _append(path: Path, rows: list[tuple[object, ...]]) -> None:
    before = path.read_text(encoding="utf-8") if path.exists() else write_csv(DECISION_COLUMNS, [])
    fresh = write_csv(DECISION_COLUMNS, rows).partition("\n")[2]
    write_file(path, before + fresh)


def _some(names: list[str]) -> str:
    if not names:
        return "none"
    more = f", and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"{len(names):,} ({', '.join(names[:SHOWN])}{more})"


def _command(folder: Path, rules: Mapping[str, Rules], options: dict[str, Any]) -> str:
    one = next(iter(rules.values()))
    files = ["--trace", str(folder / "trace.csv"), "--node-list", str(folder / "nodes.csv")]
    if options["quotas"]:
        files += ["--quotas", options["quotas"]]
    settings = ["--policy", ",".join(rules), "--estimates", "given"]
    settings += ["--round-s", f"{one.round_us / SECOND_US:g}"]
    settings += ["--lease-s", f"{one.lease_us / SECOND_US:g}"]
    for name in ("cold_s", "checkpoint_s"):
        if options[name]:
            settings += [f"--{name.replace('_', '-')}", f"{options[name]:g}"]
    for text in options["option"]:
        settings += ["--option", text]
    return shlex.join(["evenshare-core", "simulate", *files, *settings])
