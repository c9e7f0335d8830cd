"""A tenant's charges and incomes recomputed from REST answers.

| amount | computed from | rule |
|---|---|---|
| charge | borrowed GPUs, price, time, remainder of the lease's earlier terms | `term_charge` |
| borne by the operator | the cost of the whole time, less the charge | the same |
| own weight | intervals of idle quota: own / total, times length | `part_of` |
| income | charge, all weights | largest remainder |
| paid by the operator | the amount borne, all incomes of the term | largest remainder |
| price | base, theta, use, surcharge; and the round of the term | `posted_price_micro` |
| settlement | charges and incomes of an hour | they sum to its entries |
| late start | promised GPUs, rate, time until the start; and both rounds | `late_credit_micro` |

Arithmetic is exact, in integers and fractions, and compared to the last digit. Amounts that cannot
be recomputed from the answers are counted by reason, never ignored.

Source: docs/recompute/statement.md.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from evenshare_core.money.fixed_point import charge_micro, largest_remainder, term_charge
from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.money.revenue.factors import IdleStep, integrals_of, part_of
from evenshare_core.money.revenue.idle import WEIGHT_LIMIT
from evenshare_core.money.rows import Amount, IncomeRow, UsageRow
from evenshare_core.verification.statement_late_starts import verify_late_starts
from evenshare_core.verification.statement_report import (
    StatementReport,
    income_name,
    text_of,
    usage_name,
)
from evenshare_core.verification.statement_rows import BORROWED, PriceAnswer, TenantStatement
from evenshare_core.verification.statement_settlements import verify_settlements
from evenshare_core.verification.verdict import Gap, Unproven

HIDDEN = "the last micro-credit of an income was taken as stated: the pool hides other lenders"
EARLIER = (
    "the remainder carried over from the previous term: that term is not in this statement;"
    " a statement that begins earlier may have it"
)
MISSING = "the remainder carried over from the previous term: a row of the lease is missing"
Terms = Mapping[int, Mapping[str, UsageRow]]  # terms of a lease, by number and meter
NO_ROWS = "the portal gave no row of usage, income or entries for this time"


def verify_statement(statement: TenantStatement) -> StatementReport:
    """Recompute each charge, income, price and settlement, and return the report."""
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
        _paid_by_operator(income, where, report)
    _parts_of_all(statement, report)
    for prices in statement.prices.values():
        for price in prices:
            _price(price, report)
    _posted(statement, report)
    verify_settlements(statement, report)
    verify_late_starts(statement, report)
    return report


# ---- charges ----


def _due_of(gpus: int, price: int, held_us: int, carried: int | None) -> tuple[Amount, int]:
    """Return the charge of a term, and the remainder for the next."""
    if carried is None:
        return Amount(charge_micro(gpus, price, held_us)), 0
    amount, rest = term_charge(gpus, price, held_us, carried)
    return Amount(amount), rest


def _charge(row: UsageRow, report: StatementReport) -> None:
    where = usage_name(row)
    if row.meter != BORROWED:
        report.compare("own GPUs are free", where, (row.price, row.amount), (0, 0))
        return
    if row.charged_us > row.ends_at - row.starts_at:
        report.compare("charged time", where, text_of(row.starts_at + row.charged_us), "its end")
    again = _again(row.gpus, row.price, row.charged_us, row.carried)
    report.compare("charge", where, row.amount, again)
    if row.charged_until is not None or row.borne:
        full = _again(row.gpus, row.price, row.ends_at - row.starts_at, row.carried)
        report.compare("late rounds", where, Amount(row.amount + row.borne), full)


def _due(row: IncomeRow, where: str, report: StatementReport) -> None:
    again = _again(row.gpus, row.price, row.ends_at - row.starts_at, row.carried)
    report.compare("charge of a borrower", where, row.charge, again)


def _again(gpus: int, price: int, held_us: int, carried: int | None) -> Amount | str:
    try:
        return _due_of(gpus, price, held_us, carried)[0]
    except ValueError as error:
        return f"nothing: {error}"


def _remainders(rows: Iterable[UsageRow], report: StatementReport) -> None:
    """Check, by lease, that each term carries the previous remainder, and the first term 0."""
    for terms in _leases(rows, report):
        _follow(terms, report)
        # (term, the remainder that it left); None if unknown
        before: tuple[int, int] | None = (0, 0)
        first = min(terms)
        for term in sorted(terms):
            if before is not None and before[0] != term - 1:
                before = None
            is_missing = term > first and term - 1 not in terms
            if is_missing:
                report.left(MISSING, Gap.ROWS)
            borrowed = terms[term].get(BORROWED)
            if borrowed is None:
                # A term without borrowed GPUs passes the remainder on.
                before = (term, before[1]) if before else None
                continue
            where = usage_name(borrowed)
            if borrowed.carried is not None and before is None:
                if not is_missing:
                    report.left(EARLIER)
            elif borrowed.carried is not None and before is not None:
                report.compare("carried remainder", where, borrowed.carried, before[1])
            before = (term, _rest(borrowed))


def _leases(rows: Iterable[UsageRow], report: StatementReport) -> Iterable[Terms]:
    leases: dict[tuple[str, int], dict[int, dict[str, UsageRow]]] = defaultdict(dict)
    for row in rows:
        meters = leases[row.job, row.lease].setdefault(row.term, {})
        if row.meter in meters:
            report.find("usage", usage_name(row), "listed twice", "once")
        meters[row.meter] = row
    return leases.values()


def _follow(terms: Terms, report: StatementReport) -> None:
    """Check that terms are consecutive, with the same times for own and borrowed GPUs."""
    for term, meters in terms.items():
        first = next(iter(meters.values()))
        for row in meters.values():
            if (row.starts_at, row.ends_at) != (first.starts_at, first.ends_at):
                times = f"{text_of(first.starts_at)} to {text_of(first.ends_at)}"
                report.find("times of a term", usage_name(row), "others than its own GPUs", times)
        for before in terms.get(term - 1, {}).values():
            if before.ends_at != first.starts_at:
                stated = f"begins {text_of(first.starts_at)}"
                report.find("times of a term", usage_name(first), stated, text_of(before.ends_at))
                break


def _rest(row: UsageRow) -> int:
    try:
        return _due_of(row.gpus, row.price, row.charged_us, row.carried)[1]
    except ValueError:
        return 0  # the wrong charge is already reported


# ---- incomes ----


def _weight(row: IncomeRow, where: str, steps: Sequence[IdleStep], report: StatementReport) -> None:
    """Check the tenant's weight and the sum of weights against the intervals of idle quota."""
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
        report.left("a weight: the portal returned no idle quota for its time", Gap.ROWS)
        return
    report.compare("weight", where, _ratio(row, part), part)


