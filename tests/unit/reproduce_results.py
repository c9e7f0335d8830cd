"""Provide made-up results of the runs of `make reproduce`, with which every part can be judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from evenshare_research.reproduce.model import Part
from evenshare_research.reproduce.oef import RULES
from evenshare_research.reproduce.runs import KeptRun


def made_up(part: Part) -> dict[KeptRun, Any]:
    """Return results for a part's runs, each a little worse than the one before."""
    return {
        run: MAKERS[run.function.rpartition(".")[2]](json.loads(run.arguments), step)
        for step, run in enumerate(dict.fromkeys(part.runs), 1)
    }


RESAMPLED = (
    "sharing_loss_jobs", "slowdown", "jct_s", "tenant_unfair_intervals", "tenant_deficit",
)  # fmt: skip


def philly_result(_: dict[str, Any], step: int, **figures: float) -> dict[str, Any]:
    """Return a result in the form of `philly.run` and `venus.run`.

    In the resamples, all figures are 1 % lower or 1 % higher, in turn.
    """
    curve = [step / 100 * quantile for quantile in range(101)]
    shares = dict.fromkeys(
        ("sharing_loss_jobs", "tenant_unfair_intervals", "tenant_deficit",
         "tenant_daily_deficit", "late_vs_fair_reference", "gpu_utilisation", "waste"),
        step / 1000,
    )  # fmt: skip
    row: dict[str, Any] = {
        "nodes": 60, "jobs": 100, "preemptions": step, "deadline_miss_rate": None, **shares,
        "slowdown": 1 + step / 1000, "slowdown_p99": 2.0, "jct_s": 9000.0 + step,
        "rho_quantiles": curve, "slowdown_quantiles": curve, "queue_s_by_gang": {"1": 1.0},
        **figures,
    }  # fmt: skip
    noise = (0.99, 1.01) * 5
    return row | {"resampled": {name: [row[name] * one for one in noise] for name in RESAMPLED}}


def turns_result(arguments: dict[str, Any], _: int) -> dict[str, Any]:
    """Return a result in the form of `turns.run`: each tenant always has one GPU of each type."""
    quanta = arguments["quanta"]
    keys = [f"{tenant} {name}" for tenant, *_ in arguments["kinds"] for name in arguments["sizes"]]
    row = [0] * quanta
    return {"gpus": {key: [1] * quanta for key in keys}, "made": row, "undone": row}


def _totals(arguments: dict[str, Any], _: int) -> list[dict[str, float]]:
    rules = (*RULES, "gandiva_fair")
    return [dict.fromkeys(rules, 10.0 + seed) for seed in range(arguments["seeds"])]


def _deviations(arguments: dict[str, Any], _: int) -> dict[str, list[list[float]]]:
    rows = [[error / 10, error] for error in arguments["errors"]]
    return {"cooperative": rows, "noncooperative": rows}


def _throughput(_: dict[str, Any], step: int) -> dict[str, float]:
    return {"throughput": 100.0 - step}


def _completion(_: dict[str, Any], step: int) -> dict[str, Any]:
    return {"jobs": 1000, "jct_s": 5000.0 + step, "quantiles": list(range(101))}


def _four(_: dict[str, Any], __: int) -> dict[str, Any]:
    return {
        "four": [10.0] * 4, "three": [12.0] * 3, "lies": {"1.1": [9.0, 35.0]},
        "two_types": [5.0, 5.0, 10.0, 10.0, 10.0], "over_max_min": [1.0, 1.0, 1.0, 1.16],
        "envied": 1.0, "envy": 1.58,
    }  # fmt: skip


def _proofs(_: dict[str, Any], __: int) -> dict[str, Any]:
    keys = ("overstating", "envy", "split", "few", "few_cooperative")
    return {
        "broken": dict.fromkeys(keys, 0), "understating": [2.0, 2.0], "several_types": [8.0, 8.0],
        "cooperative": [1.0, 8.0, 10.0], "better": [1.0, 7.0, 11.0], "distant": [1.0, 1.0, 0.0],
    }  # fmt: skip


def _astraea(_: dict[str, Any], step: int) -> dict[str, Any]:
    """Return a result in which sharing raises Astraea's revenue to 1.7 times."""
    return {
        "revenue": 17_000.0 - step, "scheduled": 40, "borrowed": 4, "makespan": 400,
        "without_gain": 0, "cpu_s_per_job": 0.01, "alpha": [0.5, 1.5], "private_revenue": 10_000.0,
        "private_scheduled": 41, "private_makespan": 500, "private_alpha": [1.0, 1.0],
    }  # fmt: skip


def _gangs(arguments: dict[str, Any], step: int) -> dict[str, Any]:
    revenue = {"gandiva_fair": 13_700.0, "hived": 12_300.0}[arguments["policy"]] - step
    row = {
        "revenue": revenue, "without_floor": 9_000.0, "hours": 200.0, "makespan": 700.0,
        "alpha": [0.0, 2.0],
    }  # fmt: skip
    return {"linear": row, "convex": row}


def _best_plans(_: dict[str, Any], step: int) -> dict[str, float]:
    return {"geometric": 0.9 - step / 1000, "fixed": 0.95, "known": 1.0}


def _deadlines(_: dict[str, Any], step: int) -> dict[str, Any]:
    return {
        "jobs": 1000, "gpu_hours": 9000.0, "density": 1.4, "least_miss_rate": 0.0,
        "deadline_miss_rate": step / 1000,
        "deadline_reward_rate": 1 - step / 1000, "strict_miss_rate": step / 1000,
        "soft_miss_rate": None, "best_effort_jct_s": 9000.0 + step, "slo_suspensions": 2.0,
        "jct_s": 9000.0 + step, "preemptions": step, "rounds": 100, "slowest_round_s": 0.1,
        "profiling_wait_s": 100.0, "profiling_wait_max_s": 100.0 * step,
        "static_profiling_wait_max_s": 9000.0,
    }  # fmt: skip


MAKERS: dict[str, Callable[[dict[str, Any], int], Any]] = {
    "philly:run": philly_result,
    "venus:run": philly_result,
    "samples:run": philly_result,
    "turns:run": turns_result,
    "mixed:estimates": _totals,
    "mixed:profile_errors": _deviations,
    "mixed:steady": _throughput,
    "mixed:days": _completion,
    "properties:four_tenants": _four,
    "properties:proofs": _proofs,
    "market_runs:astraea": _astraea,
    "market_runs:baseline": _gangs,
    "market_runs:ratio": _best_plans,
    "deadline_runs:run": _deadlines,
}
