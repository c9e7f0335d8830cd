"""The claims of UniSched (W. Gao et al., IEEE TC 2024), V and VI, on Chronus' workloads."""

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple

from evenshare_core.policies.registry import POLICIES
from evenshare_research.reproduce.deadline_runs import NODES, WORKLOADS
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
from evenshare_research.reproduce.runs import KeptRun
from evenshare_research.reproduce.shown import DASH, bars, number, percent
from evenshare_research.reproduce.unisched_runs import (
    ABLATIONS,
    AWARE,
    CHRONUS,
    COMPARED,
    EXACT,
    GREEDY,
    MIXES,
    NOISY,
    OTHERS,
    OURS,
    OWN_ABLATIONS,
    PROFILED,
    RUNS,
    SEEDS,
)
from evenshare_research.reproduce.unisched_tables import (
    BEST_EFFORT,
    MISS,
    Row,
    columns_of,
    noise_table,
    runs_table,
)

SOURCE = (
    "UniSched: A Unified Scheduler for Deep Learning Training Jobs With Different User Demands,"
    " IEEE TC 2024"
)
RAN = (
    f"{len(SEEDS)} seeds. Each draws half of the jobs of a day of Chronus' workloads from Philly"
    " (the first of the second week). The repository has every fourth of these jobs. They run"
    f" on {NODES} nodes of 8 GPUs. Jobs longer than a day are left out: they are one in twenty,"
    " and one of them would fill so few nodes for weeks. By IV-B, the first deadline is drawn"
    " at 1.1 to 2 times the duration, and soft deadlines follow at 1.1, 1.2 and 1.5 times the"
    " first. By IV-B, 20 % of the jobs stop by a metric. By their users'"
    " maximum of iterations, they would run up to 31 % longer (II-A). `unisched` and `themis`"
    " have the iteration estimator (IV-D), with a mean error of 10 % (VI-A). So has the greedy"
    " rule. All others plan with the maximum. Of Optimus, IV-D says only that it fits training"
    " speeds online; a second row gives it the estimator. By III-C, leases of SLO jobs take 10"
    " minutes under `unisched`. Other leases and rounds take 5 minutes, cold starts 30 s. A"
    " gang that would fit on one node is 10 % slower on several. Quotas are in proportion to"
    " the tenants' demand. No job waits to be profiled. Figures are means of the seeds. A"
    " number after ± is half the width of the mean's 95 % interval, by Student's t."
)
PARTS_RAN = (
    "The workloads, nodes and leases of the part above, with one seed unless stated. Estimates are"
    " true durations with uniform noise up to the stated percentage. The paper's noise is Gaussian;"
    " uniform noise up to 40 % has a standard deviation of 23 %. The rules of `unisched` for wrong"
    " estimates were chosen on Chronus' own deadlines. If stated, each job has a profiling run of"
    " two GPUs for five minutes, as in the paper."
)
ALIKE = 0.01  # by how much noise may change a miss rate
POINTS_LESS = 0.052  # by how much the miss rate is below that of Chronus
PROFILING_WAIT_S = 840
# Student's t by the number of seeds
T_95 = dict(enumerate((4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26), start=3))

Noise = tuple[int, int]
Rows = Mapping[tuple[str, str], Sequence[Row]]  # by workload and policy, a row per seed


class _Ahead(NamedTuple):
    """A claim that UniSched's figure is lower than each rival's by factors of the paper's range."""

    text: str
    paper: str
    field: str
    workloads: tuple[str, ...]
    rivals: tuple[str, ...]
    least: float
    most: float


AHEAD = (
    _Ahead(
        "The weighted deadline miss rate is below that of 3Sigma, GENIE and Hydra if all jobs have"
        " deadlines",
        "1.17 to 4.82x", MISS, WORKLOADS[:1], AWARE, 1.17, 4.82,
    ),
    _Ahead(
        "The weighted deadline miss rate is below that of 3Sigma, GENIE and Hydra with best-effort"
        " jobs",
        "0.95 to 2.77x", MISS, MIXES, AWARE, 0.95, 2.77,
    ),
    _Ahead(
        "The weighted deadline miss rate is below that of Optimus and Themis",
        "2.01 to 6.84x", MISS, WORKLOADS, OTHERS, 2.01, 6.84,
    ),
    _Ahead(
        "The JCT of best-effort jobs is lower than under the others",
        "1.18 to 4.02x; Optimus 0.67x", BEST_EFFORT, MIXES, (*AWARE, *OTHERS), 1.18, 4.02,
    ),
)  # fmt: skip # a table


