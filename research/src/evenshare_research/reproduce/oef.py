"""The claims of OEF (Middleware 2024), from its proofs and its evaluation in section 6.

OEF's testbed, jobs and speeds are not public. The programs compute shares on the speeds of
`evenshare_research.reproduce.mixed`. Jobs are drawn from seeds and run in the simulator, which does
not model the network between nodes.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from evenshare_research.reproduce.mixed import (
    ONE_GPU,
    days_run,
    errors_run,
    estimates_run,
    steady_run,
)
from evenshare_research.reproduce.model import (
    Claim,
    ClaimVerdict,
    Findings,
    Part,
    ReportChart,
    ReportTable,
    Results,
)
from evenshare_research.reproduce.shown import bars, curve, dotted, number, percent, signed
from evenshare_research.reproduce.verdicts import (
    NoisyFigure,
    between,
    gain_verdict,
    why_not,
    within,
)

SOURCE = (
    "Z. Mo et al., Optimal Resource Efficiency with Fairness in Heterogeneous GPU Clusters,"
    " Middleware 2024"
)
GAVEL_RULE = f"gavel{ONE_GPU}"
RIVALS = {GAVEL_RULE: "`gavel`", "gandiva_fair": "`gandiva_fair`"}
RULES = (
    *("cooperative", "noncooperative", *RIVALS, "max_min", "max_efficiency"),
    *("gavel", f"cooperative{ONE_GPU}"),
)
# "comparable": at most this much more or less
COMPARABLE = 0.05
SOURCES = {
    "gavel": "Gavel's table",
    "paper": "the paper's range",
}
SPEEDS = (
    "Three GPU types of 8 GPUs each (6.1.1) and 20 tenants with one job type each (6.3.1). The"
    " speeds of a tenant's job type are from one of two"
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
    ("`gavel` without time fractions", "gavel", {"time_fractions": False}),
    ("`gandiva_fair`", "gandiva_fair", {}),
    ("`max_min`", "max_min", {}),
)
COOPERATIVE, NONCOOPERATIVE, GAVEL, _, GANDIVA, MAX_MIN = (name for name, _, _ in POLICIES)
OVER = "over `max_min`"


# ---- section 6.3.1, estimated: shares by program ----

TENANTS, SHARE_SEEDS = 20, 20
_ESTIMATES = {source: estimates_run(source, TENANTS, SHARE_SEEDS) for source in SOURCES}


def over(rows: Sequence[Mapping[str, float]], rule: str, rival: str) -> NoisyFigure:
    """Return the relative gain of a rule's total over a rival's, with its noise over the seeds."""
    return NoisyFigure.of_seeds([row[rule] / row[rival] - 1 for row in rows])


def _estimated(results: Results) -> Findings:
    claims, tables, charts, notes = [], [], [], []
    for source, said in SOURCES.items():
        rows = results[_ESTIMATES[source]]
        claims += estimate_claims(rows, said)
        notes.append(_idle_note(rows, said))
        tables.append(_totals(rows, said))
        seeds = range(1, len(rows) + 1)
        lines = [dotted(rule, list(seeds), [round(row[rule], 2) for row in rows]) for rule in RULES]
        title = f"Estimated throughput by seed, {said} (figures 7a, 8a)"
        charts.append(ReportChart(title, "seed", THROUGHPUT, lines))
    return Findings(claims, tables, charts, notes)


def _idle_note(rows: Sequence[Mapping[str, float]], said: str) -> str:
    """Compare under equal conditions: both with one GPU at a time, or both without."""
    alike = over(rows, f"cooperative{ONE_GPU}", GAVEL_RULE)
    free = over(rows, "cooperative", "gavel")
    return (
        f"With {said}: the published `gavel` gives 20 tenants 20 of the 24 GPUs. This is most of"
        " the gain of cooperative OEF. If both have one GPU per tenant at a time, the gain is"
        f" {alike.shown()}; if neither has, it is {free.shown()}."
    )


def estimate_claims(rows: Sequence[Mapping[str, float]], said: str) -> list[Claim]:
    """Return the claims of 6.3.1 from totals by rule. There is a row per seed."""
    claims = []
    for rival, shown in RIVALS.items():
        gain = over(rows, "cooperative", rival)
        most = over(rows, "max_efficiency", rival).value
        verdict = gain_verdict(gain, 0.2)
        why = why_not(verdict, gain, "the paper's gain")
        if most < 0.2:
            why += (
                "; no shares could reach 20 %: the largest total, which is not fair, is"
                f" {signed(most)}"
            )
        text = f"Estimated throughput of cooperative OEF is above that of {shown} ({said})"
        claims.append(Claim("6.3.1", text, "+20 %", gain.shown(), verdict, why))
    for rival, shown in RIVALS.items():
        gain = over(rows, "noncooperative", rival)
        text = f"Estimated throughput of non-cooperative OEF is comparable to {shown} ({said})"
        verdict = within(gain, -COMPARABLE, COMPARABLE)
        why = {
            ClaimVerdict.MORE: f"{percent(gain.value, 1)} above",
            ClaimVerdict.NOT_REPRODUCED: f"{percent(-gain.value, 1)} below",
        }.get(verdict, "")
        claims.append(Claim("6.3.1", text, "stated", gain.shown(), verdict, why))
    return claims


def _totals(rows: Sequence[Mapping[str, float]], said: str) -> ReportTable:
    return ReportTable(
        f"Total throughput of shares, {said}",
        ["rule", "mean, in GPUs of the slowest type", OVER],
        [
            [
                f"`{rule}`",
                number(fmean(row[rule] for row in rows), 2),
                signed(over(rows, rule, "max_min").value),
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
    got = NoisyFigure.of_seeds(deviations)
    return Claim(
        "6.4.2",
        f"Profiles wrong by 20 % cost about 3 % of the expected throughput ({said})",
        "about 3 %",
        f"{percent(got.value, 1)} ({100 * got.low:.1f} to {100 * got.high:.1f}) on average,"
        f" {percent(max(deviations), 1)} at worst",
        between(got.negative, -0.03, -0.03, nothing=-0.1),
    )


# ---- section 6.3.1, actual: jobs of 20 tenants ----

# The gangs of each tenant's jobs. The paper does not state them; expression (3) has one GPU.
GANGS = {"jobs of 1 GPU": (1,) * 8, "gangs of 1, 1, 2 and 4": (1, 1, 2, 4)}
_STEADY = {
    (said, name, seed): steady_run(policy, options, seed, name, gangs)
    for said, gangs in GANGS.items()
    for name, policy, options in POLICIES
    for seed in SEEDS
}
Totals = Mapping[str, Sequence[float]]  # throughput by policy, with a value per seed


def _actual(results: Results) -> Findings:
    claims, tables, charts = [], [], []
    for said in GANGS:
        totals = {
            name: [results[_STEADY[said, name, seed]]["throughput"] for seed in SEEDS]
            for name, _, _ in POLICIES
        }
        claims += actual_claims(totals, said)
        tables.append(
            ReportTable(
                f"Throughput of 20 tenants for a day, {said}",
                ["in GPUs of the slowest type", *(f"seed {seed}" for seed in SEEDS), OVER],
                [
                    [
                        name,
                        *(number(total, 1) for total in row),
                        signed(gain_of(totals, name, MAX_MIN).value),
                    ]
                    for name, row in totals.items()
                ],
            )
        )
        columns = [bars(name, SEEDS, row) for name, row in totals.items()]
        title = f"Actual throughput, {said} (figures 7b, 8b)"
        charts.append(ReportChart(title, "seed", THROUGHPUT, columns))
    return Findings([*claims, *UNTESTABLE], tables, charts)


def gain_of(totals: Totals, name: str, rival: str) -> NoisyFigure:
    """Return the relative gain over a rival, with its noise over the seeds."""
    pairs = zip(totals[name], totals[rival], strict=True)
    return NoisyFigure.of_seeds([mine / its - 1 for mine, its in pairs])


def actual_claims(totals: Totals, said: str) -> list[Claim]:
    """Return the claims of 6.3.1 from throughput by policy and seed."""
    claims = []
    for name, paper, text in (
        (COOPERATIVE, 0.32, "Actual throughput of cooperative OEF is above that of"),
        (
            NONCOOPERATIVE,
            0.10,
            "Actual throughput of non-cooperative OEF is up to 10 % above that of",
        ),
    ):
        for rival in (GAVEL, GANDIVA):
            gain = gain_of(totals, name, rival)
            verdict = gain_verdict(gain, paper)
            why = why_not(verdict, gain, "the paper's gain")
            whole = f"{text} {rival} ({said})"
            claims.append(Claim("6.3.1", whole, signed(paper), gain.shown(), verdict, why))
    return claims


UNTESTABLE = (
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
)

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


def jct_claims(jcts: Totals) -> list[Claim]:
    """Return the claims of 6.3.2 from mean JCTs by policy, with a value per seed."""
    claims = []
    for rival, paper in ((GANDIVA, 0.17), (GAVEL, 0.19)):
        best = {name: gain_of(jcts, name, rival) for name in (COOPERATIVE, NONCOOPERATIVE)}
        got = best[COOPERATIVE].negative
        verdict = gain_verdict(got, paper)
        ours = "; ".join(f"{gain.shown()} with {name}" for name, gain in best.items())
        why = why_not(verdict, got, "the paper's reduction")
        text = f"The mean JCT is below that of {rival}"
        claims.append(Claim("6.3.2", text, signed(-paper), ours, verdict, why))
    return claims


SHARES_RAN = (
    f"{SPEEDS} Results are of {SHARE_SEEDS} seeds. Shares are those that the programs return for"
    " jobs that never end. For `gavel`, a tenant's time fractions sum to at most 1, as in"
    " expression (3) of section 2.4. `gandiva_fair` starts from the equal split, and trades"
    " quantum by quantum until no further trade is possible (2.4)."
)
ERRORS_RAN = (
    f"{SAME} Each speedup is wrong by a uniformly drawn error of up to the stated percentage"
    " (6.4.2)."
)
ROUNDS_RAN = (
    "Nodes have 4 GPUs; rounds and leases take 5 minutes (6.1.1), cold starts 30 s. Jobs of a"
    " tenant take turns (6.1.3). For `gavel`, time fractions as in expression (3) of section 2.4:"
    " a tenant's share is at most the GPUs of its largest gang; other jobs use what is left."
    " Speeds are of Gavel's table, seeds 1 to 3."
)
ACTUAL_RAN = (
    f"{SAME} {ROUNDS_RAN} Every tenant has jobs that never end, for a day: eight of 1 GPU, or"
    " gangs of 1, 1, 2 and 4. The paper does not state gangs."
)
JCT_RAN = (
    'Rounds and speeds are as in "OEF: throughput of 20 tenants". 50 tenants arrive at random'
    " within three days, each with its 20 jobs of one type (6.3.2). Gangs have 1, 2 and 4 GPUs as"
    " often as in Philly; durations are log-normal. The demand is 1.135 times the capacity of an"
    " equal split in three days. The paper states only that its contention is that of Philly"
    " (6.1.2)."
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
