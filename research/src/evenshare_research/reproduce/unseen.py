"""Comparison of `evenshare` with four policies on weeks and workloads on which it was not tuned.

Options are tried on early weeks and on drawn workloads. A middle span decides whether the default
changes. Later weeks, and workloads drawn from new seeds, confirm the result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import chain
from statistics import fmean
from typing import Any

import numpy as np

from evenshare_research.reproduce.model import Findings, Part, ReportTable, Results
from evenshare_research.reproduce.philly import ERROR, FLOOR
from evenshare_research.reproduce.samples import SHAPES, Sample, sample_run
from evenshare_research.reproduce.shown import COLUMNS, figures_table
from evenshare_research.reproduce.verdicts import NoisyFigure

Group = tuple[str, tuple[Sample, ...]]  # the title in the tables, the samples

# Weeks are named by their first day. The spans were fixed before the runs, but the last one was cut
# from five weeks to three during them, to save time. Two options, and the row with estimates, were
# added after the first results; promised starts had been chosen on 11-20 and 12-04.
TUNED: tuple[Group, ...] = (
    ("early weeks", (Sample("2017-09-25"), Sample("2017-10-02"))),
    ("drawn workloads", tuple(Sample(shape, 1) for shape in SHAPES)),
)
CHOSEN: tuple[Group, ...] = (("middle weeks", (Sample("2017-10-23"), Sample("2017-10-30"))),)
CONFIRMED: tuple[Group, ...] = (
    (
        "last weeks",
        tuple(Sample(f"2017-{day}") for day in ("11-11", "11-18", "12-02")),
    ),
    ("new drawn workloads", tuple(Sample(shape, seed) for shape in SHAPES for seed in (101, 102))),
)

Tried = tuple[str, str, dict[str, Any]]  # the name in the tables, the policy, its options
OURS: Tried = ("`evenshare`", "evenshare", {})
FLOOR_ROW: Tried = ("endless cluster (floor)", FLOOR, {})
RIVALS: tuple[Tried, ...] = (
    ("`ltgf`", "ltgf", {}),
    ("`themis`", "themis", {}),
    ("`tiresias_l`", "tiresias_l", {}),
    ("`gandiva_fair`", "gandiva_fair", {"trading": False}),
)
# The same knowledge as `themis` has.
ESTIMATING: Tried = ("`evenshare`, estimates", "evenshare", {"estimates": "given"})
# The window of the preset "hourly".
SHORT: Tried = ("window of 1 h", "evenshare", {"window_s": 3_600})
# Options of `evenshare` to compare with its default.
OPTIONS: tuple[Tried, ...] = (
    ("window of 72 h", "evenshare", {"window_s": 259_200}),
    ("window of 4 h", "evenshare", {"window_s": 14_400}),
    SHORT,
    ("minimum runtime of 60 s", "evenshare", {"min_runtime_s": 60}),
    ("minimum runtime of 120 s", "evenshare", {"min_runtime_s": 120}),
    ("minimum runtime of 900 s", "evenshare", {"min_runtime_s": 900}),
    ("no restart budget", "evenshare", {"restart_budget_percent": 0}),
    (
        "minimum runtime of 60 s, no restart budget",
        "evenshare",
        {"min_runtime_s": 60, "restart_budget_percent": 0},
    ),
    ("no preemption that pays", "evenshare", {"pays": False}),
    (
        "window of 4 h, minimum runtime of 60 s",
        "evenshare",
        {"window_s": 14_400, "min_runtime_s": 60},
    ),
    ("`tight`", "evenshare", {"preset": "tight"}),
)

# The figures that must all be at least as good. For each of them, lower is better.
COMPARED = {"sharing loss", "hours under 0.99", "deficit", "slowdown", "JCT s"}
FIGURES = tuple(column for column in COLUMNS if column[0] in COMPARED)
AHEAD_ON = 3  # figures on which `evenshare` should be ahead of a rival
REACHED = "yes"
SEEN = (
    "No option was chosen on these weeks. But promised starts were chosen on two weeks from"
    " 2017-10-09, 11-20 and 12-04, so only drawn workloads are new in every respect."
)
GOAL = f"Goal: ahead of a policy on at least {AHEAD_ON} of five figures, and behind on none."
RESAMPLES, SEED = 10, 1

Row = Mapping[str, Any]
Show = Callable[[float | None], str]
Rows = Mapping[str, Sequence[Row]]  # by name: the results on each sample of a group
RAN = (
    "Weeks of Philly, of which every fourth job counts, and workloads of 1,000 jobs in two days of"
    " five tenants (`evenshare_research.reproduce.samples`). Nodes have 8 GPUs; the load is 1.135."
    " Rounds take place every 10 s, the default of a pool; leases take 900 s, cold starts 30 s."
    " Quotas are in proportion to the tenants' demand. `themis` has estimates that are wrong by up"
    f" to {ERROR:.0%}; `gandiva_fair` trades nothing, because there is one GPU type. Figures are"
    " means over the weeks or workloads. A positive difference is a gain. In brackets is its range"
    " in ten resamples: weeks or workloads are drawn with replacement, and their jobs or hours too."
    " A policy is level if the range contains 0."
)


class FigureStanding(Enum):
    """Whether a policy is better than another on a figure, by more than the noise."""

    AHEAD = "ahead"
    LEVEL = "level"
    BEHIND = "behind"

    @classmethod
    def of(cls, got: NoisyFigure) -> "FigureStanding":
        """Return our standing. `got`: the other figure minus ours; lower is better."""
        if got.low > 0:
            return cls.AHEAD
        return cls.BEHIND if got.high < 0 else cls.LEVEL


def minus_ours(theirs: Sequence[Row], ours: Sequence[Row], field: str) -> NoisyFigure:
    """Return the mean of their figure minus our figure, with the noise of the difference.

    Both have the same samples. A resample draws samples with replacement, and in each of them jobs
    or hours, which are the same for both.
    """
    pairs = list(zip(theirs, ours, strict=True))
    drawn = np.random.default_rng(SEED).integers(len(pairs), size=(RESAMPLES, len(pairs)))
    resampled = [
        fmean(
            pairs[index][0]["resampled"][field][number]
            - pairs[index][1]["resampled"][field][number]
            for index in indices
        )
        for number, indices in enumerate(drawn)
    ]
    return NoisyFigure.of_resamples(
        fmean(their[field] - our[field] for their, our in pairs), resampled
    )


def standings(theirs: Sequence[Row], ours: Sequence[Row]) -> dict[str, FigureStanding]:
    """Return our standing on each of `FIGURES`, by column."""
    return {
        column: FigureStanding.of(minus_ours(theirs, ours, field)) for column, field, _ in FIGURES
    }


def is_better(given: Sequence[Mapping[str, FigureStanding]]) -> bool:
    """Return whether a policy is behind nowhere and ahead on some figure, in several groups."""
    every = list(chain.from_iterable(one.values() for one in given))
    return FigureStanding.BEHIND not in every and FigureStanding.AHEAD in every


def goal_text(given: Mapping[str, FigureStanding]) -> str:
    """Return whether a rival is behind enough: on no figure ahead, on `AHEAD_ON` behind."""
    behind = [column for column, one in given.items() if one is FigureStanding.BEHIND]
    ahead = sum(one is FigureStanding.AHEAD for one in given.values())
    if behind:
        return f"no: behind on {', '.join(behind)}"
    return REACHED if ahead >= AHEAD_ON else f"no: ahead on {ahead} only"


def undominated(rows: Rows) -> list[str]:
    """Return the names of which no other is at least as good on all figures, better on one."""
    means = {name: _means(some) for name, some in rows.items()}
    return [
        name
        for name, mine in means.items()
        if not any(
            other != mine and all(one <= own for one, own in zip(other, mine, strict=True))
            for other in means.values()
        )
    ]


def _means(rows: Sequence[Row]) -> tuple[float, ...]:
    return tuple(fmean(row[field] for row in rows) for _, field, _ in FIGURES)


def part_of(
    part_name: str,
    title: str,
    groups: Sequence[Group],
    others: Sequence[Tried],
    judge: Callable[[Mapping[str, Rows]], Findings],
) -> Part:
    """Return a part that runs our default and other policies on all samples of some groups."""
    asked = {
        group: {
            name: [sample_run(sample, policy, options, name) for sample in samples]
            for name, policy, options in (FLOOR_ROW, OURS, *others)
        }
        for group, samples in groups
    }

    def judged(results: Results) -> Findings:
        rows = {
            group: {name: [results[run] for run in runs] for name, runs in some.items()}
            for group, some in asked.items()
        }
        return judge(rows)

    runs = [run for some in asked.values() for runs in some.values() for run in runs]
    return Part(part_name, title, "", RAN, runs, judged, is_long=True, document="unseen.md")


def _figures(group: str, rows: Rows) -> ReportTable:
    fields = [field for _, field, _ in FIGURES]
    means = [(name, dict(zip(fields, _means(some), strict=True))) for name, some in rows.items()]
    return figures_table(f"Figures, {group}", means, FIGURES)


def _against_rivals(group: str, rows: Rows, name: str) -> ReportTable:
    """Return the standing of `name` against each rival, and whether the goal is reached."""
    cells = [
        [
            rival,
            *(_shown(rows[rival], rows[name], field, show) for _, field, show in FIGURES),
            goal_text(standings(rows[rival], rows[name])),
        ]
        for rival, _, _ in RIVALS
    ]
    heads = ["compared with", *(column for column, _, _ in FIGURES), "goal"]
    return ReportTable(f"{name} against four policies, {group}", heads, cells)


def _against_default(group: str, rows: Rows) -> ReportTable:
    default = rows[OURS[0]]
    best = undominated({name: rows[name] for name, _, _ in (OURS, *OPTIONS)})
    cells = [
        [
            name,
            *(_shown(default, rows[name], field, show) for _, field, show in FIGURES),
            "yes" if name in best else "",
        ]
        for name, _, _ in OPTIONS
    ]
    heads = ["option", *(column for column, _, _ in FIGURES), "on the frontier"]
    return ReportTable(f"Options against the default, {group}", heads, cells)


def _shown(theirs: Sequence[Row], ours: Sequence[Row], field: str, show: Show) -> str:
    """Format a standing, for example "ahead: 1.20 % (0.80 % to 1.50 %)"."""
    got = minus_ours(theirs, ours, field)
    return (
        f"{FigureStanding.of(got).value}: {show(got.value)} ({show(got.low)} to {show(got.high)})"
    )


def _tuned(rows: Mapping[str, Rows]) -> Findings:
    tables = [_choice_table(rows)]
    for group, some in rows.items():
        # The differences of the options from the default are in the second table.
        ends = {name: some[name] for name in (FLOOR_ROW[0], OURS[0])}
        tables += [_figures(group, ends), _against_default(group, some)]
    return Findings(tables=tables)


def _choice_table(rows: Mapping[str, Rows]) -> ReportTable:
    """Return which options could replace the default. The middle span has the last word."""
    spans = [[group for group, _ in groups] for groups in (TUNED, CHOSEN)]
    cells = []
    for name, _, _ in OPTIONS:
        held = [
            is_better([standings(rows[group][OURS[0]], rows[group][name]) for group in groups])
            for groups in spans
        ]
        cells.append([name, *("yes" if one else "no" for one in (*held, all(held)))])
    title = "Options that are ahead of the default on a figure, and behind on none"
    heads = ["option", *(" and ".join(groups) for groups in spans), "replaces the default"]
    return ReportTable(title, heads, cells)


def _later(rows: Mapping[str, Rows]) -> Findings:
    findings = _confirmed(rows)
    return replace(findings, notes=[SEEN, *findings.notes])


def _confirmed(rows: Mapping[str, Rows]) -> Findings:
    """Compare the default, and the policy with estimates if it ran, with the rivals."""
    notes, tables = [GOAL], []
    for group, some in rows.items():
        ours = [name for name, _, _ in (OURS, ESTIMATING) if name in some]
        notes += [_goals_text(group, some, name) for name in ours]
        tables += [_against_rivals(group, some, name) for name in ours]
        tables.append(_figures(group, some))
    return Findings(tables=tables, notes=notes)


def _goals_text(group: str, rows: Rows, name: str) -> str:
    """Return the sentence that names the rivals against which the goal is reached."""
    reached = [
        rival for rival, _, _ in RIVALS if goal_text(standings(rows[rival], rows[name])) == REACHED
    ]
    return (
        f"{name} on {group}: the goal is reached against {len(reached)} of {len(RIVALS)} policies"
        f"{': ' if reached else ''}{', '.join(reached)}."
    )


PARTS = (
    part_of(
        "options",
        "Options on early and middle weeks",
        [*TUNED, *CHOSEN],
        OPTIONS,
        _tuned,
    ),
    part_of("later", "Later weeks", CONFIRMED[:1], [SHORT, *RIVALS], _later),
    part_of(
        "drawn", "New drawn workloads", CONFIRMED[1:], [SHORT, ESTIMATING, *RIVALS], _confirmed
    ),
)