def mean_of(rows: Sequence[Row], field: str) -> float | None:
    """Return the mean over seeds, or None if the workload has no such jobs."""
    values = [row[field] for row in rows if row[field] is not None]
    return fmean(values) if values else None


def gain_of(theirs: Sequence[Row], ours: Sequence[Row], field: str) -> tuple[float, float]:
    """Return by how much their figure is above ours: the mean, and its 95 % interval's half width.

    Rows of the same seed are compared.
    """
    gains = [one[field] - other[field] for one, other in zip(theirs, ours, strict=True)]
    return fmean(gains), T_95[len(gains)] * stdev(gains) / sqrt(len(gains))


def ahead_claim(claimed: _Ahead, rows: Rows) -> Claim:
    """Return a claim of V-B about the ratio of the rivals' figures to UniSched's, in each workload.

    The claim is reproduced if every gain is beyond the noise of the seeds and within the paper's
    range. The range is from three quarters of its lowest gain to five quarters of its highest. It
    is in direction if UniSched is ahead, beyond the noise, in more than half of the comparisons. A
    gain above the paper's is that of a weak baseline, and no success.
    """
    keys = [(workload, rival) for workload in claimed.workloads for rival in claimed.rivals]
    factors = {key: _factor(rows, key, claimed.field) for key in keys}
    gains = {key: gain_of(rows[key], rows[key[0], OURS], claimed.field) for key in keys}
    wanted = 1 + 0.75 * (claimed.least - 1) if claimed.least > 1 else claimed.least
    highest = 1 + 1.25 * (claimed.most - 1)
    behind = [key for key in keys if factors[key] < min(wanted, 1.01)]
    unsure = [
        key for key in keys if key not in behind and wanted > 1 and gains[key][0] <= gains[key][1]
    ]
    smaller = [key for key in keys if key not in (*behind, *unsure) and factors[key] < wanted]
    weak = [key for key in keys if factors[key] > highest]
    why = "; ".join(
        filter(None, (
            _named("not ahead of", behind),
            _named("ahead only within the noise of", unsure),
            _named("smaller gain over", smaller),
            _named("weak baseline, gain above the paper's:", weak),
        ))
    )  # fmt: skip # the order of the sentence
    verdict = verdict_of(not why, in_direction=2 * len([*behind, *unsure]) < len(keys))
    return Claim("V-B", claimed.text, claimed.paper, _shown(claimed, rows, gains), verdict, why)


def _factor(rows: Rows, key: tuple[str, str], field: str) -> float:
    """Return their mean divided by UniSched's, or 1 if both are 0."""
    theirs, ours = mean_of(rows[key], field), mean_of(rows[key[0], OURS], field)
    if not ours:
        return float("inf") if theirs else 1.0
    return (theirs or 0.0) / ours


def _shown(
    claimed: _Ahead, rows: Rows, gains: Mapping[tuple[str, str], tuple[float, float]]
) -> str:
    show = percent if claimed.field == MISS else number

    def theirs(workload: str, rival: str) -> str:
        gain, half = gains[workload, rival]
        mean = show(mean_of(rows[workload, rival], claimed.field))
        return f"`{rival}` {mean} (more by {show(gain)} ± {show(half)})"

    return "; ".join(
        f"{workload}: {show(mean_of(rows[workload, OURS], claimed.field))} against "
        + ", ".join(theirs(workload, rival) for rival in claimed.rivals)
        for workload in claimed.workloads
    )


def _named(text: str, keys: Iterable[tuple[str, str]]) -> str:
    rivals: dict[str, list[str]] = {}
    for workload, rival in keys:
        rivals.setdefault(workload, []).append(f"`{rival}`")
    named = [f"{', '.join(names)} in {workload}" for workload, names in rivals.items()]
    return f"{text} {', '.join(named)}" if named else ""


def suspensions_claim(rows: Rows) -> Claim:
    """Return the claim of V-B, figure 8: SLO jobs are suspended 2 to 6 times on average."""
    counts = {name: mean_of(rows[name, OURS], "slo_suspensions") or 0.0 for name in WORKLOADS}
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


