"""Comparison of a tenant's statement with its rounds: prices, own and borrowed GPUs, idle quota.

Rounds are read from their bundles, in which all tenants have pseudonyms; the tenant finds its own
rows by its key of the day. A round only gives bounds of idle quota. It does not show whether a
lease is still launching; until the lease starts, its own GPUs count as idle quota. A granted lease
may start at once.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from evenshare_core.disclosure.bundle import Disclosed
from evenshare_core.disclosure.pseudonyms import job_name, tenant_name
from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.decision import Grant, Renew, with_swaps
from evenshare_core.domain.leases import Lease
from evenshare_core.money.revenue.factors import IdleStep
from evenshare_core.money.revenue.idle import OPERATOR
from evenshare_core.money.revenue.records import LATE_ROUNDS
from evenshare_core.money.rows import Amount, IncomeRow, UsageRow
from evenshare_core.policies import registry
from evenshare_core.policies.options import OptionError
from evenshare_core.verification.statement import verify_statement
from evenshare_core.verification.statement_late_starts import (
    compare_late_starts,
    find_uncredited,
)
from evenshare_core.verification.statement_report import (
    StatementReport,
    income_name,
    text_of,
    usage_name,
)
from evenshare_core.verification.statement_rows import BORROWED, TenantStatement
from evenshare_core.verification.verdict import Gap

TermRows = dict[str, UsageRow]  # a term's rows by meter
NO_KEY = "own and borrowed GPUs of a term: there is no key of its day"
PAST_EXPIRY = (
    "a charge past the expiry of a term, although no round came in time. It applies only to"
    " terms from before the operator paid for late rounds"
)
NO_BUNDLE = "a comparison with the round of a term: its bundle is missing"


def verify_with_rounds(
    statement: TenantStatement,
    rounds: Mapping[int, Disclosed],
    keys: Mapping[str, bytes],
    instants: Collection[int] = (),
    span_us: tuple[int, int] | None = None,
) -> StatementReport:
    """Recompute a statement, compare it with rounds, and return the report.

    `rounds` has the available rounds by number, `keys` the tenant's keys by day of pool time.
    `instants` has the times of all rounds in the statement's time, if the caller knows them.
    `span_us`: the statement's time, if known; then late starts without a credit are found, too.
    """
    report = verify_statement(statement)
    known = {*instants, *(disclosed.at_us for disclosed in rounds.values())}
    _Comparison(statement, rounds, keys, frozenset(known), tuple(sorted(instants)), report).run()
    compare_late_starts(statement, rounds, keys, report)
    if span_us is not None:
        find_uncredited(statement, rounds, keys, span_us, report)
    return report


class _Bounds(NamedTuple):
    """The minimum and maximum of idle GPUs, by lender."""

    least: dict[int, int]
    most: dict[int, int]

    def of(self, lenders: Iterable[int]) -> tuple[int, int]:
        """Return the bounds of some lenders together."""
        among = tuple(lenders)
        return (
            sum(self.least.get(lender, 0) for lender in among),
            sum(self.most.get(lender, 0) for lender in among),
        )


@dataclass(slots=True)
class _Comparison:
    statement: TenantStatement
    rounds: Mapping[int, Disclosed]
    keys: Mapping[str, bytes]
    instants: frozenset[int]
    # times of all rounds in the statement's time; empty if some may be missing
    every: tuple[int, ...]
    report: StatementReport

    def run(self) -> None:
        self._prices()
        terms: dict[tuple[str, int, int], TermRows] = {}
        for row in self.statement.usage:
            terms.setdefault((row.job, row.lease, row.term), {})[row.meter] = row
        for (job, lease, number), rows in terms.items():
            self._term(rows)
            self._late(rows, terms.get((job, lease, number + 1), {}))
        for income in self.statement.income:
            self._late_income(income)
        for gpu_type, steps in self.statement.steps.items():
            for disclosed in self.rounds.values():
                if self._counts(gpu_type, disclosed.at_us):
                    self._idle(disclosed, gpu_type, steps)

    def _counts(self, gpu_type: str, at_us: int) -> bool:
        """Return whether the idle quota at a given time is part of an income's weight."""
        return any(
            row.gpu_type == gpu_type
            and row.counts_from is not None
            and row.counts_until is not None
            and row.counts_from <= at_us < row.counts_until
            for row in self.statement.income
        )

    # ---- prices ----

    def _prices(self) -> None:
        """Check that prices of terms, and posted prices, are those of the rounds' decisions."""
        for usage in self.statement.usage:
            if usage.meter == BORROWED:
                self._price(usage_name(usage), usage.round, usage.gpu_type, usage.price)
        for income in self.statement.income:
            self._price(income_name(income), income.round, income.gpu_type, income.price)
        for prices in self.statement.prices.values():
            for price in prices:
                number = price.valid_from_round
                if number in self.rounds:
                    where = f"price of {price.gpu_type} from round {number} on"
                    self._price(where, number, price.gpu_type, price.price)

    def _price(self, where: str, number: int | None, gpu_type: str, price: Amount) -> None:
        disclosed = None if number is None else self.rounds.get(number)
        if disclosed is None:
            self.report.left(NO_BUNDLE, Gap.ROUNDS)
            return
        decided = {row.gpu_type: Amount(row.price_micro) for row in disclosed.snapshot.prices}
        again = decided.get(gpu_type, Amount(0))
        self.report.compare("price in its round", f"{where}, in round {number}", price, again)

    # ---- own and borrowed ----

    def _term(self, rows: TermRows) -> None:
        row = next(iter(rows.values()))
        disclosed = None if row.round is None else self.rounds.get(row.round)
        if disclosed is None:
            if BORROWED not in rows:  # a borrowed term's missing round is reported with its price
                self.report.left(NO_BUNDLE, Gap.ROUNDS)
            return
        key = self.keys.get(disclosed.day)
        if key is None:
            self.report.left(NO_KEY, Gap.NAMES)
            return
        where = f"{usage_name(row)}, in round {row.round}"
        stated = {meter: of_meter.gpus for meter, of_meter in sorted(rows.items())}
        self.report.compare("own and borrowed GPUs", where, stated, _decided(disclosed, key, row))

    # ---- late rounds ----

    def _late(self, rows: TermRows, following: TermRows) -> None:
        """Check that a term before a late round is charged only until its due time."""
        row = rows.get(BORROWED)
        disclosed = None if row is None or row.round is None else self.rounds.get(row.round)
        if row is None or disclosed is None:
            return  # the missing round is reported with the price
        key = self.keys.get(disclosed.day)
        due_us = None if key is None else _due_us(disclosed, key, row)
        if due_us is None:
            return  # another check reports a missing key or grant
        where = f"{usage_name(row)}, in round {row.round}"
        if row.charged_until is not None:
            again = max(due_us, row.starts_at)
            self.report.compare("charged until", where, text_of(row.charged_until), text_of(again))
            return
        is_renewed = any(after.starts_at == row.ends_at for after in following.values())
        # Only the executor knows when other terms ended, because a process may take long to stop.
        if is_renewed and self._is_late(disclosed, due_us):
            self.report.left(PAST_EXPIRY, Gap.ROUNDS)

    def _late_income(self, row: IncomeRow) -> None:
        """Check a lender's row like `_late`; the row does not name the borrower's job."""
        disclosed = None if row.round is None else self.rounds.get(row.round)
        if row.borne is None or disclosed is None:
            return  # from an older portal, or the missing round is reported with the price
        dues = _dues_us(disclosed, row)
        if not dues:
            return
        where = f"{income_name(row)}, in round {row.round}"
        if row.charged_until is not None:
            again = " or ".join(text_of(at_us) for at_us in sorted(dues))
            stated = text_of(row.charged_until)
            is_due = row.charged_until in dues
            self.report.compare("charged until", where, stated, stated if is_due else again)
        elif self._is_renewed(row) and self._is_late(disclosed, max(dues)):
            self.report.left(PAST_EXPIRY, Gap.ROUNDS)

    def _is_late(self, disclosed: Disclosed, due_us: int) -> bool:
        index = bisect_left(self.every, due_us)
        late_us = LATE_ROUNDS * disclosed.snapshot.round_us
        return index < len(self.every) and self.every[index] > due_us + late_us

    def _is_renewed(self, row: IncomeRow) -> bool:
        """Return whether the next term begins when this one ends; other ends cannot be checked."""
        return row.ends_at in self.every and any(
            (after.gpu_type, after.starts_at) == (row.gpu_type, row.ends_at)
            and (row.lease, row.term) in {(None, None), (after.lease, (after.term or 0) - 1)}
            for after in self.statement.income
        )

    # ---- idle quota ----

    def _idle(self, disclosed: Disclosed, gpu_type: str, steps: Sequence[IdleStep]) -> None:
        """Check that idle quota after a round equals the quota minus the leases."""
        index = bisect_right(steps, disclosed.at_us, key=lambda step: step.at_us)
        key = self.keys.get(disclosed.day)
        name = "" if key is None else tenant_name(key)
        why: tuple[str, Gap] | None = None
        if not index:
            why = "none was answered for it", Gap.ROWS
        elif disclosed.superseded:
            why = "a part of its decision could not be applied", Gap.SUPERSEDED
        elif name not in disclosed.names.tenants:
            why = "there is no key of its day, or the tenant is not in it", Gap.NAMES
        if why is not None:
            self.report.left(f"idle quota at a round: {why[0]}", why[1])
            return
        own = disclosed.names.tenants.index(name) + 1
        step, bounds = steps[index - 1], _idle_in(disclosed, gpu_type, self.instants)
        where = f"{gpu_type} from round {disclosed.round} on"
        for what, gpus, lenders in (
            ("own idle quota", step.own, [own]),
            ("total idle quota", step.total, bounds.most),
        ):
            least, most = bounds.of(lenders)
            again: object = gpus if least <= gpus <= most else f"{least} to {most}"
            self.report.compare(what, where, gpus, again)


