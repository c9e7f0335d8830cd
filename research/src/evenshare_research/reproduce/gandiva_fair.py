"""The claims of Gandiva_fair (S. Chaudhary et al., EuroSys 2020), section 5, as share curves.

The paper gives all clusters, users and job sizes. Here, jobs run until the paper's users leave, and
nothing is random.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from evenshare_core.units import ONE_MILLI
from evenshare_research.reproduce.model import (
    Claim,
    ClaimVerdict,
    Findings,
    Part,
    ReportChart,
    ReportTable,
    Results,
)
from evenshare_research.reproduce.runs import KeptRun
from evenshare_research.reproduce.shown import curve, listed, number
from evenshare_research.reproduce.turns import turns
from evenshare_research.reproduce.verdicts import NoisyFigure, gain_verdict, why_not

SOURCE = (
    "S. Chaudhary et al., Balancing Efficiency and Fairness in Heterogeneous GPU Clusters for Deep"
    " Learning, EuroSys 2020"
)
RAN = (
    "The clusters, users, tickets and job sizes of each experiment of section 5, without a trace"
    " and without randomness. A quantum is a minute; restarts cost nothing. A share is the average"
    " since the quantum after users arrived or left."
)
# A share is reproduced if it is within this relative distance of the paper's.
NEAR = 0.05
WINDOW = 20  # quanta over which curves are averaged
ONE = "gpu"


def _tickets(tickets: Mapping[int, int]) -> dict[int, dict[str, int]]:
    return {tenant: {ONE: count} for tenant, count in tickets.items()}


# ---- sections 5.1 and 5.2 ----

THREE = dict.fromkeys((1, 2, 3), 100)
ONE_NODE = turns(
    "5.1, one node", 2,
    sizes={ONE: [4]}, kinds=[(1, 4, 1), (2, 4, 2), (3, 4, 4)], quanta=360, tickets=_tickets(THREE),
    ends={1: 240, 3: 240},
)  # fmt: skip # rows of what belongs together
TWO_NODES = turns(
    "5.2, a job over both nodes", 2,
    sizes={ONE: [4, 4]}, kinds=[(1, 1, 8), (2, 2, 2), (3, 4, 1)], quanta=180,
    tickets=_tickets(THREE), ends={1: 90},
)  # fmt: skip # rows of what belongs together

# ---- section 5.3 ----

CLASSES = {"1 GPU": range(1, 63), "2 GPUs": range(63, 66), "4 GPUs": range(66, 69),
           "8 GPUs": range(69, 71)}  # fmt: skip # a table
SEVENTY = [
    (tenant, 1, int(name.split()[0])) for name, tenants in CLASSES.items() for tenant in tenants
]
USERS = turns(
    "5.3, 70 users",
    2,
    sizes={ONE: [4] * 12},
    kinds=SEVENTY,
    quanta=300,
    tickets=_tickets({tenant: gang for tenant, _, gang in SEVENTY}),
    ends=dict.fromkeys(CLASSES["8 GPUs"], 100),
)
GROUPS = turns(
    "5.3, three groups", 2,
    sizes={ONE: [4] * 16}, kinds=[(1, 128, 1), (2, 128, 4), (3, 128, 2)], quanta=300,
    tickets=_tickets(THREE), ends={3: 100, 1: 220},
)  # fmt: skip # rows of what belongs together

# ---- sections 5.4 and 5.5 ----

TYPES = ("k80", "p100", "v100")
RESNET, SUPER_RESOLUTION = (1000, 3340, 5140), (1000, 1730, 1870)  # Table 1: one GPU
# Figure 9: user 1 bought V100s at these prices, in thousandths: 15:11 (18:06 is its undo), and
# 15:09. A price is the second largest speedup. So it is that of the ResNet jobs on 2 and 4 GPUs,
# which Table 1 does not have. On P100, figure 9 has 3.42, near Table 1's 3.34 for ResNet.
SECOND_PRICES = (1940, 1710)


def speeds_of(second_v100: int) -> dict[int, dict[str, int]]:
    """Return the users' speeds. `second_v100`: that of users 2 and 3 on a V100, in thousandths."""
    several = (*RESNET[:2], second_v100)
    rows = ((1, RESNET), (2, several), (3, several), (4, SUPER_RESOLUTION))
    return {tenant: dict(zip(TYPES, row, strict=True)) for tenant, row in rows}


