"""The report as the documents of docs/reproduce, and as a page with charts."""

import html
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from evenshare_research.reproduce.model import Claim, ClaimVerdict, Findings, Part, ReportTable
from evenshare_research.reproduce.runs import ROOT, minutes
from evenshare_research.reproduce.shown import DASH
from evenshare_research.reproduce.written import (
    CLAIM_HEAD,
    MEASURED,
    PlacedVerdict,
    WrittenPart,
    written_parts,
)

FOLDER = ROOT / "docs" / "reproduce"
# The text before this mark is written by hand.
SUMMARY, MARK = "README.md", "<!-- Written by make reproduce from here on -->\n"
EMPTY: Mapping[str, str] = MappingProxyType({})
# The first lines of documents that are about no paper.
HEADINGS: Mapping[str, str] = MappingProxyType(
    {
        "policies.md": (
            "# All policies on the same jobs\n\nFor operators and scheduling researchers: every"
            " policy on slices of Philly's trace. Terms and columns: [README](README.md).\n"
        ),
        "unseen.md": (
            "# `evenshare` where it was not tuned\n\nFor operators and scheduling researchers:"
            " how its options were chosen, and how it compares with four policies elsewhere."
            " Terms and columns: [README](README.md).\n"
        ),
    }
)
PLOTLY = ROOT / "static" / "vendor" / "plotly-basic.min.js"
VERDICTS = tuple(ClaimVerdict)
# Parts with their findings, or None if a part was not run.
Done = Sequence[tuple[Part, Findings | None]]
Verdicts = Mapping[str, tuple[PlacedVerdict, ...] | None]  # the verdicts of claims, by part
NOT_RUN = "not run here"
PERCENT = " %"


def documents(done: Done, measured: str, before: Mapping[str, str] = EMPTY) -> dict[str, str]:
    """Return the documents by name.

    `measured`: date and machine. `before`: the documents' previous texts.

    A part without findings keeps its previous text.
    """
    known = written_parts("\n".join(before.values()))
    verdicts = {part.name: _verdicts(part, findings, known) for part, findings in done}
    texts = {SUMMARY: [before.get(SUMMARY, "").partition(MARK)[0] + MARK]}
    if any(verdicts.values()):
        tables = [_linked_sums(done, verdicts), _places(done, verdicts)]
        texts[SUMMARY] += [f"{_sums_text(verdicts)}\n", *map(_markdown_table, tables)]
    ran: dict[tuple[str, str], str] = {}  # the title under which a run was first described
    for part, findings in done:
        name = document_name(part)
        text = texts.setdefault(name, [_heading(part)])
        text.append(f"## {part.title}\n")
        first = ran.setdefault((name, part.ran), part.title)
        if findings is None and part.title in known:
            text.append(known[part.title].text)
        elif findings is None:
            text.append(f"{_not_run(part)}\n")
        else:
            same = part.ran if first == part.title else f'as in "{first}".'
            text += _section(findings, measured, same)
    return {name: "\n".join(text).rstrip() + "\n" for name, text in texts.items()}


def document_name(part: Part) -> str:
    """Return the name of a part's document.

    Parts of the same paper have the same title before the colon.
    """
    return f"{_paper(part).lower()}.md" if part.source else part.document


def _paper(part: Part) -> str:
    return part.title.partition(":")[0]


def _heading(part: Part) -> str:
    if not part.source:
        return HEADINGS[part.document]
    return (
        f"# Claims of {_paper(part)}\n\nFor scheduling researchers: which claims of {part.source}"
        " hold on public data. Terms and columns: [README](README.md).\n"
    )


def _section(findings: Findings, measured: str, ran: str) -> list[str]:
    parts = [f"{MEASURED}{measured}\n", f"*Run*: {ran}\n"]
    if findings.claims:
        rows = [_claim_row(claim) for claim in findings.claims]
        parts.append(_markdown_table(ReportTable("", CLAIM_HEAD, rows)))
    parts += [f"{note}\n" for note in findings.notes]
    for table in map(_with_units_on_top, findings.tables):
        parts += [f"### {table.title}\n", _markdown_table(table)]
    return parts