def noise_claim(exact: Mapping[int, Row], noisy: Mapping[Noise, Row]) -> Claim:
    """Return the claim of VI-A, figure 9(d), from figures of MIX2, within `ALIKE`.

    A noisy run is compared with the exact run of its seed. `exact` is by seed.
    """
    more = {
        share: fmean(
            row[MISS] - exact[seed][MISS] for (one, seed), row in noisy.items() if one == share
        )
        for share in dict.fromkeys(share for share, _ in noisy)
    }
    return Claim.of(
        "VI-A",
        "Deadlines are kept equally well if run times are wrong by up to 40 %",
        "stated",
        "; ".join(
            f"{_noise(noise)}: {percent(row[MISS])} instead of {percent(exact[noise[1]][MISS])}"
            for noise, row in noisy.items()
        ),
        held=max(more.values()) <= ALIKE,
        why_not=f"{percent(max(more.values()))} more deadlines are missed",
    )


def _noise(noise: Noise) -> str:
    percent_off, seed = noise
    return f"{percent_off} %, seed {seed}"


def profiling_claim(profiled: Mapping[str, Row]) -> Claim:
    """Return the claim of VI-A, figure 9(c), about the longest wait of a profiling run."""
    waits = {workload: row["profiling_wait_max_s"] for workload, row in profiled.items()}
    static = {workload: row["static_profiling_wait_max_s"] for workload, row in profiled.items()}
    verdict = verdict_of(
        max(waits.values()) <= PROFILING_WAIT_S,
        in_direction=all(waits[workload] < static[workload] for workload in waits),
    )
    ours = "; ".join(
        f"{workload}: {number(wait)} s (mean {number(profiled[workload]['profiling_wait_s'])} s),"
        f" with reserved GPUs {number(static[workload])} s"
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
    slowest = max(row["slowest_round_s"] for name in WORKLOADS for row in rows[name, OURS])
    return Claim(
        "VI-B",
        "A plan for the next leases is ready in time",
        "under 10 s",
        f"{number(slowest, 2)} s of wall time in the slowest round",
        verdict_of(False, in_direction=slowest < 10),
        f"these are {NODES} nodes, the paper's 96 or more"
        if slowest < 10
        else "too slow, or the cores were busy",
    )


def chronus_claim(rows: Rows) -> Claim:
    """Return the claim of VI-C: miss rates are up to 5.2 points below Chronus'.

    It is reproduced if one workload reaches three quarters of this beyond the noise, and UniSched's
    rate is above Chronus' in none.
    """
    less = {name: gain_of(rows[name, "chronus"], rows[name, OURS], MISS) for name in MIXES}
    behind = [workload for workload, (points, _) in less.items() if points < 0]
    sure = [points for points, half in less.values() if points > half]
    best = max(sure, default=0.0)
    why = f"above Chronus in {', '.join(behind)}" if behind else ""
    if not why and best < 0.75 * POINTS_LESS:
        why = "within the noise" if not sure else "by less"
    return Claim(
        "VI-C",
        "The weighted deadline miss rate is below that of Chronus",
        "up to 5.2 points",
        "; ".join(
            f"{name}: {number(100 * points, 2)} ± {number(100 * half, 2)} points"
            for name, (points, half) in less.items()
        ),
        verdict_of(not why, in_direction=best > ALIKE and len(behind) < len(less)),
        why,
    )


def claims_of(rows: Rows) -> list[Claim]:
    """Return the claims about whole runs of ten seeds."""
    return [*(ahead_claim(one, rows) for one in AHEAD), suspensions_claim(rows), speed_claim(rows)]


def parts_claims(noise: Claim, chronus: Claim, profiled: Mapping[str, Row]) -> list[Claim]:
    """Return the claims about parts of UniSched."""
    return [
        noise,
        chronus,
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


def greedy_note(rows: Rows) -> str:
    """Return where UniSched's program misses more deadlines than a greedy rule."""
    gains = {name: gain_of(rows[name, GREEDY], rows[name, OURS], MISS) for name in WORKLOADS}
    shown = ", ".join(
        f"{name} {number(100 * gain, 2)} ± {number(100 * half, 2)}"
        for name, (gain, half) in gains.items()
    )
    return (
        f"Deadlines missed by a greedy rule (`{GREEDY}` with estimates `deadlines`), in points more"
        f" than by the program: {shown}. The rule serves tenants by fairness, and of each tenant"
        " the job with the least GPU-time left."
    )


def weak_note(rows: Rows) -> str:
    """Return why a large factor over the policies that keep running jobs is no success."""
    factors = [_factor(rows, ("SLO", rival), MISS) for rival in AWARE]
    return (
        f"In SLO, 3Sigma, GENIE and Hydra miss {number(min(factors), 0)} to"
        f" {number(max(factors), 0)} times as many deadlines as UniSched. The paper has at most"
        " 4.82 times. This is no success of UniSched: the three are weak baselines here. They never"
        " suspend a running SLO job, and in this workload every job is one. So jobs wait until"
        " others end, while deadlines are twice the duration at most."
    )


# ---- tables and the parts ----


def _seeds_table(workload: str, rows: Rows) -> ReportTable:
    """Return the means over seeds, and by how many points each policy misses more."""
    ours = rows[workload, OURS]

    columns = columns_of(ours)

    def line(name: str) -> list[str]:
        gain, half = gain_of(rows[workload, name], ours, MISS)
        more = DASH if name == OURS else f"{number(100 * gain, 2)} ± {number(100 * half, 2)}"
        shown = [show(mean_of(rows[workload, name], field)) for _, field, show in columns]
        return [f"`{name}`" if name in POLICIES else f"`optimus`{name[7:]}", more, *shown]

    jobs, density = mean_of(ours, "jobs"), mean_of(ours, "density")
    least = mean_of(ours, "least_miss_rate")
    title = (
        f"{workload}: {number(jobs)} jobs a seed, density {number(density, 2)}; no policy misses"
        f" less than {percent(least)}"
    )
    head = ["", "misses more than `unisched`, points", *(column for column, _, _ in columns)]
    return ReportTable(title, head, [line(name) for name in COMPARED])


def _by_seed(results: Results, runs: Mapping[tuple[str, str, int], KeptRun]) -> Rows:
    rows: dict[tuple[str, str], list[Row]] = {}
    for (workload, name, _), run in runs.items():
        rows.setdefault((workload, name), []).append(results[run])
    return rows


def _judge(results: Results) -> Findings:
    rows = _by_seed(results, RUNS)
    rates = [
        bars(name, WORKLOADS, [mean_of(rows[workload, name], MISS) or 0 for workload in WORKLOADS])
        for name in COMPARED
    ]
    chart = ReportChart("Weighted deadline miss rate (figure 6a)", "", "miss rate", rates)
    tables = [_seeds_table(workload, rows) for workload in WORKLOADS]
    return Findings(claims_of(rows), tables, [chart], [weak_note(rows), greedy_note(rows)])


def _judge_parts(results: Results) -> Findings:
    noisy = {key: results[run] for key, run in NOISY.items()}
    exact = {seed: results[run] for (seed, name), run in EXACT.items() if name == OURS}
    profiled = {workload: results[run] for workload, run in PROFILED.items()}
    claims = parts_claims(
        noise_claim(exact, {noise: row for (noise, name), row in noisy.items() if name == OURS}),
        chronus_claim(_by_seed(results, CHRONUS)),
        profiled,
    )
    exact_rows = {(f"exact, seed {seed}", name): results[EXACT[seed, name]] for seed, name in EXACT}
    noisy_rows = {(f"up to {_noise(noise)}", name): row for (noise, name), row in noisy.items()}
    chronus_rows = [
        (f"{workload}: {name}", results[run]) for (workload, name), run in ABLATIONS.items()
    ]
    left_out = [(name, results[run]) for name, run in OWN_ABLATIONS.items()]
    tables = [
        noise_table({**exact_rows, **noisy_rows}),
        runs_table("UniSched without some of its parts, MIX1, seed 1", left_out),
        runs_table("Chronus, without and with parts of UniSched, seed 1", chronus_rows),
        runs_table("UniSched with a profiling run for each job, seed 1", profiled.items()),
    ]
    return Findings(claims, tables)


def _listed(*groups: Mapping[Any, KeptRun]) -> list[KeptRun]:
    return [run for runs in groups for run in runs.values()]


PARTS = (
    Part("unisched", "UniSched: deadlines", SOURCE, RAN, _listed(RUNS), _judge),
    Part(
        "unisched-parts",
        "UniSched: its parts",
        SOURCE,
        PARTS_RAN,
        _listed(NOISY, EXACT, CHRONUS, PROFILED, OWN_ABLATIONS, ABLATIONS),
        _judge_parts,
    ),
)
