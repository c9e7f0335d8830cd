"""The claims of UniSched (W. Gao et al., IEEE TC 2024), V and VI, on Chronus' workloads."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from evenshare_core.policies.registry import POLICIES
from evenshare_research.reproduce.deadline_runs import DAYS, NODES, WORKLOADS, deadline_run
from evenshare_research.reproduce.model import (
    Claim,
    ClaimVerdict,
    Findings,
    Part,
    ReportChart,
    ReportTable,
    Results,
    verdict_of,
)
from evenshare_research.reproduce.shown import DASH, bars, figures_table, number, percent

SOURCE = (
    "UniSched: A Unified Scheduler for Deep Learning Training Jobs With Different User Demands,"
    " IEEE TC 2024"
)
RAN = (
    f"Every fourth job of the first {DAYS} days of the second week of Chronus' workloads from"
    " Philly (SLO: 1,874 jobs, MIX1: 2,009, MIX2: 1,929; gangs of up to 32 GPUs). They run on"
    f" {NODES} nodes of 8 GPUs, a quarter of the paper's 96. Within these days, jobs demand 1.37,"
    " 1.77 and 1.11 times the GPU-hours of the nodes. Rounds and leases take 5 minutes, cold"
    " starts 30 s. A gang that would fit on one node is 10 % slower on several."
    " Quotas are in proportion to the tenants' demand. Estimates are true durations with uniform"
    " noise up to the stated percentage. The paper's noise is Gaussian; uniform noise up to 40 %"
    " has a standard deviation of 23 %. The rules of `unisched` for wrong estimates were chosen on"
    " the first 1,500 jobs of MIX2 with seed 1. No job waits to be profiled. If stated, each job"
    " has a profiling run of two GPUs for five minutes, as in the paper. Runs end when the last"
    " job ends. Deadlines are those of the workloads: the time from a job's submission to its"
    " first deadline is 1.1 to 5 times its duration."
)
OURS = "unisched"
AWARE, OTHERS = ("three_sigma", "genie", "hydra"), ("optimus", "themis")
MIXES = WORKLOADS[1:]
COMPARED = (OURS, "chronus", *AWARE, *OTHERS, "sjf", "evenshare")
# (percent of noise, seed of the draw)
NOISES = ((20, 1), (40, 1), (40, 2), (40, 3))
# The number of a tenant's jobs with deadlines is unlimited, as in the paper. The greedy rule serves
# tenants in turn, and each tenant's jobs by the least GPU-time left, without a program.
GREEDY = "evenshare"
OPTIONS: dict[str, dict[str, Any]] = {
    OURS: {"reward_points_per_gpu": 10_000},
    GREEDY: {"estimates": "deadlines"},
}
RUNS = {
    (workload, name): deadline_run(workload, name, options=OPTIONS.get(name))
    for workload in WORKLOADS
    for name in COMPARED
}
NOISY = {
    (noise, name): deadline_run(
        "MIX2", name, options=OPTIONS.get(name), noise_percent=noise[0], seed=noise[1]
    )
    for noise in NOISES
    for name in COMPARED
    if POLICIES[name].traits.needs_estimates or name == GREEDY
}
PROFILED = {
    workload: deadline_run(workload, OURS, options=OPTIONS[OURS], profiling=True)
    for workload in WORKLOADS
}
PARTS_LEFT_OUT: dict[str, dict[str, Any]] = {
    "complete": {},
    "speeds on several nodes unknown": {"use_estimator": False},
    "restarts not counted": {"count_restarts": False},
    "only consolidated": {"select": "consolidated"},
    "deadlines counted, not rewards": {"objective": "alike"},
    "no margin before deadlines": {"margin_percent": 0},
    "SLO leases of 10 min, as in the paper": {"lease_multiple": 2},
    "SLO leases of 30 min": {"lease_multiple": 6},
    "SLO leases of 60 min": {"lease_multiple": 12},
}
OWN_ABLATIONS = {
    name: deadline_run("MIX1", OURS, options=OPTIONS[OURS] | options)
    for name, options in PARTS_LEFT_OUT.items()
}
CHRONUS_ALONE = {"estimator": False, "selector": False}
CHRONUS_WITH = {
    "with the estimator": {"estimator": True, "selector": False},
    "with the selector": {"estimator": False, "selector": True},
}
ABLATIONS = {
    (workload, name): deadline_run(workload, "chronus", options=options)
    for workload in MIXES
    for name, options in {"chronus": CHRONUS_ALONE, **CHRONUS_WITH}.items()
}
MISS, BEST_EFFORT = "deadline_miss_rate", "best_effort_jct_s"
ALIKE = 0.01  # by how much noise may change a miss rate
POINTS_LESS = 0.052  # by how much the miss rate is below that of Chronus
PROFILING_WAIT_S = 840

Noise = tuple[int, int]
Rows = Mapping[tuple[str, str], Mapping[str, Any]]


class _Ahead(NamedTuple):
    """A claim that UniSched's figure is lower than each rival's by at least a factor."""

    text: str
    paper: str
    field: str
    workloads: tuple[str, ...]
    rivals: tuple[str, ...]
    factor: float  # the lowest factor that the paper states


AHEAD = (
    _Ahead(
        "The weighted deadline miss rate is below that of 3Sigma, GENIE and Hydra if all jobs have"
        " deadlines",
        "1.17 to 4.82x", MISS, WORKLOADS[:1], AWARE, 1.17,
    ),
    _Ahead(
        "The weighted deadline miss rate is below that of 3Sigma, GENIE and Hydra with best-effort"
        " jobs",
        "0.95 to 2.77x", MISS, MIXES, AWARE, 0.95,
    ),
    _Ahead(
        "The weighted deadline miss rate is below that of Optimus and Themis",
        "2.01 to 6.84x", MISS, WORKLOADS, OTHERS, 2.01,
    ),
    _Ahead(
        "The JCT of best-effort jobs is lower than under the others",
        "1.18 to 4.02x; Optimus 0.67x", BEST_EFFORT, MIXES, (*AWARE, *OTHERS), 1.18,
    ),
)  # fmt: skip # a table


def ahead_claim(claimed: _Ahead, rows: Rows) -> Claim:
    """Return a claim of V-B about the ratio of the rivals' figures to UniSched's, in each workload.

    The claim is reproduced if UniSched has three quarters of the paper's lowest gain over every
    rival. It is in direction if UniSched is ahead in more than half of the comparisons.
    """
    factors = {
        (workload, rival): _factor(
            rows[workload, rival][claimed.field], rows[workload, OURS][claimed.field]
        )
        for workload in claimed.workloads
        for rival in claimed.rivals
    }
    wanted = 1 + 0.75 * (claimed.factor - 1) if claimed.factor > 1 else claimed.factor
    behind = [key for key, factor in factors.items() if factor < min(wanted, 1.01)]
    verdict = verdict_of(
        min(factors.values()) >= wanted, in_direction=2 * len(behind) < len(factors)
    )
    why = _named("not ahead of", behind)
    if not why and verdict is not ClaimVerdict.REPRODUCED:
        why = _named("smaller gain over", [key for key, one in factors.items() if one < wanted])
    show = percent if claimed.field == MISS else number
    ours = "; ".join(
        f"{workload}: {show(rows[workload, OURS][claimed.field])} against "
        + ", ".join(
            f"`{rival}` {show(rows[workload, rival][claimed.field])}" for rival in claimed.rivals
        )
        for workload in claimed.workloads
    )
    return Claim("V-B", claimed.text, claimed.paper, ours, verdict, why)


def _factor(theirs: float, ours: float) -> float:
    """Return `theirs` divided by `ours`, or 1 if both are 0."""
    if not ours:
        return float("inf") if theirs else 1.0
    return theirs / ours


def _named(text: str, keys: Iterable[tuple[str, str]]) -> str:
    named = [f"`{rival}` in {workload}" for workload, rival in keys]
    return f"{text} {', '.join(named)}" if named else ""


def suspensions_claim(rows: Rows) -> Claim:
    """Return the claim of V-B, figure 8: SLO jobs are suspended 2 to 6 times on average."""
    counts = {workload: rows[workload, OURS]["slo_suspensions"] for workload in WORKLOADS}
    inside = [workload for workload, count in counts.items() if 2 <= count <= 6]
    outside = ", ".join(workload for workload in counts if workload not in inside)
    return Claim(
        "V-B",
        "SLO jobs are suspended and resumed a few times each, on average",
        "2 to 6",
        "; ".join(f"{workload}: {number(count, 2)}" for workload, count in counts.items()),
        verdict_of(not outside, in_direction=bool(inside)),
        f"not in {outside}" if outside else "",
    )


def noise_claim(exact: Mapping[str, Any], noisy: Mapping[Noise, Mapping[str, Any]]) -> Claim:
    """Return the claim of VI-A, figure 9(d), from figures of MIX2, within `ALIKE`."""
    rates = {"0 %": exact[MISS], **{_noise(noise): row[MISS] for noise, row in noisy.items()}}
    more = max(rates.values()) - exact[MISS]
    return Claim.of(
        "VI-A",
        "Deadlines are kept equally well if run times are wrong by up to 40 %",
        "stated",
        "; ".join(f"{noise}: {percent(rate)}" for noise, rate in rates.items()),
        held=more <= ALIKE,
        why_not=f"{percent(more)} more deadlines are missed",
    )


def _noise(noise: Noise) -> str:
    percent_off, seed = noise
    return f"{percent_off} %, seed {seed}"


def profiling_claim(profiled: Mapping[str, Mapping[str, Any]]) -> Claim:
    """Return the claim of VI-A, figure 9(c), about the longest wait of a profiling run."""
    waits = {workload: row["profiling_wait_max_s"] for workload, row in profiled.items()}
    static = {workload: row["static_profiling_wait_max_s"] for workload, row in profiled.items()}
    verdict = verdict_of(
        max(waits.values()) <= PROFILING_WAIT_S,
        in_direction=all(waits[workload] < static[workload] for workload in waits),
    )
    ours = "; ".join(
        f"{workload}: {number(wait)} s (mean {number(profiled[workload]['profiling_wait_s'])} s),"
        f" with reserved nodes {number(static[workload])} s"
        for workload, wait in waits.items()
    )
    return Claim(
        "VI-A",
        "Profiling runs wait at most this long, without and with nodes reserved for profiling",
        "840 s; 2,105 s",
        ours,
        verdict,
        "" if verdict is ClaimVerdict.REPRODUCED else "the longest wait is above the paper's",
    )


def speed_claim(rows: Rows) -> Claim:
    """Return the claim of VI-B about the slowest round of all runs."""
    slowest = max(rows[workload, OURS]["slowest_round_s"] for workload in WORKLOADS)
    return Claim.of(
        "VI-B",
        "A plan for the next leases is ready in time",
        "under 10 s",
        f"{number(slowest, 2)} s in the slowest round",
        held=slowest < 10,
    )


def chronus_claim(rows: Rows) -> Claim:
    """Return the claim of VI-C: miss rates are up to 5.2 points below Chronus'.

    It is reproduced if one workload reaches three quarters of this, and UniSched's rate is above
    Chronus' in none.
    """
    less = {
        workload: rows[workload, "chronus"][MISS] - rows[workload, OURS][MISS] for workload in MIXES
    }
    behind = [workload for workload, points in less.items() if points < 0]
    return Claim(
        "VI-C",
        "The weighted deadline miss rate is below that of Chronus",
        "up to 5.2 points",
        "; ".join(f"{name}: {number(100 * points, 2)} points" for name, points in less.items()),
        verdict_of(
            not behind and max(less.values()) >= 0.75 * POINTS_LESS,
            in_direction=max(less.values()) > ALIKE and len(behind) < len(less),
        ),
        f"above Chronus in {', '.join(behind)}" if behind else "",
    )


def claims_of(
    rows: Rows,
    noisy: Mapping[Noise, Mapping[str, Any]],
    profiled: Mapping[str, Mapping[str, Any]],
) -> list[Claim]:
    return [
        *(ahead_claim(one, rows) for one in AHEAD),
        suspensions_claim(rows),
        noise_claim(rows["MIX2", OURS], noisy),
        speed_claim(rows),
        chronus_claim(rows),
        profiling_claim(profiled),
        Claim(
            "VI-A",
            "Estimated durations are wrong by about 10 % half-way through training",
            "10 %",
            DASH,
            ClaimVerdict.NOT_TESTABLE,
            "the jobs' learning curves are not public; estimation.md has results on other curves",
        ),
    ]


def greedy_note(rows: Rows, noisy: Mapping[tuple[Noise, str], Mapping[str, Any]]) -> str:
    """Return where UniSched's program misses more deadlines than a greedy rule."""
    pairs = {workload: (rows[workload, OURS], rows[workload, GREEDY]) for workload in WORKLOADS}
    for noise in NOISES:
        pairs[f"MIX2 with noise of {_noise(noise)}"] = (noisy[noise, OURS], noisy[noise, GREEDY])
    lost = [name for name, (ours, greedy) in pairs.items() if ours[MISS] > greedy[MISS]]
    verdict = f"misses more deadlines in {'; '.join(lost)}" if lost else "misses no more deadlines"
    return (
        f"Deadlines missed by the program and by a greedy rule (`{GREEDY}` with estimates"
        " `deadlines`). The rule serves tenants by fairness, and of each tenant the job with the"
        f" least GPU-time left. The program {verdict}."
    )


