"""The claims of Astraea-LTGF (Z. Ye et al., IEEE TPDS 2021), section 6, on Philly.

The paper uses two weeks of Venus, whose job log is not public. It also uses two weeks of Philly
with 44,329 jobs, of which about half are public. The runs here use other days of Philly. They have
so few nodes that jobs compete.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
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
    dotted,
    figures_table,
    number,
    percent,
    rho_chart,
    slowdown_chart,
    thousandths,
)

DAYS = 3
# The number of nodes for each first day. Both days are Fridays, chosen before any run on them.
SLICES = {"2017-12-01": 23, "2017-11-17": 19}
START, NODES = next(iter(SLICES.items()))
SOURCE = (
    "Z. Ye et al., Astraea: A Fair Deep Learning Scheduler for Multi-Tenant GPU Clusters, TPDS 2021"
)
SLICE = (
    f"{DAYS} days of Philly from {START} (1,144 jobs of 11 tenants, gangs of up to 32 GPUs; one"
    f" job is 0.09 % of them) on {NODES} nodes of 8 GPUs"
)
SECOND = "from 2017-11-17 (995 jobs of 10 tenants, gangs of up to 32 GPUs) on 19 nodes"
RULES = (
    ". These nodes give a load of about 1.135. Cold starts take 30 s, leases 900 s; quotas are in"
    " proportion to the tenants' demand. A round takes place at every event. Rounds every 10 s,"
    " as in the paper, add 8 points of sharing loss to every policy on 2017-10-09, all from jobs"
    " of a minute."
)
ESTIMATES = (
    " `themis` and `allox` have estimates that are wrong by up to 30 %, drawn with seed 1. A"
    " claim that holds on only one of the slices counts as in direction."
)
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
ABOUT_S = {"themis": 15, "allox": 30, "hived": 25, "gandiva_fair": 30}
LEASES_S = (300, 600, 900, 1200, 1800, 3600)
SIZES = (16, NODES, 29, 35)
ABLATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("default settings", {}),
    ("line 17 as printed", {"work_conserving": False}),
    ("fair share = quota, eq. (16)", {"tenant_share": "quota"}),
    ("new jobs first", {"new_jobs_first": True}),
    ("no reservation", {"reserve_after_leases": 0}),
    ("all of the paper's settings", PUBLISHED),
)


Rows = Mapping[str, Mapping[str, Any]]


def _run(
    policy: str, options: dict[str, Any], name: str, *, start: str = START, **more: int
) -> KeptRun:
    nodes = more.pop("nodes", SLICES[start])
    return philly(
        start, policy, options=options, nodes=nodes, name=name, days=DAYS, round_s=0,
        about_s=ABOUT_S.get(policy, 2), **more,
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

_COMPARED = {
    (start, name): _run(policy, options, name, start=start)
    for start in SLICES
    for name, policy, options in SEVEN
}
_NO_COLD = {
    start: _run("ltgf", {}, "ltgf, restarts cost nothing", start=start, cold_s=0)
    for start in SLICES
}


def _fairness(results: Results) -> Findings:
    claims, tables, charts = [], [], []
    for start, nodes in SLICES.items():
        rows = {name: results[_COMPARED[start, name]] for name, _, _ in SEVEN}
        claims.append(fairness_claims(rows, results[_NO_COLD[start]]))
        title = f"Seven policies from {start} on {nodes} nodes"
        tables.append(figures_table(title, rows.items()))
        charts += [
            rho_chart(f"Job-level fairness from {start} (figure 10)", rows.items()),
            slowdown_chart(f"Slowdown of jobs from {start} (figure 12)", rows.items()),
        ]
    both = [on_both(*pair) for pair in zip(*claims, strict=True)]
    return Findings(both, tables, charts)


def on_both(first: Claim, second: Claim) -> Claim:
    """Combine a claim's verdicts on two slices. If they differ, return `in direction`."""
    verdict = first.verdict if first.verdict is second.verdict else ClaimVerdict.IN_DIRECTION
    days = [start[5:] for start in SLICES]

    def joined(one: str, other: str) -> str:
        if one == other:
            return one
        said = [f"{day}: {text}" for day, text in zip(days, (one, other), strict=True) if text]
        return "; ".join(said)

    ours, why = joined(first.ours, second.ours), joined(first.why, second.why)
    return replace(first, ours=ours, verdict=verdict, why=why)


