"""The claims of OEF (Middleware 2024), from its proofs and its evaluation in section 6.

OEF's testbed, jobs and speeds are not public. The programs compute shares on the speeds of
`evenshare_research.reproduce.mixed`. Jobs are drawn from seeds and run in the simulator, which does
not model the network between nodes.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from evenshare_research.reproduce.mixed import days_run, errors_run, estimates_run, steady_run
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
from evenshare_research.reproduce.shown import bars, curve, dotted, number, percent, signed

SOURCE = (
    "Z. Mo et al., Optimal Resource Efficiency with Fairness in Heterogeneous GPU Clusters,"
    " Middleware 2024"
)
RIVALS = ("gavel", "gandiva_fair")
RULES = ("cooperative", "noncooperative", *RIVALS, "max_min", "max_efficiency")
SOURCES = {
    "gavel": "Gavel's table",
    "paper": "the paper's range",
}
SPEEDS = (
    "Three GPU types of 8 GPUs each. The speeds of a tenant's job type are from one of two"
    " sources. From Gavel's table (`portal/demo/data`), they are those of a model on K80, P100"
    " and V100, if no newer type slows the model down. From the paper's range, the speedup on the"
    " fastest type is between 1.39 and 2.15, the two that the paper states. The speedup on the"
    " middle type is between 1 and that on the fastest. Speeds"
    " are drawn with seeds; the paper's own are not public."
)
THROUGHPUT = "throughput, in GPUs of the slowest type"
SAME = 'Tenants and speeds are as in "OEF: shares of 20 tenants".'
SEEDS = (1, 2, 3)
POLICIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("`oef`, cooperative", "oef", {}),
    ("`oef`, non-cooperative", "oef", {"environment": "noncooperative"}),
    ("`gavel`", "gavel", {}),
    ("`gandiva_fair`", "gandiva_fair", {}),
    ("`max_min`", "max_min", {}),
)
COOPERATIVE, NONCOOPERATIVE, GAVEL, GANDIVA, _ = (name for name, _, _ in POLICIES)


# ---- verdicts ----


def gain_verdict(gain: float, paper: float) -> ClaimVerdict:
    """Return reproduced for three quarters of the paper's gain, in direction above 1 %."""
    return verdict_of(gain >= 0.75 * paper, in_direction=gain > 0.01)


def _over(gains: Mapping[str, float], quote: str = "") -> str:
    return ", ".join(f"{signed(gain)} over {quote}{rival}{quote}" for rival, gain in gains.items())


# ---- section 6.3.1, estimated: shares by program ----

TENANTS, SHARE_SEEDS = 20, 20
_ESTIMATES = {source: estimates_run(source, TENANTS, SHARE_SEEDS) for source in SOURCES}


def over(rows: Sequence[Mapping[str, float]], rule: str, rival: str) -> float:
    """Return the relative gain of a rule's total over a rival's, averaged over the seeds."""
    return fmean(row[rule] / row[rival] - 1 for row in rows)


def _estimated(results: Results) -> Findings:
    claims, tables, charts = [], [], []
    for source, said in SOURCES.items():
        rows = results[_ESTIMATES[source]]
        claims += estimate_claims(rows, said)
        tables.append(_totals(rows, said))
        seeds = range(1, len(rows) + 1)
        lines = [dotted(rule, list(seeds), [round(row[rule], 2) for row in rows]) for rule in RULES]
        title = f"Estimated throughput by seed, {said} (figures 7a, 8a)"
        charts.append(ReportChart(title, "seed", THROUGHPUT, lines))
    return Findings(claims, tables, charts)


def estimate_claims(rows: Sequence[Mapping[str, float]], said: str) -> list[Claim]:
    """Return the claims of 6.3.1 from totals by rule. There is a row per seed."""
    gains = {rival: over(rows, "cooperative", rival) for rival in RIVALS}
    most = {rival: over(rows, "max_efficiency", rival) for rival in RIVALS}
    least = min(gains, key=gains.__getitem__)
    verdict = gain_verdict(gains[least], 0.2)
    why = "" if verdict is ClaimVerdict.REPRODUCED else f"the smallest gain is over `{least}`"
    if max(most.values()) < 0.2:
        why += (
            "; no shares could reach 20 %: the largest total, which is not fair, is"
            f" {signed(max(most.values()))}"
        )
    near = {rival: over(rows, "noncooperative", rival) for rival in RIVALS}
    worst = min(near, key=near.__getitem__)
    above = f"Estimated throughput of cooperative OEF is above both others ({said})"
    return [
        Claim("6.3.1", above, "+20 %", _over(gains, "`"), verdict, why),
        Claim.of(
            "6.3.1",
            f"Estimated throughput of non-cooperative OEF is comparable ({said})",
            "stated",
            _over(near, "`"),
            held=near[worst] >= -0.05,
            why_not=f"{percent(-near[worst], 1)} below `{worst}`",
        ),
    ]


