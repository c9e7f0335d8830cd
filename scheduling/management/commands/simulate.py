"""`manage.py simulate`: run a trace under policies on a simulated pool, without a database."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from evenshare_core.simulation.figures import figures_of
from evenshare_core.simulation.inputs import InputError, rules_of, scenario_of
from evenshare_core.simulation.report import Result, jobs_csv, page
from evenshare_core.simulation.scenario import Scenario, infinite, run_policy
from evenshare_core.simulation.workload_files import workload_csv
from evenshare_core.simulation.workloads import Workload
from evenshare_core.simulation.world import Rules

DRAWN = "jobs=,tenants=,hours=[,failed=,cancelled=,models=FILE]"


class Command(BaseCommand):
    """One run per policy, on equal nodes, with the figures that the papers compare."""

    help = "Simulate a trace under one or more policies; needs no database."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Take a workload, a cluster, policies and where results go."""
        add = parser.add_argument
        add("--trace", metavar="FILE", help="jobs: as import_trace reads them")
        add("--set", metavar="NAME", help="the set of jobs to take, where the trace has several")
        add("--synthetic", metavar="JOBS,TENANTS,HOURS", help=f"drawn from --seed; also {DRAWN}")
        add("--workload-out", metavar="FILE", help="write the jobs as a trace, to repeat the run")
        add("--policy", default="ltgf", metavar="P[,P...]", help="policies (%(default)s)")
        add("--nodes", type=int, help="equal nodes in one pool")
        add("--partitions", metavar="FILE", help="CSV of tenant and nodes: each alone on its own")
        add("--gpus-per-node", type=int, default=8, metavar="G", help="(%(default)s)")
        add("--gpu-types", metavar="TYPE:NODES[:SPEED],...", help="instead of --nodes")
        add("--speeds", metavar="FILE", help="CSV of throughput by model and GPU type")
        add("--round-s", type=float, default=0, help="grid of rounds; 0: decide at every event")
        add("--lease-s", type=float, default=900, help="0: until the job is over (%(default)s)")
        add("--cold-s", type=float, default=0, help="lost when a job is resumed (%(default)s)")
        add("--checkpoint-s", type=float, default=0, help="lost when a lease ends (%(default)s)")
        add("--churn", metavar="FILE", help="CSV of time, active, total nodes")
        add("--churn-from", metavar="INSTANT", help="where in it the run begins (its first line)")
        add("--estimate-error", type=float, default=0, help="share by which estimates are wrong")
        add("--option", action="append", default=[], metavar="P.KEY=VALUE")
        add("--seed", type=int, default=0)
        add("--floor", action="store_true", help="add the infinite cluster")
        add("--json", action="store_true", help="print one JSON object and nothing else")
        add("--jobs-out", metavar="DIR", help="write one CSV of jobs per policy")
        add("--report", metavar="FILE", help="write one HTML page with figures")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run every policy; print a table or one JSON object."""
        try:
            rules = rules_of(options)
            workload, scenario = scenario_of(options)
            _prepare(options, workload)
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}") from error
        except InputError as error:
            raise CommandError(str(error)) from error
        self._tell_bad(workload)
        policies = list(rules)
        results = [infinite(scenario, rules[policies[0]])] if options["floor"] else []
        timed = bool(options["report"])
        results += [self._run(scenario, rules[policy], timed=timed) for policy in policies]
        self._write(scenario, results, options)

    def _tell_bad(self, workload: Workload) -> None:
        if workload.bad:
            first, count = workload.bad[0], len(workload.bad)
            where = f"line {first.line}{first.field and ', ' + first.field}"
            told = "1 line is no job" if count == 1 else f"{count:,} lines are no jobs"
            self.stderr.write(f"{told}: {where} {first.reason}")

    def _run(self, scenario: Scenario, rules: Rules, *, timed: bool) -> Result:
        began = time.process_time()
        total, shown = len(scenario.workload.jobs), 0

        def progress(done: int) -> None:
            nonlocal shown
            if self.stderr.isatty() and done * 50 // max(1, total) > shown:
                shown = done * 50 // max(1, total)
                bar = "#" * shown + "." * (50 - shown)
                self.stderr.write(f"\r{rules.policy:<8} {bar} {done:,}/{total:,}", ending="")

        timer = time.perf_counter if timed else None
        outcome = run_policy(scenario, rules, timer=timer, progress=progress)
        cpu_s = time.process_time() - began
        if shown:
            self.stderr.write("")
        if outcome.stranded:
            count = len(outcome.stranded)
            told = "1 job never ends" if count == 1 else f"{count:,} jobs never end"
            self.stderr.write(f"{rules.policy}: {told}")
        figures = figures_of(scenario.cluster, scenario.workload.jobs, outcome.books)
        return Result(
            rules.policy, figures, outcome.rounds, cpu_s, outcome.books.sha256(),
            len(outcome.books.jobs), outcome.decide_s, scenario.workload.tenants,
        )  # fmt: skip

    def _write(self, scenario: Scenario, results: list[Result], options: dict[str, Any]) -> None:
        name = Path(options["trace"]).name if options["trace"] else "synthetic"
        name += f" {options['set']}" if options["set"] else ""
        cluster = {
            "nodes": len(scenario.cluster.nodes),
            "gpus": scenario.cluster.capacity,
            "partitions": len(scenario.partitions),
        }
        if options["jobs_out"]:
            folder = Path(options["jobs_out"])
            for result in results:
                told = jobs_csv(result, dict(scenario.workload.tenants))
                (folder / f"jobs_{result.policy}.csv").write_text(told)
        if options["report"]:
            title = f"{name} on {cluster['nodes']} nodes"
            told = page(title, results, says=_said(options, cluster["gpus"]))
            Path(options["report"]).write_text(told)
        rows = [result.row() for result in results]
        if options["json"]:
            self.stdout.write(json.dumps({"trace": name, "cluster": cluster, "results": rows}))
            return
        for row in rows:
            told = "  ".join(f"{key}={_short(value)}" for key, value in row.items())
            self.stdout.write(told)


def _said(options: dict[str, Any], gpus: int) -> str:
    """How the runs of a report were made."""
    names = ("round_s", "lease_s", "cold_s", "checkpoint_s", "estimate_error", "seed")
    told = [f"{name.replace('_', '-')} {options[name]:g}" for name in names]
    files = ("partitions", "speeds", "churn")
    told += [f"{name} {Path(options[name]).name}" for name in files if options[name]]
    types = [options["gpu_types"]] if options["gpu_types"] else []
    return f"{gpus:,} GPUs; {', '.join([*types, *told, *options['option']])}."


def _prepare(options: dict[str, Any], workload: Workload) -> None:
    """Open whatever will be written before a run that may take minutes."""
    if options["workload_out"]:
        Path(options["workload_out"]).write_text(workload_csv(workload))
    if options["jobs_out"]:
        Path(options["jobs_out"]).mkdir(parents=True, exist_ok=True)
    if options["report"]:
        with Path(options["report"]).open("a"):
            pass


def _short(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:12]
