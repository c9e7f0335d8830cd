"""Check that the ledger's transfers of an hour are exactly its charges and incomes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from evenshare_core.money.rows import Amount, EntryRow
from evenshare_core.units import HOUR_US
from evenshare_core.verification.statement_late_starts import CODE as LATE_START
from evenshare_core.verification.statement_report import (
    StatementReport,
    income_name,
    text_of,
    usage_name,
)
from evenshare_core.verification.statement_rows import TenantStatement


def verify_settlements(statement: TenantStatement, report: StatementReport) -> None:
    """Compare each entry with the sum of the rows that it settles."""
    paid: Counter[int] = Counter()
    earned: Counter[str] = Counter()
    borne: Counter[str] = Counter()
    for usage in statement.usage:
        paid[usage.hour] += usage.amount
    for income in statement.income:
        if income.transfer:
            earned[income.transfer] += income.earned
            borne[income.transfer] += income.earned_borne or 0
        elif income.earned:
            report.left("the settlement of an income: its hour is still open")
    settled = _Settled(report)
    for entry in statement.entries:
        if entry.code == LATE_START:
            continue
        if entry.code != "usage" or entry.hour is None:
            report.left(f"a transfer that is no settlement: {entry.code}")
            continue
        where = f"hour {text_of(entry.hour)}, transfer {entry.transfer}"
        settled.add(entry, entry.hour, where)
        report.compare("settlement of incomes", where, entry.earned, Amount(earned[entry.transfer]))
        if entry.earned_borne is not None:
            again = Amount(borne[entry.transfer])
            report.compare("settlement of the operator's part", where, entry.earned_borne, again)
        if entry.paid:
            again = Amount(paid[entry.hour])
            report.compare("settlement of charges", where, entry.paid, again)
    _missing(statement, settled.charged, settled.seen, report)


@dataclass(slots=True)
class _Settled:
    """The transfers and hours found so far: one transfer settles an hour when it closes."""

    report: StatementReport
    charged: dict[int, str] = field(default_factory=dict)  # hour: its transfer
    seen: dict[str, int] = field(default_factory=dict)  # transfer: its hour

    def add(self, entry: EntryRow, hour: int, where: str) -> None:
        if entry.transfer in self.seen:
            self.report.find("settlement", where, "listed twice", "once")
        elif entry.paid and hour in self.charged:
            text = "a second transfer of its hour"
            self.report.find("settlement of charges", where, text, "one")
        if entry.effective_at != hour + HOUR_US:
            stated = f"effective {text_of(entry.effective_at)}"
            self.report.find("settlement", where, stated, text_of(hour + HOUR_US))
        self.seen[entry.transfer] = hour
        if entry.paid:
            self.charged[hour] = entry.transfer


def _missing(
    statement: TenantStatement,
    charged: Mapping[int, str],
    seen: Mapping[str, int],
    report: StatementReport,
) -> None:
    """Record rows whose transfer has no entries, or is of another hour."""
    for usage in statement.usage:
        if not usage.amount:
            continue
        again = charged.get(usage.hour, "")
        # An hour may be settled between the request for its usage and the request for its entries.
        if usage.transfer and usage.transfer != again:
            text = f"transfer {again}" if again else "no such entry"
            report.find(
                "settlement of charges", usage_name(usage), f"transfer {usage.transfer}", text
            )
        elif not again:
            report.left("the settlement of a charge: its hour is still open")
    for income in statement.income:
        if not income.transfer:
            continue
        hour = seen.get(income.transfer)
        if income.earned and hour is None:
            text = f"transfer {income.transfer}"
            report.find("settlement of incomes", income_name(income), text, "no such entry")
        elif hour not in (None, income.hour):
            stated = f"hour {text_of(income.hour)}"
            report.find("settlement of incomes", income_name(income), stated, text_of(hour or 0))
