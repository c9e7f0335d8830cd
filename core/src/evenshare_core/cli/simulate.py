"""`simulate`: run a trace under policies on a simulated pool.

Every policy runs on the same nodes and is measured by the papers' figures.
"""

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill

from evenshare_core.cli.collector import rare_collections
from evenshare_core.cli.command import CliError, CoreCommand, Options, Stream, say
from evenshare_core.cli.files import InputError
from evenshare_core.cli.inputs import add_overheads, rules_of, scenario_of
from evenshare_core.cli.trace_options import add_trace_arguments
from evenshare_core.domain.plurals import plural
from evenshare_core.formulations.problems import ShareError
from evenshare_core.policies.options import Option, describe_options
from evenshare_core.policies.policy import Policy
from evenshare_core.policies.registry import DEFAULT, POLICIES
from evenshare_core.simulation.books import Books
from evenshare_core.simulation.figures import figures_of
from evenshare_core.simulation.lease_files import leases_csv
from evenshare_core.simulation.report import Result, hours_csv, jobs_csv, page
from evenshare_core.simulation.scenario import Scenario, infinite, run_policy
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workload_files import workload_csv
from evenshare_core.simulation.workloads import Workload

HELP_WIDTH = 96
DRAWN = "jobs=,tenants=,hours=[,failed=,cancelled=,models=FILE]"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_jobs(parser)
    _add_pool(parser)
    add = parser.add_argument
    add("--policy", default=DEFAULT, metavar="P[,P...]", help="policies (%(default)s)")
    add("--option", action="append", default=[], metavar="P.KEY=VALUE", help="see below")
    add("--round-s", type=float, default=0, help="grid of rounds; 0: decide at every event")
    add("--lease-s", type=float, default=900, help="0: until the job is over (%(default)s)")
    instead = "term that a policy may choose instead; 0: --lease-s"
    add("--least-lease-s", type=float, default=0, help=f"the least {instead}")
    add("--most-lease-s", type=float, default=0, help=f"the most {instead}")
    add_overheads(parser)
    add("--start", metavar="INSTANT", help="where the run begins, on the jobs' own clock (0)")
    add("--seed", type=int, default=0)
    add("--floor", action="store_true", help="add the infinite cluster")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    add(
        "--jobs-out", metavar="DIR", help="write a CSV of jobs and one of tenants' hours per policy"
    )
    add("--leases-out", metavar="DIR", help="write one CSV of leases per policy")
    add("--report", metavar="FILE", help="write one HTML page with figures")
    _add_policy_help(parser)


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--trace", metavar="FILE", help="jobs: as import_trace reads them")
    add_trace_arguments(parser)
    add("--synthetic", metavar="JOBS,TENANTS,HOURS", help=f"drawn from --seed; also {DRAWN}")
    add("--workload-out", metavar="FILE", help="write the jobs as a trace, to repeat the run")
    add(
        "--estimates",
        choices=["true", "given", "none"],
        default="true",
        help="policies know of durations: all, what the trace gives, nothing (%(default)s)",
    )
    add("--estimate-error", type=float, default=0, help="share by which estimates are wrong")
    add("--speeds", metavar="FILE", help="CSV of throughput by model and GPU type")
    add("--profiles", metavar="FILE", help="of models: speeds, several nodes' cost, overheads")


def _add_pool(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--nodes", type=int, help="equal nodes in one pool")
    add("--gpus-per-node", type=int, default=8, metavar="G", help="(%(default)s)")
    add("--gpu-types", metavar="TYPE:NODES[:SPEED],...", help="instead of --nodes")
    add("--node-list", metavar="FILE", help="instead of --nodes: name, gpu_type, gpus of each")
    add("--partitions", metavar="FILE", help="CSV of tenant and nodes: each alone on its own")
    add("--quotas", metavar="FILE", help="tenant, gpu_type, gpus, ...; without: by demand")
    add(
        "--prices",
        metavar="FILE",
        help="gpu_type, base, theta, surcharge_cap, surcharge_step; without: 1, 2, none",
    )
    add("--churn", metavar="FILE", help="CSV of time, active, total nodes")
    add("--churn-from", metavar="INSTANT", help="where in it the run begins (its first line)")
    add(
        "--spread-penalty",
        type=float,
        default=0,
        metavar="SHARE",
        help="how much slower a gang is over several nodes than on one, if nobody measured it",
    )


def _run(options: Options, out: Stream, err: Stream) -> None:
    try:
        rules = rules_of(options)
        workload, scenario = scenario_of(options)
        _prepare(options, workload)
        _report_bad_lines(workload, err)
        _report_without_quota(scenario, options, err)
        results = _results(options, scenario, rules, err)
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}") from error
    except (InputError, ShareError) as error:
        raise CliError(str(error)) from error
    _write(scenario, results, options, out)


def _report_bad_lines(workload: Workload, err: Stream) -> None:
    if workload.bad:
        first, count = workload.bad[0], len(workload.bad)
        where = f"line {first.line}{first.field and ', ' + first.field}"
        lines = plural(count, "line is not a job", "lines are not jobs")
        say(err, f"{lines}: {where} {first.reason}")
    for sentence in workload.remarks:
        say(err, sentence)