def _part(
    row: IncomeRow, steps: Sequence[IdleStep], from_us: int, until_us: int
) -> Fraction | None:
    """Return the tenant's part of the term from its intervals; None if they are missing."""
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


def _ratio(row: IncomeRow, part: Fraction) -> Fraction:
    """Return the ratio of the weights, or `part` itself if both agree to 18 places."""
    if not row.weights:
        return Fraction(0)
    if row.weights == WEIGHT_LIMIT and abs(row.weight - part * WEIGHT_LIMIT) < 1:
        return part
    return Fraction(row.weight, row.weights)


def _share(row: IncomeRow, where: str, report: StatementReport) -> None:
    if row.charge < 0:
        return  # the wrong charge is already reported
    if not row.weights or row.weight > row.weights:
        report.compare("income", where, row.earned, Amount(0))
        return
    exact, left = divmod(row.charge * row.weight, row.weights)
    if row.lenders is None:
        # The tenant may have got a leftover unit: the other lenders' remainders are hidden.
        report.left(HIDDEN)
        again = exact + (row.rounded_up and left > 0)
        report.compare("income", where, row.earned, Amount(again))
        return
    weights = [one.weight for one in row.lenders]
    parts = largest_remainder(row.charge, weights)
    mine = [part for part, one in zip(parts, row.lenders, strict=True) if one.is_you]
    again = mine[0] if len(mine) == 1 else exact
    if again != row.earned and _is_tie(row, weights):
        report.left("the last micro-credit of an income: weights are recorded with 18 places")
        again = row.earned
    report.compare("income", where, row.earned, Amount(again))


