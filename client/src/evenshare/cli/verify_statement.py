"""`evenshare statement verify`: download charges and incomes, and recompute them from factors.

Imported only by `statement`, with evenshare-core.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from evenshare.errors import ApiError, UsageError
from evenshare_core.cli.bounded import in_child
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.plurals import plural
from evenshare_core.verification.heads import HeadFinding
from evenshare_core.verification.statement_report import Finding, StatementReport
from evenshare_core.verification.statement_rounds import verify_with_rounds
from evenshare_core.verification.statement_rows import StatementError, read_statement
from evenshare_core.verification.texts import gap_line
from evenshare_core.verification.verdict import (
    EXIT_CODES,
    OVER_LIMIT,
    Gap,
    ProofVerdict,
    open_gaps,
)

from .api import Transport
from .instants import read_instant
from .statement_files import (
    ASKED,
    fetch_rounds,
    fetch_statement,
    late_starts_of,
    only_pool,
    read_json,
    read_lists,
    rounds_of,
)
from .terminal import Terminal, inert
from .verify_files import Files, answers, saved, to_save
from .verify_log import fetch_log, pin_of, plain_gaps, plain_head
from .verify_report import report as report_verification
from .verify_statement_rounds import StatementRounds

NO_ROUNDS = "no-rounds.json"
NOT_ASKED = "the rounds were not requested (--without-rounds)"
# Facts that cannot be proven without the rounds.
NEED_ROUNDS = frozenset({Gap.ROUNDS.value, Gap.NAMES.value})
# Waiting would not help: rounds are logged within seconds, and rows name rounds of hours that are
# over.
NO_LOG = "the portal has no log of the pool's rounds, or none in it yet; see --without-rounds"


def verify(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    """Return exit code 0 if all is proven, 3 if something is wrong, 5 if something is unproven."""
    if options.from_dir is not None:
        if options.save_dir is not None:
            raise UsageError("give --from-dir or --save-dir, not both")
        return _verify(options, client, screen, saved(options.from_dir))
    if options.since is None or options.until is None:
        raise UsageError("give --from and --to, or --from-dir with files of an earlier run")
    since, until = _instant("--from", options.since), _instant("--to", options.until)
    if since >= until:
        raise UsageError("--to is not after --from")
    asked = {"pool": options.pool or only_pool(client), "tenant": options.tenant or ""}
    asked |= {"since": since, "until": until}
    with to_save(options.save_dir) as files:
        with answers():
            rows = fetch_statement(client, screen, files, asked)
            named = rounds_of(rows)
            why = NOT_ASKED if options.without_rounds else ""
            if named and not why:
                why = _fetch_rounds(client, screen, files, asked["pool"], named)
        files.write_json(NO_ROUNDS, why)
        return _verify(options, client, screen, files)


def _fetch_rounds(
    client: Transport, screen: Terminal, files: Files, pool: str, named: set[int]
) -> str:
    """Download the statement's rounds. Return the reason if the pool has no log, else ""."""
    try:
        log = fetch_log(client, files, pool)
    except ApiError as refused:
        if refused.status != 404:
            raise
        return NO_LOG
    if log is None:
        return NO_LOG
    fetch_rounds(client, screen, files, named, pool=pool, log=log)
    return ""


def _verify(options: argparse.Namespace, client: Transport, screen: Terminal, files: Files) -> int:
    asked = read_json(files, ASKED)
    pool = str(asked["pool"])
    path, pin = pin_of(client, pool)
    none = StatementRounds(files, pool, pin, options)
    why = _why_none(files)
    screen.progress("recomputing")
    work = partial(_recomputed, files, none, is_compared=not why)
    tenants, report, rounds = in_child(work, options.limit) or _over_limit(none)
    screen.progress("")
    asked["tenant"] = ", ".join(sorted(tenants)) or asked.get("tenant", "")
    if why == NO_LOG:
        pinned = f"; pinned is a head of {pin.size} rounds" if pin else ""
        report.findings.append(Finding("record", "the rounds of rows", why + pinned, ""))
    elif why:
        report.remarks[f"rounds were not compared: {why}"] += 1
    report.findings[:0] = rounds.findings
    rounds.keep(path)
    for text, count in rounds.left.items():
        report.not_recomputed[text] += count
    report.unproven += rounds.unproven
    accepted = frozenset(options.accept) | (NEED_ROUNDS if why == NOT_ASKED else frozenset())
    if screen.writes_json:
        screen.json(_plain(asked, report, rounds, accepted))
    else:
        _print(screen, asked, report, rounds, accepted)
    head = rounds.head
    if options.from_dir is None and not options.no_report and head is not None and head.size:
        said = _said(head, asked, report, accepted)
        report_verification(client, screen, pool, sorted(rounds.tenants), said)
    return EXIT_CODES[report.verdict(accepted)]


class _Recomputed(NamedTuple):
    tenants: set[str]
    report: StatementReport
    rounds: StatementRounds


