"""`shares`: shares of mixed GPU types under a rule, and their properties."""

import argparse
import json
from typing import Any

import numpy as np

from evenshare_core.cli.command import CliError, CoreCommand, Options, Stream, say
from evenshare_core.fairness.pareto import UnsolvedError, pareto_slack
from evenshare_core.fairness.properties import (
    TOLERANCE,
    capacity_use,
    envy_matrix,
    sharing_incentive,
    throughput_spread,
)
from evenshare_core.formulations.problems import (
    Array,
    ShareError,
    ShareProblem,
    ShareSolution,
    plain,
)
from evenshare_core.policies.registry import POLICIES
from evenshare_core.policies.sharing.base import SharingPolicy

EXAMPLES = {
    "speedups": "a row per tenant, slowest GPU type first, like [[1,2],[1,5]]",
    "capacity": "the GPUs of each type, like [1,1]",
    "weights": "a value above 0 per tenant, like [1,2]",
    "caps": "the most GPUs of each tenant, null for no cap, like [4,null]",
}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--policy", required=True, metavar="NAME", help=", ".join(_sharing()))
    for field in ("speedups", "capacity"):
        add(f"--{field}", required=True, metavar="JSON", help=EXAMPLES[field])
    for field in ("weights", "caps"):
        add(f"--{field}", metavar="JSON", help=EXAMPLES[field])
    add("--option", action="append", default=[], metavar="KEY=VALUE", help="of the policy")
    add("--json", action="store_true", help="print one JSON object and nothing else")


def _run(options: Options, out: Stream, err: Stream) -> None:
    try:
        policy = _policy(options["policy"])
        chosen = _options(policy, options["option"])
        problem = _problem(options)
        solution = policy.share(problem, chosen)
    except ShareError as error:
        hint = EXAMPLES.get(error.field)
        raise CliError(f"{error}; give {hint}" if hint else str(error)) from error
    summary = summarise(problem, solution)
    if options["json"]:
        say(out, json.dumps(summary))
    else:
        _write_table(out, summary)
    if solution.fallback:
        say(err, f"not the requested backend: {solution.fallback}")


def summarise(problem: ShareProblem, solution: ShareSolution) -> dict[str, Any]:
    """Return a solution and its properties as plain data."""
    summary = {
        "shares": solution.shares,
        "throughputs": solution.throughputs,
        "total": solution.total,
        "properties": properties(problem, solution.shares),
        "backend": solution.backend,
        "status": solution.status,
    }
    if solution.prices is not None:
        summary["prices"] = solution.prices
    if solution.fallback:
        summary["fallback"] = solution.fallback
    return {key: plain(value) for key, value in summary.items()}


def properties(problem: ShareProblem, shares: Array) -> dict[str, Any]:
    """Measure properties of shares, independently of the policy that made them.

    `envy[l][i]` is what tenant l would gain with the share of tenant i, per unit of weight.
    `pareto_slack` is the possible increase of the total while no throughput falls; None if no
    optimum was proven.
    """
    given = (problem.speedups, shares)
    envy = envy_matrix(*given, problem.pi)
    own, split = sharing_incentive(*given, problem.capacity, problem.pi)
    used = capacity_use(shares)
    most = max(1.0, float(own.max()))
    try:
        slack = pareto_slack(*given, problem.capacity, _limits(problem))
    except UnsolvedError:
        slack = None
    measured = {
        "envy_free": bool(envy.max() <= TOLERANCE * most),
        "envy": envy,
        "sharing_incentive": bool((own >= split - TOLERANCE * most).all()),
        "equal_split_throughputs": split,
        "equal_throughput": throughput_spread(*given, problem.pi) <= TOLERANCE,
        "pareto_efficient": None if slack is None else slack <= TOLERANCE * most,
        "pareto_slack": slack,
        "capacity_kept": bool((used <= problem.capacity * (1 + TOLERANCE)).all()),
        "used": used,
    }
    return {key: plain(value) for key, value in measured.items()}


def _limits(problem: ShareProblem) -> Array | None:
    return None if np.isinf(problem.cap).all() else problem.cap


def _sharing() -> dict[str, SharingPolicy]:
    """Return by name the policies that compute shares of GPU types with an optimisation program."""
    return {name: one for name, one in POLICIES.items() if isinstance(one, SharingPolicy)}


def _policy(name: str) -> SharingPolicy:
    known = _sharing()
    if name not in known:
        raise ShareError("policy", f"{name!r} is none of {', '.join(known)}")
    return known[name]


def _options(policy: SharingPolicy, given: list[str]) -> dict[str, str]:
    known = policy.share_options
    chosen = {key: values[0] for key, values in known.items()}
    for text in given:
        key, _, value = text.partition("=")
        if key not in known:
            known_options = f"known are {', '.join(known)}" if known else "it has none"
            raise ShareError("option", f"{policy.name} has no option {key!r}; {known_options}")
        if value not in known[key]:
            values = ", ".join(known[key])
            raise ShareError("option", f"{key} is one of {values}, not {value!r}; give {key}=VALUE")
        chosen[key] = value
    return chosen


def _problem(options: Options) -> ShareProblem:
    weights, caps = (
        None if options[field] is None else _read(field, options[field])
        for field in ("weights", "caps")
    )
    if caps is not None:
        caps = np.array([np.inf if cap is None else cap for cap in caps])
    speedups, capacity = (_read(field, options[field]) for field in ("speedups", "capacity"))
    return ShareProblem(speedups, capacity, weights, caps)


def _read(field: str, text: str) -> Any:
    """Read JSON of numbers; reject other values before numpy converts them."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ShareError(field, f"is not JSON ({error})") from error
    if not isinstance(value, list):
        raise ShareError(field, "is not a list")
    for place, part in enumerate(value):
        row = part if isinstance(part, list) and field == "speedups" else [part]
        for one in row:
            missing = one is None and field == "caps"
            if not missing and (isinstance(one, bool) or not isinstance(one, int | float)):
                raise ShareError(field, f"[{place}] holds {json.dumps(one)}, not a number")
    return value


def _write_table(out: Stream, summary: dict[str, Any]) -> None:
    types = len(summary["shares"][0])
    heads = [f"type {index + 1}" for index in range(types)]
    say(out, "  ".join(f"{head:>12}" for head in ("tenant", *heads, "throughput")))
    rows = zip(summary["shares"], summary["throughputs"], strict=True)
    for place, (shares, throughput) in enumerate(rows):
        cells = "  ".join(f"{value:12.6f}" for value in (*shares, throughput))
        say(out, f"{place + 1:>12}  {cells}")
    if "prices" in summary:
        cells = "  ".join(f"{value:12.6f}" for value in summary["prices"])
        say(out, f"{'price':>12}  {cells}")
    say(out, f"total {summary['total']:.6f}, by {summary['backend']} ({summary['status']})")
    for key, value in summary["properties"].items():
        if not isinstance(value, list):
            say(out, f"{key}: {'yes' if value is True else 'no' if value is False else value}")


SHARES = CoreCommand(
    "shares",
    "Compute shares of mixed GPU types under a rule, and their properties; needs no database.",
    _add_arguments,
    _run,
)
