"""Samples for the style guide and for tests of the look; nobody should take them for facts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any

from portal.charts.explore.chart import PageChart
from portal.charts.explore.uses import rho_chart, use_chart
from portal.charts.glyphs import StateBadge
from portal.charts.nodemap import MapLease, MapNode, node_map
from portal.charts.notes import (
    CertificatePanel,
    Instant,
    LineItem,
    Link,
    Note,
    Promise,
    Stat,
    count_note,
    credit_note,
)
from portal.charts.page import LIVE, NavItem, PoolChoice, RoundLine, Viewer
from portal.charts.roundstrip import RoundBar, round_strip
from portal.charts.tenants import TenantBadge, tenant_badges
from portal.charts.timeline import Cut, GpuSpan, JobTimeline, PricePoint, Segment, timeline
from scheduling.selectors.histories import ClaimHistoryPoint

T0 = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
NOW = T0 + timedelta(hours=5, minutes=6)
NAMES = [
    f"sample-{word}"
    for word in (
        "vision",
        "speech",
        "nlp",
        "robotics",
        "genomics",
        "ads",
        "climate",
        "edu",
        "maths",
        "video",
        "search",
        "audio",
        "physics",
        "chem",
        "games",
        "maps",
    )
]

REASONS = [
    ("fair_turn", "lower priority now"),
    ("price_above_max", "price above your max"),
    ("gang_needs_nodes", "needs 2 whole nodes"),
    ("borrow_limit", "borrow limit"),
    ("budget_spent", "budget spent"),
    ("held", "held by you"),
    ("node_down", "its node is down"),
    ("depends_on", "after another job"),
    ("profiling", "being profiled"),
    ("pool_full", "pool is full"),
]
STATES = [
    ("ok", "fair"),
    ("note", "holds, with a note"),
    ("warn", "budget at 100 %"),
    ("bad", "failed round"),
    ("running", "Running"),
    ("starting", "Starting"),
    ("waiting", "Queued"),
    ("preempted", "Preempted"),
    ("ended", "Ended"),
    ("unclaimed", "not claimed"),
]


@dataclass(frozen=True, slots=True)
class SampleMessage:
    """What base.html reads of a Django message."""

    text: str
    level_tag: str

    def __str__(self) -> str:
        return self.text


def sample_context(many: int = 0) -> dict[str, Any]:
    """The page's context; `many` draws 1,000 nodes to look at the compact map."""
    badges = tenant_badges(NAMES, you=NAMES[0])
    nodes = sample_nodes(list(badges.values()), 1000 if many else 60)
    return {
        "nav": [
            NavItem(word.lower(), word, "#")
            for word in ("Overview", "Jobs", "Pool", "Rounds", "Ledger")
        ],
        "nav_key": "overview",
        "viewer": Viewer("Sample Person", "manager", NAMES[0]),
        "round_line": sample_round_line(),
        "pool_choices": [PoolChoice("philly", "#", is_here=True), PoolChoice("mixed", "#")],
        "recompute_command": "evenshare round verify --last 10 --pool philly",
        "messages": [SampleMessage("Saved. A sample toast, docked at the bottom.", "success")],
        "badges": list(badges.values()),
        "stats": sample_stats(),
        "use_note": count_note(
            "In use",
            [("your own", 48), ("borrowed", 13)],
            total="in 23 jobs",
            text="Sample figures.",
            links=(Link("Round 4,211", "#"),),
        ),
        "owe_note": credit_note(
            "Owed, last 24 h",
            [("earned by lending", Decimal("96.10")), ("paid for borrowing", Decimal("-308.50"))],
        ),
        "use_figure": sample_use_chart(),
        "rho_figure": sample_rho_chart(),
        "strip_svg": round_strip(sample_rounds()),
        "map_svg": node_map(nodes, label="Sample nodes"),
        "timeline_svg": timeline(sample_timeline()),
        "cert": sample_certificate(),
        "red_cert": sample_certificate(broken=True),
        "instant": Instant(pool=NOW - timedelta(minutes=8), now=NOW, wall=NOW, scale=60),
        "leases": [(540, 900, 300, 1), (840, 900, 300, 1), (120, 900, 300, 1), (900, 900, 300, 60)],
        "shares": [
            (badges[NAMES[i]], got, quota, asked)
            for i, (got, quota, asked) in enumerate(
                [(61, 48, 113), (48, 64, 48), (108, 96, 140), (35, 48, 35), (40, 40, 52)]
            )
        ],
        "price": Decimal("1.46"),
        "reasons": REASONS,
        "states": STATES,
    }