def _with_units_on_top(table: ReportTable) -> ReportTable:
    """Return a table that names per cent in the head of a column, and not in its cells."""
    columns = list(zip(table.head, *table.rows, strict=True))
    for index, (head, *cells) in enumerate(columns):
        if (
            "%" not in head
            and any(PERCENT in cell for cell in cells)
            and all(PERCENT in cell for cell in cells if cell not in ("", DASH))
        ):
            columns[index] = (f"{head},{PERCENT}", *(cell.replace(PERCENT, "") for cell in cells))
    head, *rows = zip(*columns, strict=True)
    return ReportTable(table.title, head, rows)


def _verdicts(
    part: Part, findings: Findings | None, before: Mapping[str, WrittenPart]
) -> tuple[PlacedVerdict, ...] | None:
    """Return the verdicts of a part's claims, or None if they are unknown."""
    if findings is not None:
        return tuple(PlacedVerdict(claim.place, claim.verdict) for claim in findings.claims)
    return before[part.title].verdicts if part.title in before else None


def _not_run(part: Part) -> str:
    return (
        f"*Not run* with this version: about {minutes(part.about_s)} on one core,"
        f" `make reproduce ARGS={part.name}`."
    )


def _sums_text(verdicts: Verdicts) -> str:
    given = [one.verdict for some in verdicts.values() for one in some or ()]
    said = [f"{count} {one.value}" for one in VERDICTS if (count := given.count(one))]
    return f"Of {len(given)} claims: {', '.join(said)}."


def _sums(done: Done, verdicts: Verdicts) -> ReportTable:
    """Count claims by paper and verdict, and name parts that were not run."""
    papers: dict[str, list[str]] = {}
    for part, _ in done:
        if part.source:
            papers.setdefault(part.source, []).append(part.name)
    rows = []
    for source, names in papers.items():
        given = [one.verdict for name in names for one in verdicts[name] or ()]
        missing = ", ".join(f"`{name}`" for name in names if verdicts[name] is None)
        rows.append([source, *(str(given.count(verdict)) for verdict in VERDICTS), missing])
    return ReportTable("", ["paper", *(one.value for one in VERDICTS), NOT_RUN], rows)


def _linked_sums(done: Done, verdicts: Verdicts) -> ReportTable:
    names = {part.source: document_name(part) for part, _ in done}
    sums = _sums(done, verdicts)
    rows = [[f"{row[0]} ([{names[row[0]]}]({names[row[0]]}))", *row[1:]] for row in sums.rows]
    return ReportTable("", sums.head, rows)


def _places(done: Done, verdicts: Verdicts) -> ReportTable:
    """Return the sections of the papers by experiment and verdict, with a link per experiment."""
    rows = []
    for part, _ in done:
        given = verdicts[part.name]
        if not given:
            continue
        link = f"[{part.title}]({document_name(part)}#{_anchor(part.title)})"
        cells = []
        for verdict in VERDICTS:
            counts = Counter(one.place for one in given if one.verdict is verdict)
            cells.append(", ".join(_times(place, count) for place, count in counts.items()))
        rows.append([link, *cells])
    return ReportTable("", ["sections of the paper", *(one.value for one in VERDICTS)], rows)


def _times(place: str, count: int) -> str:
    return place if count == 1 else f"{place} ({count}x)"