def _due_us(disclosed: Disclosed, key: bytes, row: UsageRow) -> int | None:
    """Return when a term was due, at its expiry or end of minimum runtime; None if unknown."""
    try:
        job = disclosed.names.jobs.index(job_name(key, row.job.replace("-", ""))) + 1
    except ValueError:
        return None
    protected_us = _protected_us(disclosed)
    expires_us = _expires_us(disclosed, job)
    if protected_us is None or row.term != 1:
        return None if protected_us is None else expires_us
    return max(expires_us, row.starts_at + protected_us)


def _dues_us(disclosed: Disclosed, row: IncomeRow) -> set[int]:
    """Return when a borrowed term may have been due, with one time for each job that matches it."""
    protected_us = _protected_us(disclosed)
    if protected_us is None:
        return set()
    wanted = (row.gpu_type, row.gpus)
    decision = disclosed.decision
    dues = {
        _expires_us(disclosed, item.job)
        for item in decision.renewals
        if (item.gpu_type, item.borrowed) == wanted
    } | {
        max(_expires_us(disclosed, item.job), row.starts_at + protected_us)
        for item in decision.grants
        if (item.gpu_type, item.borrowed) == wanted
    }
    return {max(due_us, row.starts_at) for due_us in dues}


def _protected_us(disclosed: Disclosed) -> int | None:
    """Return the minimum runtime of leases; None if the policy is not known here."""
    snapshot = disclosed.snapshot
    try:
        return registry.options_of(snapshot).min_runtime_us
    except (ValueError, registry.UnknownPolicyError, OptionError):
        return None