SPEEDS = speeds_of(SECOND_PRICES[0])
LEAVES, LASTS = 240, 640


def _hetero(second_v100: int, *, trading: bool) -> KeptRun:
    label = f"5.{5 if trading else 4}, three types, trading {'on' if trading else 'off'}"
    return turns(
        f"{label}, users 2 and 3 at {second_v100 / 1000} on V100",
        5 if second_v100 == SECOND_PRICES[0] else 2,
        sizes={"k80": [4] * 16, "p100": [4] * 6, "v100": [4] * 3},
        kinds=[(1, 150, 1), (2, 150, 2), (3, 150, 4), (4, 150, 1)],
        quanta=LASTS if second_v100 == SECOND_PRICES[0] else LEAVES,
        ends={1: LEAVES},
        tickets={tenant: dict(zip(TYPES, (16, 6, 3), strict=True)) for tenant in SPEEDS},
        speeds=speeds_of(second_v100),
        trading=trading,
    )


# By the V100 speedup of users 2 and 3: without and with trading. The last is Table 1's for 1 GPU.
_HETERO = {
    second: (_hetero(second, trading=False), _hetero(second, trading=True))
    for second in (*SECOND_PRICES, RESNET[2])
}
NO_TRADES, TRADES = _HETERO[SECOND_PRICES[0]]
# Quanta until trades and moves of jobs have settled, at the start and after the departure.
SETTLED = 40


# ---- verdicts ----


def shares_verdict(
    ours: Sequence[float],
    paper: Sequence[float],
    names: Sequence[str] = (),
    noise: Sequence[float] = (),
) -> tuple[ClaimVerdict, str]:
    """Return whether every share is within `NEAR` of the paper's, or differs by no more than noise.

    If not, return the worst user too. `noise`: GPUs, by share.
    """
    rows = zip(ours, paper, noise or [0.0] * len(ours), strict=True)
    errors = [0.0 if abs(mine - its) <= wide else abs(mine / its - 1) for mine, its, wide in rows]
    worst = max(range(len(errors)), key=errors.__getitem__)
    if errors[worst] <= NEAR:
        return ClaimVerdict.REPRODUCED, ""
    name = names[worst] if names else f"user {worst + 1}"
    why = f"{name} has {number(ours[worst], 2)} GPUs, its fair share is {number(paper[worst], 2)}"
    return ClaimVerdict.NOT_REPRODUCED, why


def _shares(
    place: str, text: str, ours: Sequence[float], paper: Sequence[float], names: Sequence[str] = ()
) -> Claim:
    verdict, why = shares_verdict(ours, paper, names)
    return Claim(place, text, f"{listed(paper)} GPUs", f"{listed(ours)} GPUs", verdict, why)


def _use(place: str, text: str, paper: int, least: int, least_part: float = 0.98) -> Claim:
    """Return the claim that throughput is close to capacity, except when a user leaves."""
    return Claim.of(
        place,
        text,
        f"close to {paper}",
        f"{least} GPUs in use in the worst quantum",
        held=least >= least_part * paper,
        why_not=f"{paper - least} GPUs idle in one quantum",
    )


# ---- parts ----


def _small(results: Results) -> Findings:
    one, two = results[ONE_NODE], results[TWO_NODES]
    third = [4 / 3] * 3
    claims = [
        _shares("5.1", "One node: 1-, 2- and 4-GPU jobs of three users get a third each",
                _of(one, 0, 240), third),
        _shares("5.1", "After users 1 and 3 leave, user 2 has the whole node",
                [mean_gpus(one, 241, 360)[2]], [4], ["user 2"]),
        _shares("5.2", "Two nodes: an 8-GPU job on both, 2- and 1-GPU jobs get a third each",
                _of(two, 0, 90), [8 / 3] * 3),
        _shares("5.2", "After user 1 leaves, users 2 and 3 have half each",
                _of(two, 91, 180)[1:], [4, 4], ["user 2", "user 3"]),
    ]  # fmt: skip # a table
    charts = [
        _curves("Three users of one node (figure 4)", one, _users(one)),
        _curves("A job over two nodes (figure 5)", two, _users(two)),
    ]
    return Findings(claims, charts=charts)