# ---- tables and the part ----

COLUMNS = (
    ("miss rate", MISS, percent),
    ("strict missed", "strict_miss_rate", percent),
    ("soft missed", "soft_miss_rate", percent),
    ("best-effort JCT s", BEST_EFFORT, number),
    ("suspensions per SLO job", "slo_suspensions", lambda value: number(value, 2)),
    ("JCT s", "jct_s", number),
)


def _table(title: str, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> ReportTable:
    return figures_table(title, rows, COLUMNS)


def _judge(results: Results) -> Findings:
    rows = {key: results[run] for key, run in RUNS.items()}
    noisy = {key: results[run] for key, run in NOISY.items()}
    ours_noisy = {noise: row for (noise, name), row in noisy.items() if name == OURS}
    tables = [
        _table(
            f"{workload}: {rows[workload, OURS]['jobs']:,} jobs, density"
            f" {number(rows[workload, OURS]['density'], 2)}",
            [(f"`{name}`", rows[workload, name]) for name in COMPARED],
        )
        for workload in WORKLOADS
    ]
    tables.append(
        _table(
            "MIX2 with wrong estimates",
            [(f"`{name}`, up to {_noise(noise)}", row) for (noise, name), row in noisy.items()],
        )
    )
    shown = [(name, results[run]) for name, run in OWN_ABLATIONS.items()]
    tables.append(_table("UniSched without some of its parts, MIX1", shown))
    tables.append(
        _table(
            "Chronus, without and with parts of UniSched",
            [(f"{workload}: {name}", results[run]) for (workload, name), run in ABLATIONS.items()],
        )
    )
    rates = [
        bars(name, WORKLOADS, [rows[workload, name][MISS] for workload in WORKLOADS])
        for name in COMPARED
    ]
    chart = ReportChart("Weighted deadline miss rate (figure 6a)", "", "miss rate", rates)
    notes = [greedy_note(rows, noisy)]
    profiled = {workload: results[run] for workload, run in PROFILED.items()}
    tables.append(_table("UniSched with a profiling run for each job", profiled.items()))
    return Findings(claims_of(rows, ours_noisy, profiled), tables, [chart], notes)


PARTS = (
    Part(
        "unisched",
        "UniSched: deadlines",
        SOURCE,
        RAN,
        [
            run
            for runs in (RUNS, NOISY, OWN_ABLATIONS, ABLATIONS, PROFILED)
            for run in runs.values()
        ],
        _judge,
        is_long=True,
    ),
)
