"""Check the credits for late starts: their amounts, and the rounds that they name.

Source: docs/recompute/statement.md.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from evenshare_core.disclosure.bundle import Disclosed
from evenshare_core.disclosure.pseudonyms import job_name, tenant_name
from evenshare_core.money.rows import Amount, EntryRow, LateStartRow
from evenshare_core.policies import registry
from evenshare_core.policies.options import OptionError
from evenshare_core.policies.promised_start import (
    LateStart,
    PromisedStart,
    late_credit_micro,
    late_starts,
)
from evenshare_core.units import HOUR_US
from evenshare_core.verification.statement_report import StatementReport, text_of
from evenshare_core.verification.statement_rows import TenantStatement
from evenshare_core.verification.verdict import Gap

CODE = "late_start"
NO_FACTS = "a credit for a late start: the portal returned no factors of it"
NO_BUNDLE = "a credit for a late start: the bundle of one of its rounds is missing"
NO_KEY = "a credit for a late start: there is no key of the day of one of its rounds"
OPEN = "a late start without a credit: no entry shows that its hour is settled"
NO_PROMISE = (
    "a late start without a credit: the bundle of the round that promised it is missing, so its"
    " rate is not known"
)
OTHER_VERSION = "a credit for a late start: its policy has another version here"


def verify_late_starts(statement: TenantStatement, report: StatementReport) -> None:
    """Recompute each credit from its factors; a promise has one credit."""
    seen = set()
    for entry, late in _credits(statement):
        if late is None:
            report.left(NO_FACTS, Gap.ROWS)
            continue
        where = _name(late)
        if (late.job, late.promised_round) in seen:
            report.find("credit for a late start", where, "listed twice", "once")
        seen.add((late.job, late.promised_round))
        stated = Amount(entry.earned - entry.paid)
        report.compare("credit for a late start", where, stated, _again(late))


def compare_late_starts(
    statement: TenantStatement,
    rounds: Mapping[int, Disclosed],
    keys: Mapping[str, bytes],
    report: StatementReport,
) -> None:
    """Compare the factors of each credit with the rounds that it names."""
    for entry, late in _credits(statement):
        if late is None:
            continue
        made, ended = rounds.get(late.promised_round), rounds.get(late.round)
        if made is None or ended is None:
            report.left(NO_BUNDLE, Gap.ROUNDS)
            continue
        if made.day not in keys or ended.day not in keys:
            report.left(NO_KEY, Gap.NAMES)
            continue
        if not (_is_known(made) and _is_known(ended)):
            report.left(OTHER_VERSION, Gap.VERSION)
            continue
        key = keys[ended.day]
        for what, stated, again in (
            ("rate in its round", str(late.rate), str(Amount(_rate_micro(made)))),
            ("promised start in its round", _gpus(late), _promised_in(made, keys[made.day], late)),
            ("late start in its round", _late(late), _late_in(ended, key, late, made.at_us)),
            (
                "hour of a late start",
                text_of(entry.effective_at),
                text_of(_closing_us(ended.at_us)),
            ),
        ):
            report.compare(what, _name(late), stated, again)


def find_uncredited(
    statement: TenantStatement,
    rounds: Mapping[int, Disclosed],
    keys: Mapping[str, bytes],
    span_us: tuple[int, int],
    report: StatementReport,
) -> None:
    """Report the tenant's late starts in disclosed rounds that no entry credits.

    `span_us`: since when and until when the statement lists entries. The rate is known if the round
    that made the promise is disclosed, too.
    """
    rows = [late for _, late in _credits(statement)]
    if None in rows:
        return  # an entry without factors may be the credit
    credited = {(late.round, late.job.replace("-", "")) for late in rows if late is not None}
    settled_us = _settled_us(statement)
    by_time = {disclosed.at_us: disclosed for disclosed in rounds.values()}
    for ended in rounds.values():
        key = keys.get(ended.day)
        if key is None or not span_us[0] <= _closing_us(ended.at_us) < span_us[1]:
            continue
        names = {job_name(key, uid) for number, uid in credited if number == ended.round}
        for row in _own_late_starts(ended, key):
            if ended.names.jobs[row.job - 1] in names:
                continue
            made = by_time.get(row.made_us)
            due = row.credit_micro(_rate_micro(made or ended))
            if due and _closing_us(ended.at_us) > settled_us:
                report.left(OPEN, Gap.ROWS)
            elif due and made is None:
                report.left(NO_PROMISE, Gap.ROUNDS)
            elif due and made is not None:
                where = f"round {ended.round}, promised in round {made.round}"
                report.find("credit for a late start", where, "no entry", str(Amount(due)))


def _settled_us(statement: TenantStatement) -> int:
    """Return when the last hour with settled entries closed, in us; 0 without such an entry."""
    entries = (row for row in statement.entries if row.hour is not None or row.code == CODE)
    return max((row.effective_at for row in entries), default=0)


def _own_late_starts(disclosed: Disclosed, key: bytes) -> list[LateStart]:
    names, own = disclosed.names.tenants, tenant_name(key)
    before = _promises(disclosed, disclosed.snapshot.memory)
    late = late_starts(before, disclosed.snapshot, disclosed.decision)
    return [row for row in late if names[row.tenant - 1] == own]


def _credits(statement: TenantStatement) -> Iterator[tuple[EntryRow, LateStartRow | None]]:
    return ((entry, entry.late_start) for entry in statement.entries if entry.code == CODE)


def _name(late: LateStartRow) -> str:
    return f"late start of job {late.job}, round {late.round}"


def _again(late: LateStartRow) -> Amount | str:
    try:
        return Amount(late_credit_micro(late.gpus, late.rate, late.until - late.latest_at))
    except ValueError as error:
        return f"nothing: {error}"


def _is_known(disclosed: Disclosed) -> bool:
    snapshot = disclosed.snapshot
    policy = registry.POLICIES.get(snapshot.policy)
    return policy is not None and policy.version == snapshot.policy_version


def _rate_micro(disclosed: Disclosed) -> int:
    """Return the rate among a round's options; 0 if these are wrong."""
    snapshot = disclosed.snapshot
    try:
        return registry.options(snapshot.policy, snapshot.options).late_credit_micro
    except OptionError:
        return 0