def fairness_claims(rows: Rows, no_cold: Mapping[str, Any]) -> list[Claim]:
    """Return the claims of 6.3 and 6.4.

    The keys of the figures are the names of `SEVEN`. `no_cold`: the figures of `ltgf` if restarts
    cost nothing.
    """
    overhead = rows[LTGF]["jct_s"] / no_cold["jct_s"] - 1
    return [
        Claim(
            "6.3",
            "Sharing loss of jobs and tenants on Venus is as stated",
            "7.1 % of jobs, 5.2 % of tenant-hours",
            "-",
            ClaimVerdict.NOT_TESTABLE,
            "the job log of Venus and the paper's choice of two weeks of Philly are not public",
        ),
        *least_claims(rows),
        Claim.of(
            "6.4",
            "Leases of 900 s cost about 0.8 % of mean JCT (here: at most twice as much; JCT with"
            " cold starts of 30 s over JCT without)",
            "0.8 % (Venus)",
            percent(overhead),
            held=0 <= overhead <= 2 * 0.008,
        ),
    ]


def least_claims(rows: Rows) -> list[Claim]:
    """Return the claims that LTGF has the lowest figures (6.3, 6.4).

    The keys are the names of `SEVEN`.
    """
    return [_least_claim(rows, claimed) for claimed in _LEAST]


def _least_claim(rows: Rows, claimed: _Least) -> Claim:
    rivals = claimed.rivals or tuple(name for name in rows if name not in {LTGF, PAPERS})
    ahead = {
        name: [rival for rival in rivals if rows[rival][claimed.field] <= rows[name][claimed.field]]
        for name in (LTGF, PAPERS)
    }
    # In direction if the claim holds only for the pools' variant of the rule, not for the published
    # one.
    verdict = verdict_of(not ahead[PAPERS], in_direction=not ahead[LTGF])
    in_the_way = {name: f"not below {', '.join(rivals)}" for name, rivals in ahead.items()}
    why = {
        ClaimVerdict.REPRODUCED: f"as published; with default settings, {in_the_way[LTGF]}"
        if ahead[LTGF]
        else "",
        ClaimVerdict.IN_DIRECTION: "only with default settings; as published,"
        f" {in_the_way[PAPERS]}",
        ClaimVerdict.NOT_REPRODUCED: in_the_way[LTGF],
    }[verdict]
    # The table below has the other rivals, whose figures are above those of both variants.
    close = claimed.rivals or [name for name in rivals if name in ahead[LTGF] + ahead[PAPERS]]
    shown = {name: rows[name] for name in (LTGF, PAPERS, *close)}
    ours = _listed(shown, claimed.field, claimed.show)
    return Claim(claimed.place, claimed.text, claimed.paper, ours, verdict, why)


# ---- section 6.2 ----

_BY_LEASE = {lease_s: _run("ltgf", {}, "ltgf", lease_s=lease_s) for lease_s in LEASES_S}