def _totals(rows: Sequence[Mapping[str, float]], said: str) -> ReportTable:
    return ReportTable(
        f"Total throughput of shares, {said}",
        ["rule", "mean, in GPUs of the slowest type", "over `max_min`"],
        [
            [
                f"`{rule}`",
                number(fmean(row[rule] for row in rows), 2),
                signed(over(rows, rule, "max_min")),
            ]
            for rule in RULES
        ],
    )


# ---- section 6.4.2 ----

ERRORS = (0.05, 0.1, 0.15, 0.2)
_WRONG = {source: errors_run(source, TENANTS, ERRORS) for source in SOURCES}


def _errors(results: Results) -> Findings:
    claims = [
        error_claim(results[run]["cooperative"][-1], SOURCES[source])
        for source, run in _WRONG.items()
    ]
    traces, rows = [], []
    for source, run in _WRONG.items():
        for rule, by_error in results[run].items():
            means = [fmean(row) for row in by_error]
            name = f"{rule}, {SOURCES[source]}"
            rows.append([name, *(percent(mean, 1) for mean in means)])
            traces.append(dotted(name, ERRORS, [round(mean, 4) for mean in means]))
    table = ReportTable(
        "Deviation of actual from expected throughput, mean of 20 seeds",
        ["error of profiles, up to", *(f"{error:.0%}" for error in ERRORS)],
        rows,
    )
    chart = ReportChart(
        "Deviation by error of the profiles (figure 10b)", "error of profiles", "deviation", traces
    )
    return Findings(claims, [table], [chart])


def error_claim(deviations: Sequence[float], said: str) -> Claim:
    """Return the claim of 6.4.2 from deviations by seed. Profiles are wrong by up to 20 %."""
    mean = fmean(deviations)
    return Claim(
        "6.4.2",
        f"Profiles wrong by 20 % cost about 3 % of the expected throughput ({said})",
        "about 3 %",
        f"{percent(mean, 1)} on average, {percent(max(deviations), 1)} at worst",
        verdict_of(mean <= 0.04, in_direction=mean <= 0.1),
    )


# ---- section 6.3.1, actual: jobs of 20 tenants ----

_STEADY = {
    (name, seed): steady_run(policy, options, seed, name)
    for name, policy, options in POLICIES
    for seed in SEEDS
}


def _actual(results: Results) -> Findings:
    totals = {
        name: [results[_STEADY[name, seed]]["throughput"] for seed in SEEDS]
        for name, _, _ in POLICIES
    }
    claims = actual_claims(totals)
    table = ReportTable(
        "Throughput of 20 tenants for a day, in GPUs of the slowest type",
        ["", *(f"seed {seed}" for seed in SEEDS), "over `max_min`"],
        [
            [name, *(number(total, 1) for total in row), signed(_gain(totals, name, "`max_min`"))]
            for name, row in totals.items()
        ],
    )
    columns = [bars(name, SEEDS, row) for name, row in totals.items()]
    chart = ReportChart("Actual throughput (figures 7b, 8b)", "seed", THROUGHPUT, columns)
    return Findings(claims, [table], [chart])


def _gain(totals: Mapping[str, Sequence[float]], name: str, rival: str) -> float:
    pairs = zip(totals[name], totals[rival], strict=True)
    return fmean(mine / its - 1 for mine, its in pairs)


def actual_claims(totals: Mapping[str, Sequence[float]]) -> list[Claim]:
    """Return the claims of 6.3.1 from throughput by policy and seed, and untestable claims."""
    claims = []
    for name, paper, text in (
        (COOPERATIVE, 0.32, "Actual throughput of cooperative OEF is above both others"),
        (
            NONCOOPERATIVE,
            0.10,
            "Actual throughput of non-cooperative OEF is up to 10 % above both others",
        ),
    ):
        gains = {rival: _gain(totals, name, rival) for rival in (GAVEL, GANDIVA)}
        least = min(gains, key=gains.__getitem__)
        verdict = gain_verdict(gains[least], paper)
        why = "" if verdict is ClaimVerdict.REPRODUCED else f"the smallest gain is over {least}"
        claims.append(Claim("6.3.1", text, signed(paper), _over(gains), verdict, why))
    return [
        *claims,
        Claim(
            "6.2.2",
            "The placer adds 1.24x through less contention in the network",
            "1.24x",
            "-",
            ClaimVerdict.NOT_TESTABLE,
            "the simulator has no network, and no network trace is public",
        ),
        Claim(
            "6.3.3",
            "Fewer workers are slowed down by workers on a slower type",
            "-14 %, -26 %",
            "0 under every policy",
            ClaimVerdict.NOT_TESTABLE,
            "a lease here has one GPU type under every policy",
        ),
    ]