def _expires_us(disclosed: Disclosed, job: int) -> int:
    lengths = {length.job: length.lease_us for length in disclosed.decision.lengths}
    return disclosed.at_us + lengths.get(job, disclosed.snapshot.lease_us)


def _decided(disclosed: Disclosed, key: bytes, row: UsageRow) -> dict[str, int] | str:
    """Return the GPUs that the round granted or renewed for the job of a row."""
    name = job_name(key, row.job.replace("-", ""))
    try:
        job = disclosed.names.jobs.index(name) + 1
    except ValueError:
        return f"no job {name} in the round"
    decision = disclosed.decision
    decided: list[Grant | Renew] = [*decision.grants, *decision.renewals]
    items = [item for item in decided if (item.job, item.gpu_type) == (job, row.gpu_type)]
    if len(items) != 1:
        return f"{len(items)} grants and renewals of job {name}"
    gpus = {"borrowed": items[0].borrowed, "own": items[0].own}
    return {meter: count for meter, count in gpus.items() if count}


def _idle_in(disclosed: Disclosed, gpu_type: str, instants: frozenset[int]) -> _Bounds:
    """Return the bounds of lendable idle quota of a type after a round is applied."""
    snapshot = with_swaps(disclosed.snapshot, disclosed.decision.swaps)
    renewed = {item.lease: item.own for item in disclosed.decision.renewals}
    ended = {item.lease for item in disclosed.decision.ends}
    leases = [lease for lease in snapshot.leases if lease.gpu_type == gpu_type]
    # If a lease has not started, its start is the time of the round that granted it.
    oldest_us = min(instants)
    launching = ended | {
        lease.id for lease in leases if lease.started_us in instants or lease.started_us < oldest_us
    }
    capacity = capacity_by_type(snapshot.nodes).get(gpu_type, 0)
    rows = [row for row in snapshot.entitlements if row.gpu_type == gpu_type and capacity]
    granted = [item for item in disclosed.decision.grants if item.gpu_type == gpu_type]
    bounds = _Bounds({}, {})
    for idle, held, starting in (
        (bounds.least, leases, granted),  # granted leases may start at once
        (bounds.most, [lease for lease in leases if lease.id not in launching], []),
    ):
        used = _used(held, renewed)
        for item in starting:
            used[item.tenant] += item.own
        for row in rows:
            idle[row.tenant] = row.lendable(max(row.gpus - used[row.tenant], 0))
        idle[OPERATOR] = max(capacity - sum(row.gpus for row in rows), 0)
    return bounds


def _used(leases: Iterable[Lease], renewed: Mapping[int, int]) -> Counter[int]:
    used: Counter[int] = Counter()
    for lease in leases:
        used[lease.tenant] += renewed.get(lease.id, lease.own)
    return used