def lease_claims(rows: Mapping[int, Mapping[str, Any]]) -> list[Claim]:
    """Return the claims of 6.2 from figures by lease length in seconds."""
    best = min(rows, key=lambda lease_s: rows[lease_s]["jct_s"])
    loss = {lease_s: row["sharing_loss_jobs"] for lease_s, row in rows.items()}
    preempted = {lease_s: row["preemptions"] for lease_s, row in rows.items()}
    moved = list(preempted.values())
    first, last = min(rows), max(rows)
    inside = first < best < last
    return [
        Claim(
            "6.2",
            "Mean JCT falls and then rises with the lease length",
            "lowest at 1,200 s",
            f"lowest at {best:,} s",
            verdict_of(best in {900, 1200}, in_direction=inside),
            "" if inside else f"it is lowest at the {'shortest' if best == first else 'longest'}",
        ),
        Claim(
            "6.2",
            "Longer leases are less fair between jobs",
            "a chart",
            f"{percent(loss[first])} at {first:,} s, {percent(loss[last])} at {last:,} s",
            verdict_of(
                list(loss.values()) == sorted(loss.values()), in_direction=loss[last] > loss[first]
            ),
        ),
        Claim(
            "6.2",
            "Longer leases preempt less",
            "a chart",
            "; ".join(f"{lease_s:,} s: {number(count)}" for lease_s, count in preempted.items()),
            verdict_of(moved == sorted(moved, reverse=True), in_direction=moved[-1] < moved[0]),
        ),
    ]


def _lease_lengths(results: Results) -> Findings:
    rows = {lease_s: results[run] for lease_s, run in _BY_LEASE.items()}
    named = [(f"{lease_s:,} s", row) for lease_s, row in rows.items()]
    line = dotted("ltgf", list(rows), [row["jct_s"] for row in rows.values()])
    title = "Mean JCT by lease length (figure 9)"
    chart = ReportChart(title, "lease length, s", "mean JCT, s", [line])
    return Findings(lease_claims(rows), [figures_table("LTGF by lease length", named)], [chart])


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
        behind = [
            f"{nodes}"
            for nodes in sizes
            if rows[nodes, LTGF][field] >= rows[nodes, TIRESIAS][field]
        ]
        verdict = verdict_of(not behind, in_direction=2 * len(behind) < len(sizes))
        shown = f"at {len(sizes) - len(behind)} of {len(sizes)} sizes"
        text = f"{what} is below that of Tiresias-L at every size"
        why = f"not on {', '.join(behind)} nodes" if behind else ""
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
    table = figures_table("LTGF and Tiresias-L by size", named)
    return Findings(size_claims(rows), [table], charts)


# ---- the effect of each setting ----

_ABLATED = {name: _run("ltgf", options, f"ltgf, {name}") for name, options in ABLATIONS}


def settings_claim(plain: Mapping[str, Any], first: Mapping[str, Any]) -> Claim:
    """Return the claim of 6.1.1 from figures without and with the rule that new jobs go first."""
    same = all(plain[field] == first[field] for field in ("jct_s", "slowdown", "sharing_loss_jobs"))
    with_it, without = (number(row["slowdown"], 3) for row in (first, plain))
    better = not same and first["slowdown"] < plain["slowdown"]
    return Claim.of(
        "6.1.1",
        "Short jobs start promptly if newly submitted jobs come first",
        "stated",
        "changes nothing" if same else f"mean slowdown {with_it} with it, {without} without",
        held=better,
        why_not="a job that never ran already has the lowest rho, 0" if same else "",
    )


def _ablations(results: Results) -> Findings:
    rows = [(name, results[run]) for name, run in _ABLATED.items()]
    claim = settings_claim(rows[0][1], results[_ABLATED["new jobs first"]])
    return Findings([claim], [figures_table("Settings of LTGF", rows)])


_SHARED = f'Only the days from {START}; otherwise as in "LTGF: fairness and efficiency".'
PARTS = (
    Part("ltgf", "LTGF: fairness and efficiency", SOURCE,
         f"{SLICE}, and {SECOND}{RULES}{ESTIMATES}",
         [*_COMPARED.values(), *_NO_COLD.values()], _fairness),
    Part("ltgf-leases", "LTGF: lease lengths", SOURCE, _SHARED, list(_BY_LEASE.values()),
         _lease_lengths),
    Part("ltgf-sizes", "LTGF: cluster sizes", SOURCE, _SHARED, list(_BY_SIZE.values()), _sizes),
    Part("ltgf-settings", "LTGF: settings", SOURCE, _SHARED, list(_ABLATED.values()),
         _ablations),
)  # fmt: skip # a table
