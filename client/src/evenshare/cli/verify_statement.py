"""`evenshare statement verify`: download charges and incomes with their factors, recompute them.

Imported by `statement` alone, where evenshare-core is there.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable
from typing import Any

from evenshare_core.chain.checkpoints import NoteError, note_checkpoint
from evenshare_core.chain.records import RecordError, RoundRecord, read_record
from evenshare_core.disclosure.bundle import BundleError, Disclosed, read_bundle
from evenshare_core.disclosure.pseudonyms import day_of
from evenshare_core.verification.excerpts import is_excerpt
from evenshare_core.verification.statement import Finding, StatementReport
from evenshare_core.verification.statement_rounds import verify_with_rounds
from evenshare_core.verification.statement_rows import StatementError, read_statement

from . import verify_report
from .api import Client
from .config import UsageError
from .instants import read_instant
from .statement_files import (
    ASKED,
    fetch_rounds,
    fetch_statement,
    only_pool,
    read_json,
    read_lists,
    rounds_of,
)
from .terminal import Terminal, inert
from .verify_files import (
    CHAIN,
    RECORDS,
    Files,
    answers,
    bundle_file,
    names_file,
    saved,
    to_save,
)

NO_ROUNDS = "no-rounds.json"


def verify(options: argparse.Namespace, client: Client, screen: Terminal) -> int:
    """Exit code 0: everything that was recomputed is as stated; 3: something is not."""
    if options.from_dir is not None:
        if options.save_dir is not None:
            raise UsageError("give --from-dir or --save-dir, not both")
        return _verify(options, screen, saved(options.from_dir))
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
            why = "the rounds were not asked for (--without-rounds)"
            if not options.without_rounds:
                why = fetch_rounds(client, screen, files, asked["pool"], rounds_of(rows))
        files.write_json(NO_ROUNDS, why)
        return _verify(options, screen, files, client)


def _verify(
    options: argparse.Namespace, screen: Terminal, files: Files, client: Client | None = None
) -> int:
    """Verify a folder; `client`: of the portal that has just answered it."""
    asked = read_json(files, ASKED)
    report, rounds = StatementReport(), _Rounds(files)
    try:
        with answers():
            lists = read_lists(files)
            tenants = {str(row["tenant"]) for name in ("usage", "income") for row in lists[name]}
            asked["tenant"] = ", ".join(sorted(tenants)) or asked.get("tenant", "")
            statement = read_statement(lists)
            rounds.read(tenants)
            screen.progress("recomputing")
            report = verify_with_rounds(statement, rounds.disclosed, rounds.keys, rounds.instants)
            screen.progress("")
    except StatementError as problem:
        report.findings.append(
            Finding("answer", problem.field, problem.reason, "a row as documented")
        )
    report.findings[:0] = rounds.findings
    why = files.read(NO_ROUNDS)
    if why is not None and why != b'""':
        report.remarks[f"rounds were not compared: {read_json(files, NO_ROUNDS)}"] += 1
    for remark in rounds.remarks:
        report.remarks[remark] += 1
    if options.output == "json":
        screen.json(_plain(asked, report))
    else:
        _print(screen, asked, report)
    said = _said(files, asked, report)
    if client is not None and not options.no_report and said is not None:
        verify_report.report(client, screen, asked["pool"], sorted(rounds.tenants), said)
    return 3 if report.findings else 0


def _said(files: Files, asked: dict[str, Any], report: StatementReport) -> dict[str, Any] | None:
    """What the portal is told; docs/verify.md lists it. None where it showed no head."""
    try:
        head = note_checkpoint(str(read_json(files, CHAIN)["checkpoint"]))
    except (UsageError, NoteError, LookupError, TypeError):
        return None
    if not head.size:
        return None
    return {
        "kind": "statement",
        "size": head.size,
        "root": head.root.hex(),
        "since": asked["since"],
        "until": asked["until"],
        "checked": sum(report.recomputed.values()),
        "findings": len(report.findings),
    }


class _Rounds:
    """The rounds of a folder, each checked against the hash that its record committed to."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.disclosed: dict[int, Disclosed] = {}
        self.keys: dict[str, bytes] = {}
        self.tenants: set[str] = set()
        self.instants: set[int] = set()
        self.findings: list[Finding] = []
        self.remarks: list[str] = []

    def read(self, tenants: Iterable[str]) -> None:
        """Read what there is; `tenants`: whose keys count."""
        if self.files.read(RECORDS) is None:
            return
        for row in read_json(self.files, RECORDS):
            try:
                record = read_record(str(row["record"]).encode())
            except RecordError as problem:
                self.findings.append(Finding("record", f"entry {row['index']}", str(problem), ""))
                continue
            self.instants.add(record.at_us)
            self._bundle(record)
        for day in sorted({day_of(at_us) for at_us in self.instants}):
            data = self.files.read(names_file(day))
            if data is not None:
                for row in read_json(self.files, names_file(day))["tenants"]:
                    if row["tenant"] in tenants:
                        self.keys[day] = bytes.fromhex(row["key"])
                        self.tenants.add(str(row["tenant"]))

    def _bundle(self, record: RoundRecord) -> None:
        data = self.files.read(bundle_file(record.round))
        if data is None:
            return
        if is_excerpt(data):
            self.remarks.append("rounds that are not compared: their pool discloses own rows alone")
            return
        where = f"round {record.round}"
        digest = hashlib.sha256(data).hexdigest()
        if digest != record.bundle:
            self.findings.append(Finding("bundle", where, digest, record.bundle))
            return
        try:
            self.disclosed[record.round] = read_bundle(data)
        except BundleError as problem:
            self.remarks.append(f"rounds that are not compared: {problem}")


def _print(screen: Terminal, asked: dict[str, Any], report: StatementReport) -> None:
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
    for finding in report.findings:
        screen.line(
            f"WRONG: {inert(finding.what)}: {inert(finding.where)}:"
            f" stated {inert(finding.stated)}, recomputed {inert(finding.recomputed)}"
        )
    count = sum(report.recomputed.values())
    if report.findings:
        screen.line(f"{len(report.findings)} wrong, of {count} recomputed")
    elif count:
        screen.line(f"all {count} as stated")
    else:
        screen.line("nothing was used or earned in this time")


def _plain(asked: dict[str, Any], report: StatementReport) -> dict[str, Any]:
    return {
        "ok": not report.findings,
        **{key: asked[key] for key in ("tenant", "pool", "since", "until")},
        "recomputed": dict(sorted(report.recomputed.items())),
        "not_recomputed": dict(sorted(report.not_recomputed.items())),
        "remarks": dict(sorted(report.remarks.items())),
        "findings": [finding._asdict() for finding in report.findings],
    }


def _instant(option: str, text: str) -> str:
    """An instant of pool time as the API reads it."""
    return read_instant(option, text).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
