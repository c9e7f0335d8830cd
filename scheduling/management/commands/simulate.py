"""`manage.py simulate`: run a trace under policies on a simulated pool, without a database."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduling.domain.cluster import Node
from scheduling.domain.values import SECOND_US
from scheduling.policies.policy import OptionError
from scheduling.policies.registry import UnknownPolicyError
from scheduling.policies.registry import options as options_parse
from scheduling.simulation.figures import figures_of
from scheduling.simulation.report import Result, jobs_csv, page
from scheduling.simulation.scenario import Scenario, ScenarioError, infinite, run_policy
from scheduling.simulation.trace_formats import HeaderError, trace_lines
from scheduling.simulation.workloads import (
    Workload,
    churn_read,
    nodes_make,
    noisy_estimates,
    partitions_read,
    synthetic,
    workload_read,
)
from scheduling.simulation.world import Rules

FOREVER_S = 100 * 366 * 86_400  # a lease of length 0 lasts until its job is over


class Command(BaseCommand):
    """One run per policy, on equal nodes, with the figures that the papers compare."""

    help = "Simulate a trace under one or more policies; needs no database."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Take a workload, a cluster, policies and where results go."""
        add = parser.add_argument
        add("--trace", metavar="FILE", help="jobs: as import_trace reads them")
        add("--synthetic", metavar="JOBS,TENANTS,HOURS", help="drawn from --seed instead")
        add("--policy", default="ltgf", metavar="P[,P...]", help="policies (%(default)s)")
        add("--nodes", type=int, help="equal nodes in one pool")
        add("--partitions", metavar="FILE", help="CSV of tenant and nodes: each alone on its own")
        add("--gpus-per-node", type=int, default=8, metavar="G", help="(%(default)s)")
        add("--gpu-types", metavar="TYPE:NODES[:SPEED],...", help="instead of --nodes")
        add("--round-s", type=float, default=0, help="grid of rounds; 0: decide at every event")
        add("--lease-s", type=float, default=900, help="0: until the job is over (%(default)s)")
        add("--cold-s", type=float, default=0, help="lost when a job is resumed (%(default)s)")
        add("--checkpoint-s", type=float, default=0, help="lost when a lease ends (%(default)s)")
        add("--churn", metavar="FILE", help="CSV of time, active, total nodes per minute")
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
            scenario = _scenario(options)
            policies = options["policy"].split(",")
            rules = {policy: _rules(policy, options) for policy in policies}
        except (
            *(OSError, ValueError, HeaderError, ScenarioError),
            *(UnknownPolicyError, OptionError),
        ) as error:
            raise CommandError(str(error)) from error
        results = [infinite(scenario, rules[policies[0]])] if options["floor"] else []
        timed = bool(options["report"])
        results += [self._run(scenario, rules[policy], timed=timed) for policy in policies]
        self._write(scenario, results, options)

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
        figures = figures_of(scenario.cluster, scenario.workload.jobs, outcome.books)
        return Result(
            rules.policy, figures, outcome.rounds, cpu_s, outcome.books.sha256(),
            len(outcome.books.jobs), outcome.decide_s,
        )  # fmt: skip

    def _write(self, scenario: Scenario, results: list[Result], options: dict[str, Any]) -> None:
        name = Path(options["trace"]).name if options["trace"] else "synthetic"
        cluster = {
            "nodes": len(scenario.cluster.nodes),
            "gpus": scenario.cluster.capacity,
            "partitions": len(scenario.partitions),
        }
        if options["jobs_out"]:
            folder = Path(options["jobs_out"])
            folder.mkdir(parents=True, exist_ok=True)
            for result in results:
                told = jobs_csv(result, dict(scenario.workload.tenants))
                (folder / f"jobs_{result.policy}.csv").write_text(told)
        if options["report"]:
            title = f"{name} on {cluster['nodes']} nodes"
            Path(options["report"]).write_text(page(title, results))
        rows = [result.row() for result in results]
        if options["json"]:
            self.stdout.write(json.dumps({"trace": name, "cluster": cluster, "results": rows}))
            return
        for row in rows:
            told = "  ".join(f"{key}={_short(value)}" for key, value in row.items())
            self.stdout.write(told)


def _short(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:12]


def _rules(policy: str, options: dict[str, Any]) -> Rules:
    chosen: dict[str, Any] = {}
    for text in options["option"]:
        path, _, value = text.partition("=")
        name, _, key = path.partition(".")
        if not key:
            raise ValueError(f"an option is POLICY.KEY=VALUE, not {text!r}")
        if name == policy:
            try:
                chosen[key] = json.loads(value)
            except json.JSONDecodeError:
                chosen[key] = value
    options_parse(policy, chosen)
    return Rules(
        policy,
        chosen,
        round_us=_us(options["round_s"]),
        lease_us=_us(options["lease_s"] or FOREVER_S),
        seed=options["seed"],
        cold_us=_us(options["cold_s"]),
        checkpoint_us=_us(options["checkpoint_s"]),
    )


def _us(seconds: float) -> int:
    if seconds < 0:
        raise ValueError("times must be at least 0")
    return round(seconds * SECOND_US)


def _scenario(options: dict[str, Any]) -> Scenario:
    workload = _workload(options)
    if options["estimate_error"]:
        jobs = noisy_estimates(workload.jobs, options["seed"], options["estimate_error"])
        workload = replace(workload, jobs=jobs)
    partitions: dict[str, int] = {}
    if options["partitions"]:
        with Path(options["partitions"]).open() as file:
            partitions = partitions_read(file)
    nodes, speeds = _nodes(options)
    scenario = Scenario.make(workload, nodes, speeds, partitions, options["gpus_per_node"])
    if options["churn"]:
        with Path(options["churn"]).open() as file:
            changes = churn_read(file, scenario.cluster.nodes, options["seed"])
        scenario = replace(scenario, cluster=replace(scenario.cluster, changes=changes))
    return scenario


def _workload(options: dict[str, Any]) -> Workload:
    if options["synthetic"]:
        jobs, tenants, hours = (int(part) for part in options["synthetic"].split(","))
        return synthetic(seed=options["seed"], jobs=jobs, tenants=tenants, hours=hours)
    if not options["trace"]:
        raise ValueError("needs --trace or --synthetic")
    with Path(options["trace"]).open("rb") as file:
        _, lines = trace_lines(file)
        return workload_read(lines)


def _nodes(options: dict[str, Any]) -> tuple[tuple[Node, ...], dict[str, int]]:
    counts: dict[str, int] = {}
    speeds: dict[str, int] = {}
    if options["gpu_types"]:
        for text in options["gpu_types"].split(","):
            name, count, *speed = text.split(":")
            counts[name] = int(count)
            speeds[name] = round(float(speed[0]) * 1000) if speed else 1000
    elif options["nodes"]:
        counts["gpu"] = options["nodes"]
    return nodes_make(counts, options["gpus_per_node"]), speeds
