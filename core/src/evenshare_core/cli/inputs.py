"""The scenario and the rules of `simulate`, from its command line.

An error raises `InputError` with the name of the option or file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evenshare_core.cli.collector import rare_collections
from evenshare_core.cli.command import Options
from evenshare_core.cli.files import InputError, opened
from evenshare_core.cli.pool_inputs import pool_inputs, whole_number
from evenshare_core.cli.trace_options import read_mapping
from evenshare_core.domain.snapshot import lease_bounds_of
from evenshare_core.policies.options import OptionError
from evenshare_core.policies.registry import UnknownPolicyError
from evenshare_core.policies.registry import options as options_parse
from evenshare_core.simulation.scenario import Scenario
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.throughputs import Speeds, read_speeds
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.trace_reads import HeaderError
from evenshare_core.simulation.workloads import (
    NodeChange,
    Workload,
    noisy_estimates,
    read_churn,
    read_partitions,
    read_workload,
    synthetic,
)
from evenshare_core.units import SECOND_US

FOREVER_S = 100 * 366 * 86_400  # a lease of length 0 lasts until its job ends


def add_overheads(parser: argparse.ArgumentParser) -> None:
    """Add the options for the time that a job loses when it is resumed and when a lease ends."""
    for name, when in (("--cold-s", "a job is resumed"), ("--checkpoint-s", "a lease ends")):
        parser.add_argument(
            name, type=float, default=0, help=f"seconds lost when {when} (%(default)s)"
        )


def rules_of(options: Options) -> dict[str, Rules]:
    """Return the rules of each policy to run, by policy name, in the given order.

    Raises:
        InputError: a policy or one of its options is unknown, or a time is below 0.
    """
    names = [name.strip() for name in options["policy"].split(",")]
    if not all(names):
        raise InputError("--policy: a name is empty")
    if len(set(names)) < len(names):
        raise InputError("--policy names a policy twice")
    chosen: dict[str, dict[str, Any]] = {name: {} for name in names}
    for text in options["option"]:
        path, _, value = text.partition("=")
        name, _, key = path.partition(".")
        if not key:
            raise InputError(f"--option must be POLICY.KEY=VALUE, not {text!r}")
        if name not in chosen:
            raise InputError(f"--option {text}: policy {name!r} is not in --policy")
        chosen[name][key] = _value(value)
    return {name: _rules(name, chosen[name], options) for name in names}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _rules(policy: str, chosen: dict[str, Any], options: Options) -> Rules:
    try:
        options_parse(policy, chosen)
    except (UnknownPolicyError, OptionError) as error:
        raise InputError(str(error)) from error
    lease_us = _lease_us(options)
    checkpoint_us = _us(options, "checkpoint_s")
    if checkpoint_us >= lease_us:  # otherwise no job would ever end
        raise InputError("--checkpoint-s must be shorter than --lease-s")
    least_us, most_us = _us(options, "least_lease_s"), _us(options, "most_lease_s")
    if not checkpoint_us < (least_us or lease_us) <= lease_us:
        raise InputError(
            "--least-lease-s must be longer than --checkpoint-s, and at most --lease-s"
        )
    if most_us and most_us < lease_us:
        raise InputError("--most-lease-s must be at least --lease-s")
    return Rules(
        policy,
        chosen,
        round_us=_us(options, "round_s"),
        lease_us=lease_us,
        seed=options["seed"],
        cold_us=_us(options, "cold_s"),
        checkpoint_us=checkpoint_us,
        lease_bounds_us=lease_bounds_of(lease_us, least_us, most_us),
    )


def _lease_us(options: Options) -> int:
    return _us(options, "lease_s") or FOREVER_S * SECOND_US


def _us(options: Options, name: str) -> int:
    seconds: float = options[name]
    if not 0 <= seconds <= FOREVER_S:
        raise InputError(f"--{name.replace('_', '-')} must be a time of at least 0")
    return round(seconds * SECOND_US)


def scenario_of(options: Options) -> tuple[Workload, Scenario]:
    """Return the workload for the output file, and the scenario to run.

    Raises:
        InputError: the workload or the cluster is invalid, or they do not match.
    """
    try:
        workload, measured = _workload(options)
        return workload, _scenario(options, workload, measured)
    except InputError:
        raise
    except (HeaderError, ValueError) as error:
        raise InputError(str(error)) from error


def _scenario(options: Options, workload: Workload, measured: Speeds | None) -> Scenario:
    error = options["estimate_error"]
    if not 0 <= error <= 1:
        raise InputError("--estimate-error must be a share from 0 to 1")
    drawn = workload
    if error and options["estimates"] != "true":
        raise InputError("--estimate-error changes true durations: omit --estimates")
    if error:
        drawn = replace(drawn, jobs=noisy_estimates(drawn.jobs, options["seed"], error))
    pool = pool_inputs(options, measured)
    partitions: dict[str, int] = {}
    if options["partitions"]:
        with opened(options["partitions"]) as text:
            partitions = read_partitions(text)
    scenario = Scenario.make(
        pool.numbered(drawn), pool.nodes, pool.speeds, partitions, options["gpus_per_node"],
        measured=measured,
    )  # fmt: skip # rows of what belongs together
    scenario = pool.applied(scenario, options)
    _check_checkpoints(options, scenario.workload)
    if options["churn"]:
        begin = _instant(options["churn_from"]) if options["churn_from"] else None
        with opened(options["churn"]) as text:
            changes = read_churn(text, scenario.cluster.nodes, options["seed"], begin=begin)
        _check_history(changes, scenario.workload)
        return replace(scenario, cluster=replace(scenario.cluster, changes=changes))
    if options["churn_from"]:
        raise InputError("--churn-from needs --churn")
    return scenario


def _check_checkpoints(options: Options, workload: Workload) -> None:
    """Reject a checkpoint that takes as long as a lease, because the job would never end."""
    lease_us = _lease_us(options)
    for job in workload.jobs:
        if job.checkpoint_us is not None and job.checkpoint_us >= lease_us:
            raise InputError(
                f"job {job.name!r}: its checkpoint_s of {job.checkpoint_us / SECOND_US:g} must be"
                " shorter than --lease-s; use a smaller value, or longer leases"
            )


def _check_history(changes: Sequence[NodeChange], workload: Workload) -> None:
    """Reject a node history that ends before the first job: its start time is probably wrong."""
    last_us = max((change.at_us for change in changes), default=0)
    if 0 < last_us < min(job.submitted_us for job in workload.jobs):
        raise InputError(
            "--churn: the last change of the nodes is before the first job; if the jobs' times"
            " are dates, use --churn-from 1970-01-01"
        )


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"--churn-from {text!r}: is not a date or an instant") from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _workload(options: Options) -> tuple[Workload, Speeds | None]:
    if bool(options["synthetic"]) == bool(options["trace"]):
        raise InputError("needs either --trace or --synthetic")
    measured = _speeds(options["speeds"]) if options["speeds"] else None
    if options["synthetic"]:
        if options["set"]:
            raise InputError("--set needs a --trace that has several sets")
        if options["map"] or options["format"] != "auto":
            raise InputError("--map and --format need a --trace; omit them")
        if options["estimates"] == "given":
            raise InputError(
                "--estimates given needs a --trace; synthetic jobs have true estimates or none"
            )
        drawn = _Drawn.parse(options["synthetic"])
        models = _speeds(drawn.models) if drawn.models else None
        return _known(drawn.workload(options["seed"], models), options), measured or models
    return _known(_trace(options), options), measured


def _known(workload: Workload, options: Options) -> Workload:
    """Return the workload with only the estimates that policies may use."""
    if options["estimates"] != "none":
        return workload
    return replace(workload, jobs=tuple(replace(job, estimate_us=None) for job in workload.jobs))


def _trace(options: Options) -> Workload:
    path = Path(options["trace"])
    chosen, mapping = options["set"], read_mapping(options["map"])
    try:
        with path.open("rb") as file, rare_collections():
            _, lines = trace_lines(file, form=options["format"], mapping=mapping, chosen=chosen)
            workload = read_workload(lines, true_estimates=options["estimates"] == "true")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except HeaderError as error:
        raise InputError(f"{path}: {error}") from error
    if not workload.jobs:
        bad = [f"line {line.line} {line.reason}" for line in workload.bad[:1]]
        where = f" in set {chosen!r}" if chosen else ""
        raise InputError("; ".join([f"{path}: has no job{where}", *bad, *workload.remarks]))
    return workload


def _speeds(name: str) -> Speeds:
    with opened(name) as text:
        return read_speeds(text)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The parameters of `--synthetic`; `models` is a file of throughputs."""

    jobs: int
    tenants: int
    hours: int
    failed: float = 0.0
    cancelled: float = 0.0
    models: str = ""

    @classmethod
    def parse(cls, text: str) -> _Drawn:
        """Read a text like `400,4,6` or `jobs=400,tenants=4,hours=6,failed=0.1,...`."""
        names = ("jobs", "tenants", "hours")
        given: dict[str, str] = {}
        for place, part in enumerate(text.split(",")):
            name, is_named, value = part.rpartition("=")
            if not is_named:
                name = names[place] if place < len(names) else ""
            if name not in cls.__slots__ or name in given:
                raise InputError(f"--synthetic: {part!r} is unknown or repeated")
            given[name] = value
        if missing := [name for name in names if name not in given]:
            raise InputError(f"--synthetic: needs {', '.join(missing)}")
        counts = {name: whole_number(given[name], f"--synthetic {name}") for name in names}
        shares = {
            name: _share(given.get(name, "0"), f"--synthetic {name}")
            for name in ("failed", "cancelled")
        }
        return cls(**counts, **shares, models=given.get("models", ""))  # type: ignore[arg-type]  # by name

    def workload(self, seed: int, models: Speeds | None) -> Workload:
        return synthetic(
            seed=seed,
            jobs=self.jobs,
            tenants=self.tenants,
            hours=self.hours,
            failed=self.failed,
            cancelled=self.cancelled,
            models=models.models if models else (),
        )


def _share(text: str, what: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InputError(f"{what}: must be a share from 0 to 1, not {text!r}")
    return share