def _many(results: Results) -> Findings:
    users, groups = results[USERS], results[GROUPS]
    before, after = (
        [sum(mean_gpus(users, *window)[tenant] for tenant in row) for row in CLASSES.values()]
        for window in ((0, 100), (101, 300))
    )
    names = [f"the class of {name}" for name in CLASSES]
    classes = {name: [f"{tenant} {ONE}" for tenant in tenants] for name, tenants in CLASSES.items()}
    claims = [
        _shares("5.3", "70 users on 48 GPUs: each class of users gets its fair share",
                before, [31, 3, 6, 8], names),
        _shares("5.3", "After the 8-GPU jobs end, the others get their fair share of all 48",
                after[:3], [37.2, 3.6, 7.2], names),
        _use("5.3", "Total throughput stays close to 48", 48,
             min(least_use(users, 0, 100), least_use(users, 102, 300))),
        _shares("5.3", "Three groups of 128 jobs on 64 GPUs: a third each",
                _of(groups, 0, 100), [64 / 3] * 3),
        _shares("5.3", "After the third group leaves, half each",
                _of(groups, 101, 220)[:2], [32, 32]),
        _shares("5.3", "After the first group leaves, all GPUs for the second",
                [mean_gpus(groups, 221, 300)[2]], [64], ["group 2"]),
        _use("5.3", "Total throughput stays close to 64", 64,
             min(least_use(groups, 0, 100), least_use(groups, 102, 220),
                 least_use(groups, 222, 300))),
    ]  # fmt: skip # a table
    note = (
        "The 4-GPU class after the departure: a job as large as its node shares the node's time"
        " with all other jobs there. So it has half of this time, even if users on other nodes"
        " have more (known limits of `gandiva_fair`)."
    )
    charts = [
        _curves("Classes of 70 users (figure 6)", users, classes),
        _curves("Three groups (figure 7)", groups, _users(groups)),
    ]
    return Findings(claims, charts=charts, notes=[note])


def _types(results: Results) -> Findings:
    off, on = results[NO_TRADES], results[TRADES]
    claims = []
    for since, until, tenants, fair, when in (
        (0, LEAVES, (1, 2, 3, 4), (16, 6, 3), "Four users have 16 K80, 6 P100 and 3 V100 each"),
        (LEAVES + 1, LASTS, (2, 3, 4), (64 / 3, 8, 4), "After user 1 leaves, 21.3, 8 and 4 each"),
    ):
        got = mean_gpus(off, since, until, by_type=True)
        keys = [(tenant, name) for tenant in tenants for name in TYPES]
        ours = [got[key] for key in keys]
        turns_of = [
            mean_gpus(off, *window, by_type=True) for window in windows_between(since, until)
        ]
        bands = [NoisyFigure.of_seeds([turn[key] for turn in turns_of]) for key in keys]
        verdict, why = shares_verdict(
            ours,
            list(fair) * len(tenants),
            [f"user {who}, {name}" for who, name in keys],
            [(band.high - band.low) / 2 for band in bands],
        )
        shown = "; ".join(listed(ours[at : at + 3], 1) for at in range(0, len(ours), 3))
        claims.append(Claim("5.4", when, f"{listed(fair, 1)} GPUs each", shown, verdict, why))
    claims += trade_claims(trade_gains(off, on, SPEEDS))
    claims.append(_undone(on))
    claims.append(
        _use("5.5", "Total throughput does not suffer from trades", 100,
             min(least_use(on, 0, LEAVES), least_use(on, LEAVES + 2, LASTS)))
    )  # fmt: skip # rows of what belongs together
    charts = [
        ReportChart(
            "Progress with trading and without (figure 8)",
            "minutes",
            "throughput, in K80s",
            [
                _smooth_curve(f"user {tenant}, trading {name}", _throughputs(result, tenant))
                for name, result in (("off", off), ("on", on))
                for tenant in SPEEDS
            ],
        ),
        *(_of_type(name, on) for name in TYPES),
    ]
    table, note = _by_price(results)
    return Findings(claims, [table], charts, [note])


