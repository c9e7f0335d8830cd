"""A tenant's charges and incomes computed again, from what the REST API answers.

| what | from | rule |
|---|---|---|
| charge | borrowed GPUs, price, time, remainder of the lease's terms before | `term_charge` |
| borne by the operator | what the whole time costs, less the charge | the same |
| own weight | intervals of idle quota: own / total, times length | `part_of` |
| income | charge, all weights | largest remainder |
| price | base, theta, use, surcharge; and the round of the term | `posted_price_micro` |
| settlement | charges and incomes of an hour | they sum to its entries |

All is in whole numbers and fractions, and compared to the last digit. What cannot be computed from
what was answered is counted by its reason, never left out. Source: docs/money.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from evenshare_core.domain.instants import from_us
from evenshare_core.money.fixed_point import charge_micro, largest_remainder, term_charge
from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.money.revenue import WEIGHT_LIMIT, IdleStep, integrals_of, part_of
from evenshare_core.verification.statement_rows import (
    BORROWED,
    Amount,
    IncomeAnswer,
    PriceAnswer,
    TenantStatement,
    UsageAnswer,
)
from evenshare_core.verification.verdict import Gap, ProofVerdict, Unproven, combined

HIDDEN = "the last micro-credit of an income was taken as stated: the pool hides other lenders"
EARLIER = (
    "the remainder that a term took over: the term before it is not among the rows;"
    " a statement that begins earlier may have it"
)
MISSING = "the remainder that a term took over: a term between rows of its lease is missing"
NO_ROWS = "no row of usage, income or entries was answered for this time"


class Finding(NamedTuple):
    """Something that is not as its factors say; `what` names the rule."""

    what: str
    where: str
    stated: str
    recomputed: str


@dataclass(slots=True)
class StatementReport:
    """What came of a statement: findings, and how much of what was and was not recomputed.

    `unproven`: what of it a tenant would have to be shown. What is not recomputed and no gap is
    outside of the question: hours that are open, terms that began before, other transfers.
    """

    findings: list[Finding] = field(default_factory=list)
    unproven: list[Unproven] = field(default_factory=list)
    recomputed: Counter[str] = field(default_factory=Counter)
    not_recomputed: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)

    def compare(self, what: str, where: str, stated: object, again: object) -> None:
        """Count one recomputation, and note where it gives something else."""
        self.recomputed[what] += 1
        if stated != again:
            self.findings.append(Finding(what, where, _shown(stated), _shown(again)))

    def left(self, why: str, gap: Gap | None = None) -> None:
        """Count what cannot be recomputed; `gap`: why it is not proven."""
        self.not_recomputed[why] += 1
        if gap is not None:
            self.unproven.append(Unproven(gap, why))

    def verdict(self, accepted: Collection[str] = ()) -> ProofVerdict:
        """Return the result; `accepted`: gaps that count for nothing."""
        count = sum(self.recomputed.values())
        return combined(count, len(self.findings), self.unproven, accepted)


def _shown(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # Python writes 4,300 digits; made-up rows may have longer fractions
        return "a number that is too long to be shown"


def verify_statement(statement: TenantStatement) -> StatementReport:
    """Return what came of recomputing each charge, income, price and settlement."""
    report = StatementReport()
    if not (statement.usage or statement.income or statement.entries):
        report.unproven.append(Unproven(Gap.ROWS, NO_ROWS))
    for usage in statement.usage:
        _charge(usage, report)
    _remainders(statement.usage, report)
    for income in statement.income:
        where = income_name(income)
        _due(income, where, report)
        _weight(income, where, statement.steps.get(income.gpu_type, ()), report)
        _share(income, where, report)
    for prices in statement.prices.values():
        for price in prices:
            _price(price, report)
    _posted(statement, report)
    _settled(statement, report)
    return report


def usage_name(row: UsageAnswer) -> str:
    """Return how a finding names a row of usage."""
    return f"usage of job {row.job}, lease {row.lease}, term {row.term}"


def income_name(row: IncomeAnswer) -> str:
    """Return how a finding names a row of income."""
    times = f"{text_of(row.starts_at)} to {text_of(row.ends_at)}"
    settled = f"transfer {row.transfer}" if row.transfer else "not settled"
    return f"income of {row.gpus} {row.gpu_type} borrowed {times}, round {row.round}, {settled}"


def text_of(instant_us: int) -> str:
    """Return an instant as people read it."""
    return from_us(instant_us).isoformat().replace("+00:00", "Z")


# ---- charges ----


def _due_of(gpus: int, price: int, held_us: int, carried: int | None) -> tuple[Amount, int]:
    """The charge of a term, and the remainder that it leaves to the next."""
    if carried is None:
        return Amount(charge_micro(gpus, price, held_us)), 0
    amount, rest = term_charge(gpus, price, held_us, carried)
    return Amount(amount), rest


def _charge(row: UsageAnswer, report: StatementReport) -> None:
    where = usage_name(row)
    if row.meter != BORROWED:
        report.compare("own GPUs are free", where, (row.price, row.amount), (0, 0))
        return
    if row.charged_us > row.ends_at - row.starts_at:
        report.compare("charged time", where, text_of(row.starts_at + row.charged_us), "its end")
    again = _again(row.gpus, row.price, row.charged_us, row.carried)
    report.compare("charge", where, row.amount, again)
    if row.charged_until is not None:
        full = _again(row.gpus, row.price, row.ends_at - row.starts_at, row.carried)
        report.compare("late rounds", where, Amount(row.amount + row.borne), full)


def _due(row: IncomeAnswer, where: str, report: StatementReport) -> None:
    again = _again(row.gpus, row.price, row.ends_at - row.starts_at, row.carried)
    report.compare("charge of a borrower", where, row.charge, again)


def _again(gpus: int, price: int, held_us: int, carried: int | None) -> Amount | str:
    try:
        return _due_of(gpus, price, held_us, carried)[0]
    except ValueError as error:
        return f"nothing: {error}"


def _remainders(rows: Iterable[UsageAnswer], report: StatementReport) -> None:
    """Each term of a lease takes over what the one before left; the first one nothing."""
    leases: dict[tuple[str, int], dict[int, dict[str, UsageAnswer]]] = defaultdict(dict)
    for row in rows:
        leases[row.job, row.lease].setdefault(row.term, {})[row.meter] = row
    for terms in leases.values():
        before: tuple[int, int] | None = (0, 0)  # term, remainder that it left; None: not known
        first = min(terms)
        for term in sorted(terms):
            if before is not None and before[0] != term - 1:
                before = None
            is_missing = term > first and term - 1 not in terms
            if is_missing:
                report.left(MISSING, Gap.ROWS)
            borrowed = terms[term].get(BORROWED)
            if borrowed is None:
                # Own GPUs alone: what was left over stays.
                before = (term, before[1]) if before else None
                continue
            where = usage_name(borrowed)
            if borrowed.carried is not None and before is None:
                if not is_missing:
                    report.left(EARLIER)
            elif borrowed.carried is not None and before is not None:
                report.compare("carried remainder", where, borrowed.carried, before[1])
            before = (term, _rest(borrowed))


def _rest(row: UsageAnswer) -> int:
    try:
        return _due_of(row.gpus, row.price, row.charged_us, row.carried)[1]
    except ValueError:
        return 0  # the charge itself was found


# ---- incomes ----


def _weight(
    row: IncomeAnswer, where: str, steps: Sequence[IdleStep], report: StatementReport
) -> None:
    """The own weight out of all is what the intervals of idle quota make."""
    if row.counts_from is None or row.counts_until is None:
        report.left("a weight: no event closes the term", Gap.ROWS)
        return
    span_us = (row.counts_from, row.counts_until)
    if span_us != (row.starts_at, row.ends_at):
        report.remarks["terms whose start or end was reported late: weights count from then"] += 1
    if row.lenders is not None:
        report.compare(
            "sum of the weights", where, row.weights, sum(one.weight for one in row.lenders)
        )
        own = sum(one.weight for one in row.lenders if one.is_you)
        report.compare("own weight among all", where, row.weight, own)
    part = _part(row, steps, *span_us)
    if part is None:
        report.left("a weight: no idle quota was answered for its time", Gap.ROWS)
        return
    report.compare("weight", where, _ratio(row, part), part)


def _part(
    row: IncomeAnswer, steps: Sequence[IdleStep], from_us: int, until_us: int
) -> Fraction | None:
    """The part of the term by its intervals; None where they were not answered."""
    if row.idle_then is not None:
        then = row.idle_then
        return Fraction(then.own, then.total) if then.total else Fraction(0)
    try:
        if row.carried is None:
            own, total = integrals_of(steps, from_us, until_us)
            return Fraction(own, total) if total else Fraction(0)
        part = part_of(steps, from_us, until_us)
    except ValueError:
        return None
    return part / (until_us - from_us) if until_us > from_us else None


def _ratio(row: IncomeAnswer, part: Fraction) -> Fraction:
    """The part that the weights name: `part` itself where it is that to the places they have."""
    if not row.weights:
        return Fraction(0)
    if row.weights == WEIGHT_LIMIT and abs(row.weight - part * WEIGHT_LIMIT) < 1:
        return part
    return Fraction(row.weight, row.weights)


def _share(row: IncomeAnswer, where: str, report: StatementReport) -> None:
    if not row.weights or row.weight > row.weights:
        report.compare("income", where, row.earned, Amount(0))
        return
    exact, left = divmod(row.charge * row.weight, row.weights)
    if row.lenders is None:
        # One of the units that were left may be its own: who else had a claim is hidden.
        report.left(HIDDEN)
        again = exact + (row.rounded_up and left > 0)
        report.compare("income", where, row.earned, Amount(again))
        return
    weights = [one.weight for one in row.lenders]
    parts = largest_remainder(row.charge, weights)
    mine = [part for part, one in zip(parts, row.lenders, strict=True) if one.is_you]
    again = mine[0] if len(mine) == 1 else exact
    if again != row.earned and _is_tie(row, weights):
        report.left("the last micro-credit of an income: weights are noted to 18 places")
        again = row.earned
    report.compare("income", where, row.earned, Amount(again))


def _is_tie(row: IncomeAnswer, weights: Sequence[int]) -> bool:
    """Whether the exact weights, of which 18 places are noted, may split one unit otherwise."""
    if row.weights != WEIGHT_LIMIT:
        return False
    share = Fraction(row.charge * row.weight, row.weights)
    if abs(row.earned - share) >= 1 + Fraction(row.charge, WEIGHT_LIMIT):
        return False
    rests = sorted(Fraction(row.charge * weight, WEIGHT_LIMIT) % 1 for weight in weights)
    mine = share % 1
    # A remainder is off by less than what one place of a weight brings.
    off = Fraction(2 * row.charge, WEIGHT_LIMIT)
    near = [rest for rest in rests if abs(rest - mine) <= off or 1 - abs(rest - mine) <= off]
    return len(near) > 1


# ---- prices ----


def _price(row: PriceAnswer, report: StatementReport) -> None:
    where = f"price of {row.gpu_type} from round {row.valid_from_round} on"
    again: Amount | str
    try:
        of_use = posted_price_micro(row.base, row.theta, row.used, row.capacity)
        again = Amount(of_use + (row.surcharge or 0))
    except ValueError as error:
        again = f"nothing: {error}"
    report.compare("posted price", where, row.price, again)


def _posted(statement: TenantStatement, report: StatementReport) -> None:
    """Each term has the price that was posted for its round; 0 where none was posted yet."""
    rows: Iterator[tuple[str, UsageAnswer | IncomeAnswer]] = iter(
        [
            *((usage_name(row), row) for row in statement.usage if row.meter == BORROWED),
            *((income_name(row), row) for row in statement.income),
        ]
    )
    for where, row in rows:
        prices = statement.prices.get(row.gpu_type, ())
        if row.round is None:
            report.left("the price of a term: the round is not known any more", Gap.ROUNDS)
            continue
        index = bisect_right(prices, row.round, key=lambda price: price.valid_from_round)
        # In a pool's first round, and the first of a GPU type in it, nothing was posted before.
        again = prices[index - 1].price if index else Amount(0)
        why = "" if index else ", before a price was posted"
        report.compare("price of a term", f"{where}{why}", row.price, again)


# ---- settlements ----


def _settled(statement: TenantStatement, report: StatementReport) -> None:
    """What the ledger moved for an hour are its charges and incomes, and all of them."""
    paid: Counter[int] = Counter()
    earned: Counter[str] = Counter()
    for usage in statement.usage:
        paid[usage.hour] += usage.amount
    for income in statement.income:
        if income.transfer:
            earned[income.transfer] += income.earned
        elif income.earned:
            report.left("the settlement of an income: its hour is still open")
    hours: set[int] = set()
    seen: set[str] = set()
    for entry in statement.entries:
        if entry.code != "usage" or entry.hour is None:
            report.left(f"a transfer that is no settlement: {entry.code}")
            continue
        seen.add(entry.transfer)
        where = f"hour {text_of(entry.hour)}, transfer {entry.transfer}"
        report.compare("settlement of incomes", where, entry.earned, Amount(earned[entry.transfer]))
        if entry.paid:
            hours.add(entry.hour)
            again = Amount(paid[entry.hour])
            report.compare("settlement of charges", where, entry.paid, again)
    _missing(statement, hours, seen, report)


def _missing(
    statement: TenantStatement, hours: set[int], seen: set[str], report: StatementReport
) -> None:
    """Rows that name a transfer which moved nothing of theirs."""
    for usage in statement.usage:
        if not usage.amount or usage.hour in hours:
            continue
        if usage.transfer:
            text = f"transfer {usage.transfer}"
            report.findings.append(
                Finding("settlement of charges", usage_name(usage), text, "no such entry")
            )
        else:
            report.left("the settlement of a charge: its hour is still open")
    for income in statement.income:
        if income.earned and income.transfer and income.transfer not in seen:
            text = f"transfer {income.transfer}"
            report.findings.append(
                Finding("settlement of incomes", income_name(income), text, "no such entry")
            )
