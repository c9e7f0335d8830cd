"""The rounds of a statement: a signed head proves the records, and hashes prove the bundles.

Imported only by `verify_statement`, with evenshare-core.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from evenshare_core.disclosure.bundle import Disclosed
from evenshare_core.disclosure.pseudonyms import day_of
from evenshare_core.verification.excerpts import is_excerpt
from evenshare_core.verification.heads import HeadFinding, Pin
from evenshare_core.verification.history import EvidenceError, RoundHistory
from evenshare_core.verification.rounds import RoundFinding
from evenshare_core.verification.statement_report import Finding
from evenshare_core.verification.verdict import Gap, Unproven

from .verify_files import Files
from .verify_log import checked_head, keep_head

OWN_ROWS = "rounds that were not compared: the portal returned only own rows"
BEFORE_LOG = "a round from before the pool's log began: nothing commits to it"
AFTER_HEAD = "a round that is not in the pool's log yet"


class StatementRounds:
    """The rounds in a folder: the head proves the records, whose hashes prove the bundles.

    `head` is None if no log was read. Decisions are not recomputed; `evenshare round verify` does
    that.
    """

    def __init__(
        self, files: Files, pool: str, pin: Pin | None, options: argparse.Namespace
    ) -> None:
        self.files, self.pool, self.pin = files, pool, pin
        self.given: Collection[str] = tuple(options.vkey)
        self.from_files = options.from_dir is not None
        self.disclosed: dict[int, Disclosed] = {}
        self.keys: dict[str, bytes] = {}
        self.tenants: set[str] = set()
        self.instants: set[int] = set()
        self.findings: list[Finding] = []
        self.left: Counter[str] = Counter()
        self.unproven: list[Unproven] = []
        self.head: HeadFinding | None = None

    def read(self, tenants: Collection[str], named: Collection[int]) -> None:
        """Read and check the files of the rounds `named` by rows, with the keys of `tenants`."""
        if not named:
            return
        try:
            history = RoundHistory(self.files.read)
            self.head = checked_head(
                history, self.pool, self.pin, tuple(self.given), from_files=self.from_files
            )
            self._rounds(history, frozenset(named))
            self._keys(history, tenants)
        except EvidenceError as problem:
            self.findings.append(Finding("answer", "the rounds", str(problem), ""))
            self.disclosed.clear()
        if self.head is not None:
            where = f"head of {self.head.log}"
            self.unproven += self.head.unproven
            self.findings[:0] = [
                Finding(row.check.value, where, row.text, "") for row in self.head.problems
            ]

    def keep(self, path: Path) -> None:
        """Pin the head if it has no faults."""
        if self.head is not None:
            keep_head(path, self.head, self.pin, from_files=self.from_files)

    def _rounds(self, history: RoundHistory, named: frozenset[int]) -> None:
        numbers = {entry.record.round for entry in history.entries}
        for finding in history.records():
            self.instants.add(finding.at_us)
            self._round(history, finding)
        missing = sorted(named - numbers)
        if not history.entries:
            text = "the portal returned no record of it"
            self.findings += [Finding("record", f"round {number}", text, "") for number in missing]
            return
        first, last = history.entries[0], history.entries[-1]
        for number in missing:
            if number > last.record.round and last.index == history.chain.size - 1:
                self.left[AFTER_HEAD] += 1
            elif number < first.record.round and not first.record.previous:
                self.left[BEFORE_LOG] += 1
            else:
                text = (
                    f"the portal holds back its record: those of rounds {first.record.round} to"
                    f" {last.record.round} were answered, of a head of {history.chain.size} entries"
                )
                self.findings.append(Finding("record", f"round {number}", text, ""))

    def _round(self, history: RoundHistory, finding: RoundFinding) -> None:
        where = f"round {finding.round}"
        self.findings += [Finding(row.check.value, where, row.text, "") for row in finding.problems]
        if finding.disclosed is not None and finding.ok:
            self.disclosed[finding.round] = finding.disclosed
        data = history.bundle(finding.round)
        if data is not None and is_excerpt(data):
            self.unproven.append(Unproven(Gap.OWN_ROWS, OWN_ROWS))
        else:
            self.unproven += finding.unproven

    def _keys(self, history: RoundHistory, tenants: Collection[str]) -> None:
        """Add the keys of the statement's tenant, by day."""
        for day in sorted({day_of(at_us) for at_us in self.instants}):
            for tenant, key in history.keys(day).items():
                if tenant in tenants:
                    self.keys[day] = key
                    self.tenants.add(tenant)
