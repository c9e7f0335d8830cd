"""Comparison of all policies on slices of two weeks, chosen before any run on them."""

from collections.abc import Mapping, Sequence
from typing import Any

from evenshare_research.reproduce.model import Findings, Part, ReportTable, Results
from evenshare_research.reproduce.philly import ERROR, FLOOR, TUNING, VERDICT, philly
from evenshare_research.reproduce.runs import KeptRun
from evenshare_research.reproduce.shown import COLUMNS, figures_table, rho_chart

# (name in the tables, policy, options)
POLICIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("endless cluster (floor)", FLOOR, {}),
    ("`evenshare`", "evenshare", {}),
    ("`evenshare`, estimates", "evenshare", {"estimates": "given"}),
    ("`evenshare`, tight, estimates", "evenshare", {"preset": "tight", "estimates": "given"}),
    ("`ltgf`", "ltgf", {}),
    ("`srtf`", "srtf", {}),
    ("`sjf`", "sjf", {"backfill": True}),
    ("`fifo`", "fifo", {"backfill": True}),
    ("`yarn_cs`", "yarn_cs", {}),
)
OURS, OURS_ESTIMATING = "`evenshare`", "`evenshare`, estimates"
OTHERS = [name for name, policy, _ in POLICIES if policy not in {FLOOR, "evenshare"}]
RIVALS = [OURS, *OTHERS]  # rows of the table of lowest figures
ESTIMATING = {"`srtf`", "`sjf`"}
TUNED = "2017-10-09"
# CPU seconds for two weeks of `evenshare`, if every round is decided in full
WITH_ESTIMATES_S = 220
Place = tuple[str, int | None]  # the first day, and the number of nodes
# Figures to compare; for each of them, lower is better.
COMPARED = (
    "sharing loss",
    "hours under 0.99",
    "deficit",
    "daily deficit",
    "slowdown",
    "JCT s",
    "waste",
    "late",
)
GOALS = ("sharing loss", "daily deficit", "slowdown", "JCT s", "waste")
FIELD = {column: field for column, field, _ in COLUMNS}


def part_of(name: str, title: str, places: Sequence[Place], *, is_long: bool) -> Part:
    """Return a part that runs all policies on the given slices (first day, nodes)."""
    asked = {
        (place, label): philly(
            place[0],
            policy,
            options=options,
            nodes=place[1],
            name=label,
            about_s=WITH_ESTIMATES_S if options.get("estimates") else None,
        )
        for place in places
        for label, policy, options in POLICIES
    }

    def judge(results: Results) -> Findings:
        return _judge(asked, results)

    ran = (
        "Slices of two weeks of Philly (`research/data`) on nodes of 8 GPUs. If a"
        " table does not state the number of nodes, the slice has a load of 1.135, as 2017-10-09"
        " has on 60 nodes. Rounds take place every second, leases take 900 s, cold starts 30 s;"
        " quotas are in proportion to the tenants'"
        f" demand. Estimates are durations wrong by up to {ERROR:.0%}, drawn with seed 1."
    )
    return Part(name, title, "", ran, list(asked.values()), judge, is_long)


Asked = Mapping[tuple[Place, str], KeptRun]


def _judge(asked: Asked, results: Results) -> Findings:
    places = list(dict.fromkeys(place for place, _ in asked))
    tables, charts = [], []
    for place in places:
        rows = [(name, results[asked[place, name]]) for name, _, _ in POLICIES]
        nodes, jobs = rows[1][1]["nodes"], rows[0][1]["jobs"]
        title = f"From {place[0]}: {jobs:,} jobs on {nodes} nodes"
        tables.append(figures_table(title, rows))
        charts.append(rho_chart(f"{title}: rho of jobs", rows[1:]))
    # If there is only one slice, its own table is enough.
    summary = [_ahead(asked, results, places)] if len(places) > 1 else []
    return Findings(tables=[*summary, *tables], charts=charts)


def _ahead(asked: Asked, results: Results, places: Sequence[Place]) -> ReportTable:
    """Return the best policy for each figure, and whether `evenshare` is ahead on all of `GOALS`.

    The default of `evenshare` is compared with policies that need no estimates. `evenshare` with
    estimates is compared with all other policies, which have the same estimates.
    """

    def value(place: Place, name: str, column: str) -> float:
        figure: float = results[asked[place, name]][FIELD[column]]
        return figure

    rows = [
        [column, *(min(RIVALS, key=lambda name: value(place, name, column)) for place in places)]
        for column in COMPARED
    ]
    for mine, rivals, said in (
        (OURS, [name for name in OTHERS if name not in ESTIMATING], "policies without estimates"),
        (OURS_ESTIMATING, OTHERS, "all other policies"),
    ):
        row = [f"{mine} ahead of {said} on all of {', '.join(GOALS)}"]
        for place in places:
            behind = [
                goal
                for goal in GOALS
                if any(value(place, mine, goal) > value(place, name, goal) for name in rivals)
            ]
            row.append(f"no: {', '.join(behind)}" if behind else "yes")
        rows.append(row)
    heads = [f"{day} ({nodes or 'load 1.135'})" for day, nodes in places]
    return ReportTable("Policy with the lowest value of each figure", ["", *heads], rows)


PARTS = (
    part_of("sixty", "The slice on which the rules were chosen", [(TUNED, 60)], is_long=False),
    part_of("sizes", "Smaller and larger clusters", [(TUNED, 40), (TUNED, 88)], is_long=True),
    part_of(
        "verdict",
        "The verdict on four later slices",
        [(day, None) for day in VERDICT],
        is_long=True,
    ),
    part_of(
        "tuning", "An earlier slice", [(day, None) for day in TUNING if day != TUNED], is_long=True
    ),
)