# ---- section 6.3.2 ----

_DAYS = {
    (name, seed): days_run(policy, options, seed, name)
    for name, policy, options in POLICIES
    for seed in SEEDS
}


def _completion(results: Results) -> Findings:
    jcts = {
        name: [results[_DAYS[name, seed]]["jct_s"] for seed in SEEDS] for name, _, _ in POLICIES
    }
    table = ReportTable(
        "Mean JCT of 50 tenants with 20 jobs each, seconds",
        ["", *(f"seed {seed}" for seed in SEEDS)],
        [[name, *(number(jct) for jct in row)] for name, row in jcts.items()],
    )
    first = SEEDS[0]
    steps = [step / 100 for step in range(101)]
    curves = [
        curve(name, results[_DAYS[name, first]]["quantiles"], steps) for name, _, _ in POLICIES
    ]
    chart = ReportChart("JCT, seed 1 (figure 9)", "JCT, s", "share of jobs with no more", curves)
    return Findings(jct_claims(jcts), [table], [chart])


def jct_claims(jcts: Mapping[str, Sequence[float]]) -> list[Claim]:
    """Return the claims of 6.3.2 from mean JCTs by policy, with a value per seed."""
    claims = []
    for rival, paper in ((GANDIVA, 0.17), (GAVEL, 0.19)):
        best = {name: -_gain(jcts, name, rival) for name in (COOPERATIVE, NONCOOPERATIVE)}
        verdict = gain_verdict(best[COOPERATIVE], paper)
        ours = "; ".join(f"{signed(-gain)} with {name}" for name, gain in best.items())
        why = {
            ClaimVerdict.IN_DIRECTION: "less than three quarters of the paper's reduction",
            ClaimVerdict.NOT_REPRODUCED: "not shorter",
        }.get(verdict, "")
        text = f"The mean JCT is below that of {rival}"
        claims.append(Claim("6.3.2", text, signed(-paper), ours, verdict, why))
    return claims


SHARES_RAN = (
    f"{SPEEDS} Results are of {SHARE_SEEDS} seeds. Shares are those that the programs return for"
    " jobs that never end. `gandiva_fair` starts from the equal split, and trades quantum by"
    " quantum until no further trade is possible."
)
ERRORS_RAN = (
    f"{SAME} Each speedup is wrong by a uniformly drawn error of up to the stated percentage."
)
ACTUAL_RAN = (
    f"{SAME}"
    " Nodes have 4 GPUs. Every tenant has jobs of 1, 1, 2 and 4 GPUs that never end. A run is a"
    " day with rounds and leases of 5 minutes, and cold starts of 30 s. Speeds are of Gavel's"
    " table, seeds 1 to 3."
)
JCT_RAN = (
    f"{SAME}"
    " Nodes have 4 GPUs. 50 tenants arrive at random within three days, each with its 20 jobs of"
    " one type. Gangs have 1, 2 and 4 GPUs as often as in Philly; durations are log-normal. The"
    " demand is 1.135 times the capacity of an equal split in three days. Rounds and leases take 5"
    " minutes, cold starts 30 s. Speeds are of Gavel's table, seeds 1 to 3."
)
PARTS = (
    Part("oef", "OEF: shares of 20 tenants", SOURCE, SHARES_RAN, list(_ESTIMATES.values()),
         _estimated),
    Part("oef-errors", "OEF: wrong profiles", SOURCE, ERRORS_RAN, list(_WRONG.values()), _errors),
    Part("oef-actual", "OEF: throughput of 20 tenants", SOURCE, ACTUAL_RAN,
         list(_STEADY.values()), _actual),
    Part("oef-jct", "OEF: three days of 50 tenants", SOURCE, JCT_RAN, list(_DAYS.values()),
         _completion),
)  # fmt: skip # a table