def sample_round_line() -> RoundLine:
    """A line that does not poll, as nothing is behind it."""
    return RoundLine(
        pool="sample",
        state=LIVE,
        number=4211,
        url="",
        round_url="#",
        age_s=3,
        next_s=57,
        nodes=60,
        gpus=480,
        policy="ltgf",
        policy_url="#",
        scale=60,
        at=Instant(pool=NOW, now=NOW, wall=NOW, scale=60),
    )


def sample_stats() -> list[Stat]:
    """Four accounts whose line_items sum."""
    owe = credit_note(
        "Owed, last 24 h", [("earned", Decimal("96.10")), ("paid", Decimal("-308.50"))]
    )
    use = count_note("In use", [("your own", 48), ("borrowed", 13)], total="in 23 jobs")
    return [
        Stat(
            "You have",
            "48",
            "GPUs quota",
            (LineItem("v100", "16"), LineItem("p100", "32")),
            LineItem("quota, may lend and borrow", "48"),
        ),
        Stat(
            "You use",
            "61",
            "GPUs",
            (LineItem("your own, all of it", "48"), LineItem("borrowed: 4 v100, 9 p100", "13")),
            LineItem("in 23 jobs", "61"),
            use,
        ),
        Stat(
            "Received against fair share",
            "104 %",
            "",
            (
                LineItem("received, 24 h window", "1,061.8 GPU-h"),
                LineItem("fair share", "1,021.0 GPU-h"),
            ),
            LineItem("received ÷ fair share: rho", "1.04"),
            Note("rho", text="GPU-time received over the fair share."),
            StateBadge("ok", "fair"),
        ),
        Stat(
            "You owe, last 24 h",
            "\N{MINUS SIGN}212.40",
            "credits",
            tuple(LineItem(a.label, a.value) for a in owe.line_items),
            owe.total,
            owe,
        ),
    ]


def sample_claims() -> list[ClaimHistoryPoint]:
    """A claim of 32 GPUs that borrows by day and lends at night, and whose rho dips under one."""
    uses = [38, 36, 32, 30, 26, 26, 32, 37, 36, 41]
    values = [1.02, 1.06, 1.08, 1.03, 0.99, 0.91, 0.95, 1.01, 1.03, 1.08]
    at = [NOW - timedelta(hours=24 - 2.4 * place) for place in range(len(uses))]
    return [
        ClaimHistoryPoint(place, at[place], at[place], 60, "v100", use, 32, rho, 0.0, 0.0)
        for place, (use, rho) in enumerate(zip(uses, values, strict=True))
    ]


def sample_use_chart() -> PageChart:
    """Use against quota."""
    return use_chart(
        sample_claims(), NOW, key="sample-use", title="41 in use, quota 32", file="sample-use"
    )


def sample_rho_chart() -> PageChart:
    """rho around the fair share."""
    return rho_chart(sample_claims(), NOW, key="sample-rho", title="rho 1.08", file="sample-rho")


def sample_rounds() -> list[RoundBar]:
    """Sixty rounds, a node drained for the last forty."""
    idle = [3, 1, 4, 0, 1, 1, 3, 0, 2, 0, 1, 3, 3, 1, 2, 1, 4, 0, 1, 2]
    return [
        RoundBar(4152 + n, idle[n % 20], 8 if n > 20 else 0, href=f"#round-{4152 + n}")
        for n in range(60)
    ]