def _by_price(results: Results) -> tuple[ReportTable, str]:
    """Return the gains by the V100 speedup of users 2 and 3, as a table and in words."""
    gains = {
        second: trade_gains(results[without], results[trading], speeds_of(second))
        for second, (without, trading) in _HETERO.items()
    }
    table = ReportTable(
        "Progress with trading over progress without, by the V100 speedup of users 2 and 3",
        ["V100 speedup", *(f"user {tenant}" for tenant in SPEEDS)],
        [
            [f"{second / 1000:.2f}", *(one.shown() for one in by_user.values())]
            for second, by_user in gains.items()
        ],
    )
    rates = " and ".join(
        f"{gains[second][1].shown()} with {second / 1000:.2f}" for second in SECOND_PRICES
    )
    note = (
        f"User 1 gains {rates}: figure 9 has both rates, at 15:11 and 15:09. With Table 1's 5.14"
        " for users 2 and 3 too, the second price of a V100 is its whole value to user 1. Then user"
        " 1 gains nothing. The paper does not measure jobs of 2 and 4 GPUs."
    )
    return table, note


def trade_gains(
    off: Mapping[str, Any], on: Mapping[str, Any], speeds: Mapping[int, Mapping[str, int]]
) -> dict[int, NoisyFigure]:
    """Return users' gains by trading, before user 1 leaves. The noise is over windows of quanta."""
    pairs = [
        [progress(result, speeds, *window) for result in (on, off)]
        for window in windows_between(SETTLED, LEAVES)
    ]
    return {
        tenant: NoisyFigure.of_ratio([(after[tenant], before[tenant]) for after, before in pairs])
        for tenant in speeds
    }


def windows_between(since: int, until: int) -> list[tuple[int, int]]:
    """Return windows of `WINDOW` quanta, the last one shorter."""
    return [(start, min(start + WINDOW, until)) for start in range(since, until, WINDOW)]


def trade_claims(gains: Mapping[int, NoisyFigure]) -> list[Claim]:
    claims = []
    for tenant in (1, 4):
        verdict = gain_verdict(gains[tenant], 0.3)
        why = why_not(verdict, gains[tenant], "the paper's gain")
        text = f"With trading, user {tenant} is about 30 % faster"
        claims.append(Claim("5.5", text, "+30 %", gains[tenant].shown(), verdict, why))
    slow = min(gains, key=lambda tenant: gains[tenant].value)
    least = gains[slow]
    return [
        *claims,
        Claim.of(
            "5.5",
            f"No user is slower with trading (here: by more than {NEAR:.0%} and the noise)",
            "stated",
            "; ".join(f"user {tenant} {gain.shown()}" for tenant, gain in gains.items()),
            held=least.high >= -NEAR,
            why_not=f"user {slow} is {-100 * least.value:.0f} % slower",
        ),
    ]


def _undone(on: Mapping[str, Any]) -> Claim:
    """Return the claim that trades are undone when a user leaves, and that new trades follow."""
    undone, after = on["undone"][LEAVES], sum(on["made"][LEAVES:])
    return Claim.of(
        "5.5",
        "When a user leaves, trades are undone and new trades follow",
        "figures 8 and 9",
        f"{sum(on['made'][:LEAVES])} trades before, {undone} undone, {after} afterwards",
        held=undone > 0 and after > 0,
        why_not="no trade followed" if undone else "no trade was undone",
    )


# ---- curves ----


def _of(result: Mapping[str, Any], since: int, until: int) -> list[float]:
    return list(mean_gpus(result, since, until).values())


