"""The claims of Astraea-LTGF (Z. Ye et al., IEEE TPDS 2021), section 6, on Philly.

The paper uses two weeks of Venus and two of Philly with 44,329 jobs. Both logs are public, but not
part of this repository. The runs here use two other weeks of Philly, on so few nodes that jobs
compete.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from evenshare_core.policies.ltgf.options import PAPER_EVALUATION
from evenshare_research.reproduce.model import (
    Claim,
    ClaimVerdict,
    Findings,
    Part,
    ReportChart,
    Results,
    verdict_of,
)
from evenshare_research.reproduce.philly import philly
from evenshare_research.reproduce.runs import KeptRun
from evenshare_research.reproduce.shown import (
    CLAIMED,
    dotted,
    figures_table,
    number,
    percent,
    rho_chart,
    slowdown_chart,
    thousandths,
)
from evenshare_research.reproduce.verdicts import (
    Ranking,
    between,
    difference,
    ranked,
    relative,
)

# Two weeks (6.1.2) of `philly.VERDICT`, chosen before any run, on as many nodes as give them the
# load `philly.LOAD`. Rounds are those of 6.1.3.
START, NODES = "2017-11-20", 34
ROUND_S = 10
SOURCE = (
    "Z. Ye et al., Astraea: A Fair Deep Learning Scheduler for Multi-Tenant GPU Clusters, TPDS 2021"
)
RAN = (
    f"Two weeks (6.1.2) of Philly from {START}, chosen before any run: 7,248 jobs of 12 tenants,"
    f" gangs of up to 32 GPUs, on {NODES} nodes of 8 GPUs. This gives a load of 1.135; the paper"
    " scales its clusters down too (6.1.3). Rounds take place every 10 s, leases take 900 s"
    " (6.1.3). Cold starts take 30 s; quotas are in proportion to the tenants' demand (6.1.2)."
    " Rounds of 10 s cause a sharing loss for jobs of a minute under every policy (6.4). Noise is"
    " that of the difference of two runs in 200 resamples of the jobs, or of the hours."
)
ESTIMATES = " `themis` and `allox` have estimates that are wrong by up to 30 %, drawn with seed 1."
PUBLISHED: dict[str, Any] = msgspec.to_builtins(PAPER_EVALUATION)
LTGF, PAPERS = "`ltgf`", "`ltgf` as in the paper"
THEMIS, YARN, TIRESIAS = "`themis`", "`yarn_cs`", "`tiresias_l`"
SEVEN: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (LTGF, "ltgf", {}),
    (PAPERS, "ltgf", PUBLISHED),
    (THEMIS, "themis", {}),
    ("`allox`", "allox", {}),
    ("`gandiva_fair` without trading", "gandiva_fair", {"trading": False}),
    ("`hived`", "hived", {}),
    (TIRESIAS, "tiresias_l", {}),
    (YARN, "yarn_cs", {}),
)
# CPU seconds of slower policies for three days; two weeks take about five times as long.
ABOUT_S = {"themis": 15, "allox": 30, "hived": 25, "gandiva_fair": 30}
LEASES_S = (300, 600, 900, 1200, 1800, 3600)
SIZES = (24, NODES, 43, 52)
ABLATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("default settings", {}),
    ("line 17 as printed", {"work_conserving": False}),
    ("fair share = quota, eq. (16)", {"tenant_share": "quota"}),
    ("new jobs first", {"new_jobs_first": True}),
    ("no reservation", {"reserve_after_leases": 0}),
    ("all of the paper's settings", PUBLISHED),
)


Rows = Mapping[str, Mapping[str, Any]]


def _run(policy: str, options: dict[str, Any], name: str, **more: int) -> KeptRun:
    nodes = more.pop("nodes", NODES)
    return philly(
        START, policy, options=options, nodes=nodes, name=name, round_s=ROUND_S,
        about_s=5 * ABOUT_S[policy] if policy in ABOUT_S else 13, **more,
    )  # fmt: skip # rows of what belongs together


def _listed(rows: Rows, field: str, show: Callable[[float | None], str]) -> str:
    return ", ".join(
        f"{name} {show(row[field])}"
        for name, row in sorted(rows.items(), key=lambda r: r[1][field])
    )


# ---- sections 6.3 and 6.4 ----


class _Least(NamedTuple):
    """A claim that LTGF has the lowest value of a figure among all rivals or some of them."""

    place: str
    text: str
    paper: str
    field: str
    rivals: tuple[str, ...]
    show: Callable[[float | None], str]


_LEAST = (
    _Least(
        "6.3",
        "Fewer jobs have a sharing loss (rho < 0.95) than under Themis and YARN-CS",
        "7.1 %; 19.7 %; 73.6 % (Venus)",
        "sharing_loss_jobs",
        (THEMIS, YARN),
        percent,
    ),
    _Least(
        "6.3",
        "No policy has fewer jobs with a sharing loss (figure 10)",
        "7.1 % (Venus)",
        "sharing_loss_jobs",
        (),
        percent,
    ),
    _Least(
        "6.3",
        "No policy has fewer unfair tenant-hours (here: rho < 0.99; a single restart does not cause"
        " this)",
        "5.2 %; AlloX 6.9 %, Gandiva_fair 8.0 %, YARN-CS 44.6 %, Tiresias-L 49.0 % (Venus)",
        "tenant_unfair_intervals",
        (),
        percent,
    ),
    _Least(
        "6.4", "The mean slowdown is the lowest", "lowest (a chart)", "slowdown", (), thousandths
    ),
    _Least("6.4", "The mean JCT is the lowest", "lowest (a chart)", "jct_s", (), number),
)

_COMPARED = {name: _run(policy, options, name) for name, policy, options in SEVEN}
_NO_COLD = _run("ltgf", {}, "ltgf, restarts cost nothing", cold_s=0)


def _fairness(results: Results) -> Findings:
    rows = {name: results[run] for name, run in _COMPARED.items()}
    charts = [
        rho_chart("Job-level fairness (figure 10)", rows.items()),
        slowdown_chart("Slowdown of jobs (figure 12)", rows.items()),
    ]
    claims = fairness_claims(rows, results[_NO_COLD])
    return Findings(claims, [figures_table("Seven policies", rows.items(), CLAIMED)], charts)


def fairness_claims(rows: Rows, no_cold: Mapping[str, Any]) -> list[Claim]:
    """Return the claims of 6.3 and 6.4.

    The keys of the figures are the names of `SEVEN`. `no_cold`: the figures of `ltgf` if restarts
    cost nothing.
    """
    overhead = relative(rows[LTGF], no_cold, "jct_s")
    return [
        Claim(
            "6.3",
            "Sharing loss of jobs and tenants on Venus is as stated",
            "7.1 % of jobs, 5.2 % of tenant-hours",
            "-",
            ClaimVerdict.NOT_TESTABLE,
            "this repository has neither the job log of Venus nor the paper's two weeks of Philly",
        ),
        *least_claims(rows),
        Claim(
            "6.4",
            "Leases of 900 s cost about 0.8 % of mean JCT (here: JCT with cold starts of 30 s over"
            " JCT without)",
            "0.8 % (Venus)",
            overhead.shown(),
            between(overhead.negative, -0.008, -0.008, nothing=-2 * 0.008),
        ),
    ]


def least_claims(rows: Rows) -> list[Claim]:
    """Return the claims that LTGF has the lowest figures (6.3, 6.4).

    The keys are the names of `SEVEN`.
    """
    return [_least_claim(rows, claimed) for claimed in _LEAST]


def _least_claim(rows: Rows, claimed: _Least) -> Claim:
    field = claimed.field
    rivals = claimed.rivals or tuple(name for name in rows if name not in {LTGF, PAPERS})
    ranks = {
        name: ranked({rival: difference(rows[rival], rows[name], field) for rival in rivals})
        for name in (LTGF, PAPERS)
    }
    verdict, why = rank_verdict(ranks[LTGF], ranks[PAPERS])
    # The table below has the other rivals, whose figures are above those of both variants.
    near = {name for rank in ranks.values() for name in (*rank.ahead, *rank.within)}
    close = claimed.rivals or [name for name in rivals if name in near]
    shown = {name: rows[name] for name in (LTGF, PAPERS, *close)}
    ours = _listed(shown, field, claimed.show)
    return Claim(claimed.place, claimed.text, claimed.paper, ours, verdict, why)


def rank_verdict(ours: Ranking, published: Ranking) -> tuple[ClaimVerdict, str]:
    """Return the verdict and its reason, from the ranks of the default and the published form.

    The claim is in direction if it holds only for the pools' variant of the rule.
    """
    if published.verdict is ClaimVerdict.REPRODUCED:
        if ours.verdict is ClaimVerdict.REPRODUCED:
            return published.verdict, ""
        return published.verdict, f"as published; with default settings, {ours.why}"
    if published.verdict is ClaimVerdict.IN_DIRECTION:
        return published.verdict, f"as published, {published.why}"
    if ours.verdict is not ClaimVerdict.NOT_REPRODUCED:
        settings = f"with default settings{ours.why and f' ({ours.why})'}"
        return ClaimVerdict.IN_DIRECTION, f"only {settings}; as published, {published.why}"
    return ours.verdict, ours.why


# ---- section 6.2 ----

_BY_LEASE = {lease_s: _run("ltgf", {}, "ltgf", lease_s=lease_s) for lease_s in LEASES_S}


def lease_claims(rows: Mapping[int, Mapping[str, Any]]) -> list[Claim]:
    """Return the claims of 6.2 from figures by lease length in seconds."""
    lengths = sorted(rows)
    first, last = lengths[0], lengths[-1]
    best = min(rows, key=lambda lease_s: rows[lease_s]["jct_s"])
    alike = [
        lease_s for lease_s in lengths if difference(rows[lease_s], rows[best], "jct_s").low <= 0
    ]
    inside = first not in alike and last not in alike
    loss = {lease_s: row["sharing_loss_jobs"] for lease_s, row in rows.items()}
    rises = difference(rows[last], rows[first], "sharing_loss_jobs").low > 0
    falls = any(
        difference(rows[longer], rows[shorter], "sharing_loss_jobs").high < 0
        for shorter, longer in pairwise(lengths)
    )
    preempted = [rows[lease_s]["preemptions"] for lease_s in lengths]
    return [
        Claim(
            "6.2",
            "Mean JCT falls and then rises with the lease length",
            "lowest at 1,200 s",
            f"lowest at {best:,} s; within the noise of it: {', '.join(map(str, alike))}",
            verdict_of(inside and 1200 in alike, in_direction=first < best < last),
            "" if inside else "the shortest or the longest is within the noise of the lowest",
        ),
        Claim(
            "6.2",
            "Longer leases are less fair between jobs",
            "a chart",
            f"{percent(loss[first])} at {first:,} s, {percent(loss[last])} at {last:,} s",
            verdict_of(rises and not falls, in_direction=rises),
        ),
        Claim(
            "6.2",
            "Longer leases preempt less",
            "a chart",
            "; ".join(
                f"{lease_s:,} s: {number(count)}"
                for lease_s, count in zip(lengths, preempted, strict=True)
            ),
            verdict_of(
                preempted == sorted(preempted, reverse=True),
                in_direction=preempted[-1] < preempted[0],
            ),
        ),
    ]


def _lease_lengths(results: Results) -> Findings:
    rows = {lease_s: results[run] for lease_s, run in _BY_LEASE.items()}
    named = [(f"{lease_s:,} s", row) for lease_s, row in rows.items()]
    line = dotted("ltgf", list(rows), [row["jct_s"] for row in rows.values()])
    title = "Mean JCT by lease length (figure 9)"
    chart = ReportChart(title, "lease length, s", "mean JCT, s", [line])
    return Findings(
        lease_claims(rows), [figures_table("LTGF by lease length", named, CLAIMED)], [chart]
    )


# ---- section 6.5 ----

BOTH = (LTGF, TIRESIAS)
_BY_SIZE = {
    (nodes, name): _run(name.strip("`"), {}, name, nodes=nodes) for nodes in SIZES for name in BOTH
}


def size_claims(rows: Mapping[tuple[int, str], Mapping[str, Any]]) -> list[Claim]:
    """Return the claims of 6.5 from figures by node count and policy."""
    sizes = list(dict.fromkeys(nodes for nodes, _ in rows))
    claims = []
    for what, field in (
        ("The mean JCT", "jct_s"),
        ("The share of jobs with a sharing loss", "sharing_loss_jobs"),
    ):
        rank = ranked(
            {
                str(nodes): difference(rows[nodes, TIRESIAS], rows[nodes, LTGF], field)
                for nodes in sizes
            }
        )
        verdict = verdict_of(
            not rank.ahead and not rank.within,
            in_direction=bool(rank.behind) and 2 * len(rank.ahead) < len(sizes),
        )
        shown = f"at {len(rank.behind)} of {len(sizes)} sizes"
        text = f"{what} is below that of Tiresias-L at every size"
        why = "; ".join(
            f"{said} {', '.join(some)} nodes"
            for said, some in (("above it on", rank.ahead), ("within the noise on", rank.within))
            if some
        )
        claims.append(Claim("6.5", text, "a chart", shown, verdict, why))
    return claims


def _sizes(results: Results) -> Findings:
    rows = {key: results[run] for key, run in _BY_SIZE.items()}
    charts = [
        ReportChart(
            title,
            "nodes",
            y,
            [dotted(name, SIZES, [rows[nodes, name][field] for nodes in SIZES]) for name in BOTH],
        )
        for title, y, field in (
            ("Mean JCT by size (figure 14a)", "mean JCT, s", "jct_s"),
            ("Sharing loss by size (figure 14b)", "share of jobs", "sharing_loss_jobs"),
        )
    ]
    named = [(f"{nodes} nodes, {name}", row) for (nodes, name), row in rows.items()]
    table = figures_table("LTGF and Tiresias-L by size", named, CLAIMED)
    return Findings(size_claims(rows), [table], charts)


# ---- the effect of each setting ----

_ABLATED = {name: _run("ltgf", options, f"ltgf, {name}") for name, options in ABLATIONS}


def settings_claim(plain: Mapping[str, Any], first: Mapping[str, Any]) -> Claim:
    """Return the claim of 6.1.1 from figures without and with the rule that new jobs go first."""
    same = all(plain[field] == first[field] for field in ("jct_s", "slowdown", "sharing_loss_jobs"))
    with_it, without = (number(row["slowdown"], 3) for row in (first, plain))
    gain = relative(plain, first, "slowdown")
    return Claim.of(
        "6.1.1",
        "Short jobs start promptly if newly submitted jobs come first",
        "stated",
        "changes nothing" if same else f"mean slowdown {with_it} with it, {without} without",
        held=gain.low > 0,
        why_not="a job that never ran already has the lowest rho, 0"
        if same
        else "no more than the noise",
    )


def _ablations(results: Results) -> Findings:
    rows = [(name, results[run]) for name, run in _ABLATED.items()]
    claim = settings_claim(rows[0][1], results[_ABLATED["new jobs first"]])
    return Findings([claim], [figures_table("Settings of LTGF", rows, CLAIMED)])


PARTS = (
    Part("ltgf", "LTGF: fairness and efficiency", SOURCE, RAN + ESTIMATES,
         [*_COMPARED.values(), _NO_COLD], _fairness),
    Part("ltgf-leases", "LTGF: lease lengths", SOURCE, RAN, list(_BY_LEASE.values()),
         _lease_lengths),
    Part("ltgf-sizes", "LTGF: cluster sizes", SOURCE, RAN, list(_BY_SIZE.values()), _sizes),
    Part("ltgf-settings", "LTGF: settings", SOURCE, RAN, list(_ABLATED.values()),
         _ablations),
)  # fmt: skip # a table