def _anchor(title: str) -> str:
    """Return a heading's anchor on GitHub."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _claim_row(claim: Claim) -> list[str]:
    verdict = f"*{claim.verdict.value}*" + (f": {claim.why}" if claim.why else "")
    return [claim.place, claim.text, claim.paper, claim.ours, verdict]


def _markdown_table(table: ReportTable) -> str:
    lines = [_line(table.head), "|" + "---|" * len(table.head), *map(_line, table.rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# The page: a single file that needs no network.

STYLE = """
:root { color-scheme: light dark; --ink: #1a1d21; --lo: #5b6470; --line: #d9dee5; --paper: #fff;
  --good: #17794b; --mid: #8a5a00; --bad: #b3261e }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --lo: #9aa4b1; --line: #343a43;
  --paper: #14171b; --good: #5bd49a; --mid: #f0b64a; --bad: #ff8a80 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1, h2, h3 { line-height: 1.2 } h2 { margin-top: 3rem; border-top: 1px solid var(--line);
  padding-top: 1.5rem } .lo { color: var(--lo) }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums;
  margin: 1rem 0 } th, td { text-align: left; padding: .3rem .7rem; vertical-align: top;
  border-bottom: 1px solid var(--line) } th { font-weight: 600 }
.reproduced { color: var(--good) } .in-direction, .more-than-claimed { color: var(--mid) }
.not-reproduced { color: var(--bad) } .chart { height: 22rem }
"""
SCRIPT = """
const style = getComputedStyle(document.documentElement)
const ink = style.getPropertyValue('--ink'), line = style.getPropertyValue('--line')
for (const [id, chart] of Object.entries(CHARTS)) Plotly.newPlot(id, chart.traces, {
  margin: {t: 10, r: 10}, paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
  font: {color: ink}, xaxis: {title: {text: chart.x}, gridcolor: line},
  yaxis: {title: {text: chart.y}, gridcolor: line}, legend: {orientation: 'h', y: -0.25}
}, {responsive: true, displaylogo: false})
"""


def page(done: Done, made: str) -> str:
    """Return the report as one HTML file with its charts."""
    charts: dict[str, Any] = {}
    body = ["<h1>Which claims of the papers hold</h1>", f'<p class="lo">{html.escape(made)}</p>']
    verdicts = {part.name: _verdicts(part, findings, {}) for part, findings in done}
    if any(verdicts.values()):
        body += [f"<p>{_inline(_sums_text(verdicts))}</p>", _table(_sums(done, verdicts))]
    for part, findings in done:
        body.append(f"<h2>{html.escape(part.title)}</h2>")
        body += [f'<p class="lo">{html.escape(part.source)}.</p>'] if part.source else []
        if findings is None:
            body.append(f"<p>{_inline(_not_run(part).replace('*', ''))}</p>")
            continue
        body.append(f"<p>{_inline(part.ran)}</p>")
        if findings.claims:
            body.append(_claims(findings.claims))
        body += [f"<p>{_inline(note)}</p>" for note in findings.notes]
        for chart in findings.charts:
            name = f"chart-{len(charts)}"
            charts[name] = {"x": chart.x, "y": chart.y, "traces": chart.traces}
            body += [
                f"<h3>{html.escape(chart.title)}</h3>",
                f'<div class="chart" id="{name}"></div>',
            ]
        for table in map(_with_units_on_top, findings.tables):
            body += [f"<h3>{_inline(table.title)}</h3>", _table(table)]
    data = json.dumps(charts).replace("<", "\\u003c")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Reproduced</title>'
        f"<style>{STYLE}</style><body>{''.join(body)}"
        f"<script>{PLOTLY.read_text(encoding='utf-8')}</script>"
        f"<script>const CHARTS = {data}\n{SCRIPT}</script></body></html>\n"
    )


def _inline(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def _claims(claims: Sequence[Claim]) -> str:
    rows = []
    for claim in claims:
        section, text, paper, ours, _ = (_inline(cell) for cell in _claim_row(claim))
        name = claim.verdict.value.replace(" ", "-")
        why = f": {html.escape(claim.why)}" if claim.why else ""
        verdict = f'<b class="{name}">{claim.verdict.value}</b>{why}'
        cells = "".join(f"<td>{cell}</td>" for cell in (section, text, paper, ours, verdict))
        rows.append(f"<tr>{cells}</tr>")
    head = "".join(f"<th>{name}</th>" for name in CLAIM_HEAD)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _table(table: ReportTable) -> str:
    head = "".join(f"<th>{_inline(cell)}</th>" for cell in table.head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div>'