def _promised_in(disclosed: Disclosed, key: bytes, late: LateStartRow) -> str:
    """Return the GPUs that a round promised to the job of a credit."""
    job, at_us = _job_in(disclosed, key, late), disclosed.at_us
    for row in _promises(disclosed, disclosed.decision.memory):
        if (row.job, row.made_us) == (job, at_us):
            return f"{row.gpus} {row.gpu_type}"
    return "no new promise to the job"


def _late_in(disclosed: Disclosed, key: bytes, late: LateStartRow, made_us: int) -> str:
    """Return the late end of the promise that was made at `made_us`."""
    job = _job_in(disclosed, key, late)
    before = _promises(disclosed, disclosed.snapshot.memory)
    for row in late_starts(before, disclosed.snapshot, disclosed.decision):
        if (row.job, row.made_us) == (job, made_us):
            return _text(row.gpus, row.gpu_type, row.latest_us, row.until_us, row.has_started)
    return "no late start of the job"


def _promises(disclosed: Disclosed, memory: Mapping[str, Any]) -> tuple[PromisedStart, ...]:
    snapshot = disclosed.snapshot
    return registry.promised_starts(snapshot.policy, snapshot.policy_version, memory)


def _job_in(disclosed: Disclosed, key: bytes, late: LateStartRow) -> int:
    name = job_name(key, late.job.replace("-", ""))
    return disclosed.names.jobs.index(name) + 1 if name in disclosed.names.jobs else 0


def _gpus(late: LateStartRow) -> str:
    return f"{late.gpus} {late.gpu_type}"


def _late(late: LateStartRow) -> str:
    return _text(late.gpus, late.gpu_type, late.latest_at, late.until, late.started)


def _text(gpus: int, gpu_type: str, latest_us: int, until_us: int, has_started: bool) -> str:
    end = "started" if has_started else "stopped waiting"
    return f"{gpus} {gpu_type}, {text_of(latest_us)} to {text_of(until_us)}, {end}"


def _closing_us(at_us: int) -> int:
    return (at_us // HOUR_US + 1) * HOUR_US