def _users(result: Mapping[str, Any]) -> dict[str, list[str]]:
    return {f"user {key.split()[0]}": [key] for key in result["gpus"]}


def _curves(title: str, result: Mapping[str, Any], keys: Mapping[str, list[str]]) -> ReportChart:
    rows = {
        name: [sum(turn) for turn in zip(*(result["gpus"][key] for key in some), strict=True)]
        for name, some in keys.items()
    }
    curves = [_smooth_curve(name, row) for name, row in rows.items()]
    return ReportChart(title, "minutes", "GPUs", curves)


def _of_type(name: str, result: Mapping[str, Any]) -> ReportChart:
    keys = {f"user {tenant}": [f"{tenant} {name}"] for tenant in SPEEDS}
    return _curves(f"GPUs of type {name} with trading (figure 11)", result, keys)


def _throughputs(result: Mapping[str, Any], tenant: int) -> list[float]:
    rows = [
        [gpus * SPEEDS[tenant][name] / 1000 for gpus in result["gpus"][f"{tenant} {name}"]]
        for name in TYPES
    ]
    return [sum(turn) for turn in zip(*rows, strict=True)]


def _smooth_curve(name: str, row: Sequence[float]) -> dict[str, Any]:
    """Average a curve over the last `WINDOW` quanta."""
    parts = [row[max(0, end - WINDOW) : end] for end in range(1, len(row) + 1)]
    means = [round(sum(part) / len(part), 3) for part in parts]
    return curve(name, list(range(len(row))), means)


SMALL_TITLE = "Gandiva_fair: time slices on one and two nodes"
MANY_TITLE = "Gandiva_fair: many users on one GPU type"
TYPES_TITLE = "Gandiva_fair: three GPU types, without and with trading"
TYPES_RAN = (
    f"{RAN} Cluster, users and jobs are those of 5.4; 5.5 has the same. Users 1 and 4 have the"
    " speeds of Table 1 (ResNet-50, SuperResolution). So have users 2 and 3 on P100. Their jobs of"
    " 2 and 4 GPUs are slower on V100: 1.94, the rate of figure 9 at 15:11 and 18:06. Progress is"
    " compared from quantum 40 on. Noise is that of windows of 20 quanta."
)
PARTS = (
    Part("gandiva_fair", SMALL_TITLE, SOURCE, RAN, [ONE_NODE, TWO_NODES], _small),
    Part("gandiva_fair-many", MANY_TITLE, SOURCE, RAN, [USERS, GROUPS], _many),
    Part(
        "gandiva_fair-types",
        TYPES_TITLE,
        SOURCE,
        TYPES_RAN,
        [run for pair in _HETERO.values() for run in pair],
        _types,
    ),
)


def mean_gpus(
    result: Mapping[str, Any], since: int, until: int, *, by_type: bool = False
) -> dict[Any, float]:
    """Return the tenants' average GPUs over [since, until), by tenant or (tenant, type)."""
    total: defaultdict[Any, int] = defaultdict(int)
    for key, row in result["gpus"].items():
        tenant, name = key.split(" ", 1)
        total[(int(tenant), name) if by_type else int(tenant)] += sum(row[since:until])
    return {key: gpus / (until - since) for key, gpus in sorted(total.items())}


def progress(
    result: Mapping[str, Any], speeds: Mapping[int, Mapping[str, int]], since: int, until: int
) -> dict[int, float]:
    """Return the tenants' throughput over [since, until), in GPUs of the slowest type."""
    total: defaultdict[int, float] = defaultdict(float)
    for (tenant, name), gpus in mean_gpus(result, since, until, by_type=True).items():
        total[tenant] += gpus * speeds[tenant][name] / ONE_MILLI
    return dict(sorted(total.items()))


def least_use(result: Mapping[str, Any], since: int, until: int) -> int:
    """Return the fewest GPUs in use in a quantum of [since, until)."""
    rows: list[list[int]] = list(result["gpus"].values())
    return min(sum(row[quantum] for row in rows) for quantum in range(since, until))