def _recomputed(files: Files, rounds: StatementRounds, *, is_compared: bool) -> _Recomputed:
    """Recompute the files. This may run in a child process, which sends the rounds back."""
    report = StatementReport()
    with answers():
        lists = read_lists(files)
        named = [row for name in ("usage", "income") for row in lists[name]]
        tenants = {str(row["tenant"]) for row in (*named, *late_starts_of(lists))}
        try:
            statement = read_statement(lists)
            if is_compared:
                rounds.read(tenants, rounds_of(lists))
            report = verify_with_rounds(
                statement, rounds.disclosed, rounds.keys, rounds.instants, _span_us(files)
            )
        except StatementError as problem:
            report.findings.append(
                Finding("answer", problem.field, problem.reason, "a row as documented")
            )
    rounds.disclosed.clear()  # dropped, because a child process would copy them to its parent
    return _Recomputed(tenants, report, rounds)


def _over_limit(none: StatementRounds) -> _Recomputed:
    """Return the result of a recomputation that was stopped before anything was compared."""
    report = StatementReport()
    report.left(OVER_LIMIT, Gap.LIMIT)
    return _Recomputed(set(), report, none)


def _said(
    head: HeadFinding, asked: dict[str, Any], report: StatementReport, accepted: frozenset[str]
) -> dict[str, Any]:
    """Return the report to the portal; docs/verify.md lists its fields."""
    return {
        "kind": "statement",
        "size": head.size,
        "root": head.root.hex(),
        "since": asked["since"],
        "until": asked["until"],
        "checked": sum(report.recomputed.values()),
        "findings": len(report.findings),
        "unproven": len(open_gaps(report.unproven, accepted)),
    }


def _why_none(files: Files) -> str:
    return "" if files.read(NO_ROUNDS) is None else str(read_json(files, NO_ROUNDS))


def _print(
    screen: Terminal,
    asked: dict[str, Any],
    report: StatementReport,
    rounds: StatementRounds,
    accepted: frozenset[str],
) -> None:
    screen.line(
        f"{inert(asked['tenant'] or 'you')} in pool {inert(asked['pool'])},"
        f" {inert(asked['since'])} to {inert(asked['until'])}"
    )
    for title, counts in (
        ("recomputed", report.recomputed),
        ("not recomputed", report.not_recomputed),
        ("remark", report.remarks),
    ):
        for what, count in sorted(counts.items()):
            screen.line(f"{title}: {count:>6}  {inert(what)}")
    if rounds.head is not None:
        for text in _head_lines(rounds.head):
            screen.line(inert(text))
    for finding in report.findings:
        screen.line(inert(_finding_line(finding)))
    for text in _gap_lines(report, accepted):
        screen.line(inert(text))
    count = sum(report.recomputed.values())
    # Amounts can be recomputed without the rounds, but only the head proves that they belong to
    # these rounds.
    less = "" if rounds.head is not None else "; nothing of it was held under a signed head"
    if report.findings:
        screen.line(f"{len(report.findings)} wrong, of {count} recomputed")
    elif report.verdict(accepted) is ProofVerdict.PROVEN:
        screen.line(f"all {count} as stated{less}")
    else:
        screen.line(f"{count} as stated{less}; some requested parts are not proven")


def _gap_lines(report: StatementReport, accepted: frozenset[str]) -> Iterator[str]:
    """Yield a sentence with a count for each kind of gap."""
    texts: dict[Gap, Counter[str]] = {}
    for row in report.unproven:
        texts.setdefault(row.gap, Counter())[row.text] += 1
    for gap, counts in texts.items():
        text, count = counts.most_common(1)[0]
        more = f", and {plural(len(counts) - 1, 'other reason')}" if len(counts) > 1 else ""
        yield gap_line(gap, f"{count} x: {text}{more}", accepted)


def _head_lines(head: HeadFinding) -> list[str]:
    """Return a summary of the head with its remarks; its faults are among the findings."""
    shown = f"head of {head.log}: {head.size} rounds, root {head.root.hex()}"
    return [*([shown] if head.root else []), *head.remarks]


def _finding_line(finding: Finding) -> str:
    text = f"WRONG: {finding.what}: {finding.where}: "
    if not finding.recomputed:
        return text + finding.stated
    return f"{text}stated {finding.stated}, recomputed {finding.recomputed}"


def _plain(
    asked: dict[str, Any],
    report: StatementReport,
    rounds: StatementRounds,
    accepted: frozenset[str],
) -> dict[str, Any]:
    verdict = report.verdict(accepted)
    return {
        "ok": verdict is ProofVerdict.PROVEN,
        "verdict": verdict.value,
        "accepted": sorted(accepted),
        "unproven": plain_gaps(report.unproven),
        "head": None if rounds.head is None else plain_head(rounds.head),
        **{key: asked[key] for key in ("tenant", "pool", "since", "until")},
        "recomputed": dict(sorted(report.recomputed.items())),
        "not_recomputed": dict(sorted(report.not_recomputed.items())),
        "remarks": dict(sorted(report.remarks.items())),
        "findings": [finding._asdict() for finding in report.findings],
    }


def _span_us(files: Files) -> tuple[int, int]:
    """Return the statement's time in microseconds."""
    asked = read_json(files, ASKED)
    since, until = (read_instant(f"--{key}", str(asked[key])) for key in ("since", "until"))
    return to_us(since), to_us(until)


def _instant(option: str, text: str) -> str:
    """Return a pool time in the format of the API."""
    return read_instant(option, text).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
