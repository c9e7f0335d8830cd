"""`evenshare round verify`: download the portal's commitments, and recompute them locally.

Imported only by `verify`, with evenshare-core.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from evenshare.errors import UnreachableError, UsageError
from evenshare_core.chain.records import RecordError, RoundRecord, read_record
from evenshare_core.cli.bounded import in_child
from evenshare_core.cli.verify_folder import version_here
from evenshare_core.disclosure.bundle import BundleError, read_bundle
from evenshare_core.disclosure.pseudonyms import day_of, job_name
from evenshare_core.domain.instants import to_us
from evenshare_core.verification.excerpts import is_excerpt
from evenshare_core.verification.heads import HeadFinding
from evenshare_core.verification.history import EvidenceError, RoundHistory
from evenshare_core.verification.names import own_job_names
from evenshare_core.verification.rounds import RoundFinding
from evenshare_core.verification.texts import Tally, gap_lines, head_lines, round_line, summary
from evenshare_core.verification.verdict import EXIT_CODES, ProofVerdict, open_gaps

from .api import NO_PORTAL, Transport
from .instants import read_instant
from .terminal import Terminal, inert
from .verify_files import (
    CHAIN,
    RECORDS,
    RECORDS_AT_ONCE,
    Files,
    answers,
    fetch_bundle,
    fetch_inclusion,
    fetch_jobs,
    fetch_names,
    fetch_records,
    saved,
    to_save,
)
from .verify_log import checked_head, fetch_log, keep_head, pin_of, plain_gaps, plain_head
from .verify_report import report

Wanted = Callable[[RoundRecord], bool]


def verify(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    """Return exit code 0 if all is proven, 3 if something is wrong, 5 if something is unproven."""
    if sum(value is not None for value in (options.round, options.last, options.since)) > 1:
        raise UsageError("give only one of a round number, --last and --since")
    since_us = None if options.since is None else to_us(read_instant("--since", options.since))
    if options.from_dir is not None:
        if options.save_dir is not None:
            raise UsageError("give --from-dir or --save-dir, not both")
        return _verify(options, client, screen, saved(options.from_dir), since_us)
    if options.pool is None:
        raise UsageError("give --pool, or --from-dir with files of an earlier run")
    with to_save(options.save_dir) as files:
        try:
            with answers():
                _download(options, client, screen, files, since_us)
        except EvidenceError as problem:
            raise UnreachableError(f"{NO_PORTAL}: {problem}") from None
        return _verify(options, client, screen, files, since_us)


def download_rounds(
    client: Transport, screen: Terminal, files: Files, pool: str, span: tuple[int, int]
) -> list[RoundRecord]:
    """Download records, bundles and names of the rounds in the span.

    Rounds after the downloaded head are left out, because nothing proves them yet.
    """
    size = json.loads(files.read(CHAIN) or b"{}").get("size", 0)
    rows = [row for row in fetch_records(client, pool, *span) if row["index"] < size]
    files.write_json(RECORDS, rows)
    records = [_record(row) for row in rows]
    for count, record in enumerate(records, start=1):
        screen.progress(f"downloading round {count} of {len(records)}")
        if not record.damage:
            fetch_bundle(client, files, pool, record.round, record.bundle)
    tenants: dict[str, None] = {}
    for day in dict.fromkeys(day_of(record.at_us) for record in records):
        answer = fetch_names(client, files, pool, day)
        tenants.update(dict.fromkeys(str(row["tenant"]) for row in answer["tenants"]))
    if tenants:
        screen.progress("looking up own jobs")
        fetch_jobs(client, files, pool, list(tenants), _search(files, records))
    screen.progress("")
    return records


def _download(
    options: argparse.Namespace,
    client: Transport,
    screen: Terminal,
    files: Files,
    since_us: int | None,
) -> None:
    pool = options.pool
    log = fetch_log(client, files, pool)
    if log is None:
        raise UnreachableError(f"no round of {pool} is in its log yet; the first takes seconds")
    newest, size = log
    last = newest if options.round is None else options.round
    if last > newest:
        raise UnreachableError(f"round {last} of {pool} is not in its log; the newest is {newest}")
    # The next round shows why parts of a round were not executed.
    last = min(last + 1, newest)
    first = _first(options, client, newest, since_us)
    records = download_rounds(client, screen, files, pool, (max(1, first - 1), last))
    if options.round is None:
        _guard_span(files, records, first, newest, since_us)
    if records:
        fetch_inclusion(client, files, pool, records[-1].round, size)


def _guard_span(
    files: Files, records: list[RoundRecord], first: int, newest: int, since_us: int | None
) -> None:
    """Refuse a response without the first or the last round.

    The positions in the records are verified, so no round in between can be missing.
    """
    rows = json.loads(files.read(RECORDS) or b"[]")
    size = json.loads(files.read(CHAIN) or b"{}")["size"]
    # If the portal returns an older record as the newest, the size in the head reveals it.
    is_short = not records or records[-1].round != newest
    if is_short and not (records and rows[-1]["index"] == size - 1):
        raise UnreachableError(f"the portal has a head of {size} rounds, but withholds the last")
    oldest = records[0]
    if oldest.previous and (
        oldest.round > max(1, first - 1) or (since_us is not None and oldest.at_us >= since_us)
    ):
        raise UnreachableError(f"the portal withholds the rounds before {oldest.round}")


def _first(
    options: argparse.Namespace, client: Transport, newest: int, since_us: int | None
) -> int:
    """Return the first requested round."""
    if options.round is not None:
        return int(options.round)
    if since_us is None:
        return newest + 1 - (options.last or 1)
    last = newest
    while last >= 1:
        first = max(1, last + 1 - RECORDS_AT_ONCE)
        records = [_record(row) for row in fetch_records(client, options.pool, first, last)]
        before = [record.round for record in records if record.at_us < since_us]
        if before or not records:
            return max(before, default=last) + 1
        last = first - 1
    return 1


def _search(files: Files, records: list[RoundRecord]) -> Callable[[str, str], int]:
    """Return a function that marks a job of the reader as found, and counts those still missing."""
    history = RoundHistory(files.read)
    days: dict[str, set[str]] = {}
    for record in records:
        day = day_of(record.at_us)
        data = history.bundle(record.round)
        if data is None or is_excerpt(data):
            continue
        try:
            names = own_job_names(read_bundle(data), history.own(day))
        except BundleError:
            continue
        days.setdefault(day, set()).update(names)
    # Read before the jobs are fetched; the history caches a day and does not read it again.
    keys = {day: history.keys(day) for day in days}

    def missing(tenant: str, uid: str) -> int:
        for day, names in days.items():
            if tenant in keys[day]:
                names.discard(job_name(keys[day][tenant], uid.replace("-", "")))
        return sum(map(len, days.values()))

    return missing


def _verify(
    options: argparse.Namespace,
    client: Transport,
    screen: Terminal,
    files: Files,
    since_us: int | None,
) -> int:
    try:
        history = RoundHistory(files.read)
        pool = options.pool or history.log.rpartition("/")[2]
        path, known = pin_of(client, pool)
        from_files = options.from_dir is not None
        head = checked_head(history, pool, known, options.vkey, from_files=from_files)
        wanted = _wanted(options, history, since_us)
        findings = _findings(options, screen, history, wanted)
    except EvidenceError as problem:
        screen.note(f"evenshare: {inert(problem)}")
        return 3
    if not findings:
        screen.note("evenshare: no record of these rounds, so nothing was verified")
        return EXIT_CODES[ProofVerdict.NOT_PROVEN]
    tally = Tally(options.accept)
    tally.add_head(head)
    for finding in findings:
        tally.add(finding)
    keep_head(path, head, known, from_files=from_files)
    if screen.writes_json:
        screen.json(_plain(head, findings, tally))
    else:
        for text in head_lines(head):
            screen.line(inert(text))
        for text in gap_lines(tally):
            screen.line(inert(text))
        screen.line(inert(summary(tally)))
    if not from_files and not options.no_report and head.size:
        days = {day_of(finding.at_us) for finding in findings}
        tenants = sorted({tenant for day in days for tenant in history.keys(day)})
        report(client, screen, pool, tenants, _said(head, findings, tally.accepted))
    return EXIT_CODES[tally.verdict]


def _said(
    head: HeadFinding, findings: list[RoundFinding], accepted: Collection[str]
) -> dict[str, Any]:
    """Return the report to the portal; docs/verify.md lists its fields."""
    numbers = [finding.round for finding in findings]
    unproven = [*head.unproven, *(row for finding in findings for row in finding.unproven)]
    return {
        "kind": "rounds",
        "size": head.size,
        "root": head.root.hex(),
        "first": min(numbers),
        "last": max(numbers),
        "checked": len(numbers),
        "findings": len(head.problems) + sum(len(finding.problems) for finding in findings),
        "unproven": len(open_gaps(unproven, accepted)),
    }


def _wanted(options: argparse.Namespace, history: RoundHistory, since_us: int | None) -> Wanted:
    numbers = history.numbers()
    if options.round is not None:
        if options.round not in numbers:
            spans = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
            raise EvidenceError(f"round {options.round} is not among the records; they are {spans}")
        return lambda record: record.round == options.round
    if options.last is not None:
        kept = set(numbers[-options.last :])
        return lambda record: record.round in kept
    return lambda record: since_us is None or record.at_us >= since_us


def _findings(
    options: argparse.Namespace, screen: Terminal, history: RoundHistory, wanted: Wanted
) -> list[RoundFinding]:
    """Verify round by round, and print a line for each."""
    findings: list[RoundFinding] = []
    total = len(history.numbers())
    screen.progress(f"verifying round 1 of {total}")
    bounded = partial(in_child, limit_s=options.limit)
    for finding in history.rounds(version_here, wanted, bounded):
        findings.append(finding)
        if not screen.writes_json:
            screen.line(inert(round_line(finding)))
        # Frees the memory of bundles: there may be hundreds of rounds.
        finding.disclosed = None
        screen.progress(f"verifying round {len(findings) + 1} of {total}")
    screen.progress("")
    return findings


def _plain(head: HeadFinding, findings: list[RoundFinding], tally: Tally) -> dict[str, Any]:
    return {
        "ok": tally.verdict is ProofVerdict.PROVEN,
        "verdict": tally.verdict.value,
        "accepted": sorted(tally.accepted),
        "head": plain_head(head),
        "not_recomputed": {"decision": tally.not_decided, "certificate": tally.not_certified},
        "without_own": tally.without_own,
        "rounds": [_plain_round(finding, tally) for finding in findings],
    }


def _plain_round(finding: RoundFinding, tally: Tally) -> dict[str, Any]:
    figures, verdict = finding.figures, finding.verdict(tally.accepted)
    return {
        "round": finding.round,
        "at_us": finding.at_us,
        "ok": verdict is ProofVerdict.PROVEN,
        "verdict": verdict.value,
        "recomputed": [check.value for check in dict.fromkeys(finding.recomputed)],
        "problems": [row._asdict() for row in finding.problems],
        "unproven": plain_gaps(finding.unproven),
        "remarks": finding.remarks,
        "figures": None
        if figures is None
        else {
            **figures._asdict(),
            "claims": [claim._asdict() for claim in figures.claims],
            "prices": dict(figures.prices),
        },
    }


def _record(row: dict[str, Any]) -> RoundRecord:
    try:
        return read_record(str(row["record"]).encode())
    except (KeyError, RecordError) as problem:
        raise UnreachableError(f"the portal returned an invalid record: {problem}") from None