def sample_nodes(badges: list[TenantBadge], count: int) -> list[MapNode]:
    """Nodes filled with gangs of 8, 4, 2 and 1; one drained, one partly idle."""
    shapes: list[list[int]] = [[8], [4, 4], [2, 2, 4], [3, 1, 2], [8], [4, 2, 1, 1], [2, 2, 2, 2]]
    nodes = []
    for n in range(count):
        if n % 31 == 30:
            nodes.append(MapNode(f"node-{n:03d}", 8, state="drained"))
            continue
        slot, leases = 0, []
        for place, size in enumerate(shapes[(n * 5 + n // 7) % len(shapes)]):
            badge = badges[(n * 3 + place * 7) % len(badges)]
            leases.append(
                MapLease(
                    tuple(range(slot, slot + size)),
                    badge,
                    f"{badge.name}, {size} GPUs",
                    borrowed=size // 4,
                )
            )
            slot += size
        nodes.append(MapNode(f"node-{n:03d}", 8, tuple(leases)))
    return nodes


def sample_timeline() -> JobTimeline:
    """Waits, runs, is preempted, waits for a price, runs again."""

    def at(minutes: int) -> datetime:
        return T0 + timedelta(minutes=minutes)

    prices = ["1.38", "1.40", "1.46", "1.62", "1.70", "1.71", "1.66", "1.60", "1.52", "1.45"]
    return JobTimeline(
        start=T0,
        end=at(320),
        now=at(306),
        segments=(
            Segment("turn", at(12), at(31), "turn 19 min"),
            Segment(
                "run",
                at(31),
                at(121),
                "p100-22, 6 terms",
                tuple(at(31 + 15 * n) for n in range(1, 6)),
            ),
            Segment("turn", at(121), at(136), "turn 15"),
            Segment("price", at(136), at(165), "price 29 min"),
            Segment(
                "run",
                at(165),
                at(306),
                "p100-07, 10 terms so far",
                tuple(at(165 + 15 * n) for n in range(1, 10)),
            ),
            Segment("expected", at(306), at(315)),
        ),
        cuts=(Cut(at(121)),),
        gpus=(
            GpuSpan(at(31), at(76), 8),
            GpuSpan(at(76), at(121), 4, 4),
            GpuSpan(at(165), at(306), 5, 3),
        ),
        gpus_of=8,
        prices=tuple(PricePoint(at(34 * n), Decimal(price)) for n, price in enumerate(prices)),
        max_price=Decimal("1.65"),
        label="Sample job: waited 63 minutes, ran 3 h 51 min",
    )


def sample_certificate(broken: bool = False) -> CertificatePanel:
    """Six promises, one with a note, one not claimed; `broken` violates another."""
    return CertificatePanel(
        title="Certificate of round 4,211 (sample)",
        text="Promises checked on this round's own numbers.",
        promises=(
            Promise(
                "No GPU is given twice",
                "holds",
                "469 leased + 3 idle + 8 drained = 480.",
                count_note("GPUs", [("leased", 469), ("idle", 3), ("drained", 8)]),
            ),
            Promise("No job holds a part of its GPUs", "holds", "All 137 leases are whole."),
            Promise(
                "Nobody does worse than alone",
                "violated" if broken else "holds",
                "sample-speech got 46 of 48 GPUs." if broken else "Smallest margin 0 GPUs.",
            ),
            Promise("No GPU is wasted", "note", "3 GPUs stay idle while 31 jobs are queued."),
            Promise("Lying does not pay", "unclaimed", "This policy does not promise it."),
        ),
        sha256=sha256(b"sample").hexdigest(),
        command="evenshare round verify 4211 --pool philly",
        issued="Issued by policy ltgf 1, decided in 38 ms.",
    )