def _paid_by_operator(row: IncomeRow, where: str, report: StatementReport) -> None:
    """Check what the operator paid for a term and its income because of late rounds."""
    if row.borne is None or row.earned_borne is None:
        return
    until_us = row.ends_at if row.charged_until is None else row.charged_until
    if row.charged_until is not None and not row.starts_at <= until_us < row.ends_at:
        report.compare("charged time", where, text_of(until_us), "before its end")
        return
    paid = _again(row.gpus, row.price, until_us - row.starts_at, row.carried)
    if isinstance(paid, str) or not (row.charged_until or row.borne or row.earned_borne):
        return
    report.compare("late rounds", where, row.borne, Amount(row.charge - paid))
    exact, left = divmod(row.borne * row.earned, row.charge) if row.charge > 0 else (0, 0)
    # The other lenders' remainders may be hidden, as for the income.
    again = min(max(row.earned_borne, exact), exact + (left > 0))
    if row.lenders is not None and row.charge > 0 and row.borne >= 0:
        parts = largest_remainder(row.charge, [one.weight for one in row.lenders])
        split = largest_remainder(row.borne, parts)
        own = [index for index, one in enumerate(row.lenders) if one.is_you]
        if len(own) == 1 and parts[own[0]] == row.earned:
            again = split[own[0]]
    report.compare("paid by the operator", where, row.earned_borne, Amount(again))


def _parts_of_all(statement: TenantStatement, report: StatementReport) -> None:
    """Check that all rows state the operator's payment or, from older portals, no row does."""
    rows = [
        *((income_name(row), row.borne, row.earned_borne) for row in statement.income),
        *(
            (f"transfer {row.transfer}", row.earned_borne, row.earned_borne)
            for row in statement.entries
        ),
    ]
    if all(borne is None and earned is None for _, borne, earned in rows):
        return
    for where, borne, earned in rows:
        if borne is None or earned is None:
            report.compare("paid by the operator", where, "nothing", "an amount, as in other rows")


def _is_tie(row: IncomeRow, weights: Sequence[int]) -> bool:
    """Return whether weights of 18 places may give a unit to another lender than exact ones."""
    if row.weights != WEIGHT_LIMIT:
        return False
    share = Fraction(row.charge * row.weight, row.weights)
    if abs(row.earned - share) >= 1 + Fraction(row.charge, WEIGHT_LIMIT):
        return False
    rests = sorted(Fraction(row.charge * weight, WEIGHT_LIMIT) % 1 for weight in weights)
    mine = share % 1
    # Rounding of the weights changes a remainder by less than this.
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
    """Check that each term has the price posted for its round; 0 if none was posted yet."""
    rows: Iterator[tuple[str, UsageRow | IncomeRow]] = iter(
        [
            *((usage_name(row), row) for row in statement.usage if row.meter == BORROWED),
            *((income_name(row), row) for row in statement.income),
        ]
    )
    for where, row in rows:
        prices = statement.prices.get(row.gpu_type, ())
        if row.round is None:
            report.left("the price of a term: the round is no longer known", Gap.ROUNDS)
            continue
        index = bisect_right(prices, row.round, key=lambda price: price.valid_from_round)
        # In the first round of a pool, or of a GPU type, no price was posted before.
        again = prices[index - 1].price if index else Amount(0)
        why = "" if index else ", before a price was posted"
        report.compare("price of a term", f"{where}{why}", row.price, again)