def _report_without_quota(scenario: Scenario, options: Options, err: Stream) -> None:
    """Warn about tenants without a quota: usually, two files spell a name differently."""
    if not options["quotas"]:
        return
    owners = {row.tenant for row in scenario.cluster.quotas}
    names = [name for index, name in scenario.workload.tenants.items() if index not in owners]
    if names:
        tenants = plural(len(names), "tenant has", "tenants have")
        say(err, f"{tenants} jobs and no quota: {', '.join(names[:5])}{', ...' * (len(names) > 5)}")


def _results(
    options: Options, scenario: Scenario, rules: Mapping[str, Rules], err: Stream
) -> list[Result]:
    results = [infinite(scenario, next(iter(rules.values())))] if options["floor"] else []
    timed = bool(options["report"])
    for one in rules.values():
        result, books = _result(scenario, one, err, timed=timed)
        results.append(result)
        if options["leases_out"]:
            path = Path(options["leases_out"]) / f"leases_{one.policy}.csv"
            path.write_text(leases_csv(scenario, books))
    return results


def _result(scenario: Scenario, rules: Rules, err: Stream, *, timed: bool) -> tuple[Result, Books]:
    began = time.process_time()
    total, shown = len(scenario.workload.jobs), 0

    def progress(done: int) -> None:
        nonlocal shown
        if err.isatty() and done * 50 // max(1, total) > shown:
            shown = done * 50 // max(1, total)
            bar = "#" * shown + "." * (50 - shown)
            err.write(f"\r{rules.policy:<8} {bar} {done:,}/{total:,}")

    timer = time.perf_counter if timed else None
    with rare_collections():
        outcome = run_policy(scenario, rules, timer=timer, progress=progress)
    cpu_s = time.process_time() - began
    if shown:
        say(err, "")
    if outcome.stranded:
        count = len(outcome.stranded)
        jobs = plural(count, "job never ends", "jobs never end")
        say(err, f"{rules.policy}: {jobs}")
    figures = figures_of(
        *(scenario.cluster, scenario.workload.jobs, outcome.books), partitions=scenario.partitions
    )
    result = Result(
        rules.policy, figures, outcome.rounds, cpu_s, outcome.books.sha256(),
        len(outcome.books.jobs), outcome.decide_s, scenario.workload.tenants,
    )  # fmt: skip # rows of what belongs together
    return result, outcome.books


def _write(scenario: Scenario, results: list[Result], options: Options, out: Stream) -> None:
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
            names = dict(scenario.workload.tenants)
            (folder / f"jobs_{result.policy}.csv").write_text(jobs_csv(result, names))
            (folder / f"hours_{result.policy}.csv").write_text(hours_csv(result, names))
    if options["report"]:
        title = f"{name} on {cluster['nodes']} nodes"
        html = page(title, results, says=_how_run(options, cluster["gpus"]))
        Path(options["report"]).write_text(html)
    rows = [result.row() for result in results]
    if options["json"]:
        say(out, json.dumps({"trace": name, "cluster": cluster, "results": rows}))
        return
    for row in rows:
        say(out, "  ".join(f"{key}={_short(value)}" for key, value in row.items()))


def _how_run(options: Options, gpus: int) -> str:
    names = ("round_s", "lease_s", "cold_s", "checkpoint_s", "estimate_error", "seed")
    settings = [f"{name.replace('_', '-')} {options[name]:g}" for name in names]
    bounds = ("least_lease_s", "most_lease_s")
    settings += [f"{name.replace('_', '-')} {options[name]:g}" for name in bounds if options[name]]
    settings += [f"spread-penalty {options['spread_penalty']:g}"] * bool(options["spread_penalty"])
    files = (
        *("node_list", "quotas", "prices", "partitions", "speeds", "profiles"),
        "churn",
    )
    settings += [
        f"{name.replace('_', '-')} {Path(options[name]).name}" for name in files if options[name]
    ]
    settings += [f"start {options['start']}"] * (options["start"] is not None)
    types = [options["gpu_types"]] if options["gpu_types"] else []
    return f"{gpus:,} GPUs; {', '.join([*types, *settings, *options['option']])}."


def _prepare(options: Options, workload: Workload) -> None:
    """Create all output files and folders first, because the run may take minutes."""
    if options["workload_out"]:
        text = workload_csv(workload, all_estimates=options["estimates"] == "given")
        Path(options["workload_out"]).write_text(text)
    for name in ("jobs_out", "leases_out"):
        if options[name]:
            Path(options[name]).mkdir(parents=True, exist_ok=True)
    if options["report"]:
        with Path(options["report"]).open("a"):
            pass


def _short(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:12]


SIMULATE = CoreCommand(
    "simulate",
    "Simulate a trace under one or more policies; needs no database.",
    _add_arguments,
    _run,
)


def _add_policy_help(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "policies and their options:\n\n" + "\n\n".join(
        _policy_text(policy) for _, policy in sorted(POLICIES.items())
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def _policy_text(policy: Policy) -> str:
    lines = [fill(f"{policy.name}: {policy.title}. {policy.promise}", HELP_WIDTH)]
    lines += [_option_text(policy.name, option) for option in describe_options(policy.options_type)]
    return "\n".join(lines)


def _option_text(policy: str, option: Option) -> str:
    default = json.dumps(option.default) if option.kind == "switch" else option.default
    text = f"{policy}.{option.name}={default}  {option.description}"
    return fill(text, HELP_WIDTH, initial_indent="  ", subsequent_indent="      ")
