"""Test that tenants recompute credits for late starts, from REST answers and disclosed rounds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from evenshare_core.domain.instants import to_us
from evenshare_core.units import HOUR_US
from evenshare_core.verification.statement_late_starts import NO_PROMISE, OPEN
from evenshare_core.verification.statement_report import StatementReport
from evenshare_core.verification.statement_rounds import verify_with_rounds
from evenshare_core.verification.statement_rows import read_statement
from evenshare_core.verification.verdict import Gap, ProofVerdict
from tenants.models import User
from tests.factories import BEGIN, Cluster
from tests.functional.api_stage import ROLES, ApiStage
from tests.functional.lending_stage import Rounds, disclosed
from tests.functional.queue_stages import text
from tests.integration.test_late_starts import cancel, promised, settled, start_late
from tests.stages import Stages

Row = dict[str, Any]
BEA = "bea"  # a manager of beta
TIME = "since=2029-12-31T00:00:00Z&until=2030-01-02T00:00:00Z"
DAY_US = 24 * HOUR_US
SPAN_US = (to_us(BEGIN) - DAY_US, to_us(BEGIN) + DAY_US)
CHECKS = (
    "credit for a late start",
    "rate in its round",
    "promised start in its round",
    "late start in its round",
    "hour of a late start",
)


def credited() -> tuple[Row, Rounds]:
    """Return the entry of a start that was 90 s late, as a tenant reads it, and the rounds."""
    lab = promised()
    start_late(lab, 90)
    return read(lab)


def read(lab: Cluster) -> tuple[Row, Rounds]:
    settled(lab)
    stage = ApiStage(lab)
    stage.person(BEA, "beta", ROLES.MANAGER)
    answer = stage.call("GET", f"entries?pool={stage.pool}&{TIME}", as_=BEA)
    assert answer.status_code == 200, answer.content
    (entry,) = (row for row in answer.json()["results"] if row["code"] == "late_start")
    return entry, disclosed(stage, "beta")


@pytest.fixture(scope="module")
def made(stages: Stages) -> Iterator[tuple[Row, Rounds]]:
    with stages.copy(credited) as made:
        yield made


@pytest.fixture
def there(made: tuple[Row, Rounds]) -> tuple[Row, Rounds]:
    return copy.deepcopy(made)


def verified(
    entries: list[Row], rounds: Rounds, span_us: tuple[int, int] = SPAN_US
) -> StatementReport:
    rows = {"usage": [], "income": [], "idle": [], "prices": [], "entries": entries}
    statement = read_statement(rows)
    return verify_with_rounds(statement, rounds.rounds, rounds.keys, span_us=span_us)


def page(path: str) -> str:
    client = Client()
    client.force_login(User.objects.get(username=BEA))
    return text(client.get(path))


class TestPages:
    def test_transfer_shows_factors(self, there: tuple[Row, Rounds]) -> None:
        shown = page(reverse("transfer", args=["beta", there[0]["transfer"]]))
        assert "Credit for a late start" in shown
        assert (
            "Promised latest start 00:15:00 UTC , by round 2 Started 00:16:30 UTC , seen by"
            in shown
        )
        assert "Late, hours 0.025000 Promised GPUs 8 v100" in shown
        assert "Rate, credits per GPU-hour 2.000000 Credit +0.400000" in shown
        assert "operator, for a late start" in shown

    def test_ledger_and_statement_list_credit(self, there: tuple[Row, Rounds]) -> None:
        assert "credit for a late start" in page(reverse("ledger", args=["beta"]))
        path = reverse("statement", args=["beta"])
        shown = page(f"{path}?from=2029-12-31&to=2030-01-02")
        assert "credit for a late start" in shown

    def test_job_log_states_lateness_and_credit(self, there: tuple[Row, Rounds]) -> None:
        shown = page(reverse("job", args=[there[0]["late_start"]["job"]]))
        assert "it started 1 min 30 s after 00:15:00, its promised latest start" in shown
        assert "The operator pays 0.400000 credits." in shown


def test_entry_has_all_factors(there: tuple[Row, Rounds]) -> None:
    entry, rounds = there
    assert entry["late_start"] == {
        "tenant": "beta",
        "job": entry["late_start"]["job"],
        "gpu_type": "v100",
        "gpus": 8,
        "rate": "2.000000",
        "latest_at": "2030-01-01T00:15:00.000000Z",
        "until": "2030-01-01T00:16:30.000000Z",
        "started": True,
        "promised_round": 2,
        "round": 4,
    }
    assert (entry["earned"], entry["paid"], entry["hour"]) == ("0.400000", "0.000000", None)
    report = verified([entry], rounds)
    assert report.findings == []
    assert dict(report.recomputed) == dict.fromkeys(CHECKS, 1)
    assert report.verdict() is ProofVerdict.PROVEN


def test_credit_of_cancelled_job_is_proven(stages: Stages) -> None:
    def made() -> tuple[Row, Rounds]:
        lab = promised()
        cancel(945)
        lab.round(after_s=970)
        return read(lab)

    with stages.copy(made) as (entry, rounds):
        report = verified([entry], rounds)
        assert (report.findings, report.verdict()) == ([], ProofVerdict.PROVEN)
        assert (entry["earned"], entry["late_start"]["started"]) == ("0.200000", False)


def more(entry: Row) -> None:
    entry["earned"] = "0.400001"


def double_rate(entry: Row) -> None:
    entry["earned"], entry["late_start"]["rate"] = "0.800000", "4.000000"


def fewer_gpus(entry: Row) -> None:
    entry["earned"], entry["late_start"]["gpus"] = "0.200000", 4


def later_promise(entry: Row) -> None:
    entry["earned"] = "0.200000"
    entry["late_start"]["latest_at"] = "2030-01-01T00:15:45.000000Z"


def earlier_start(entry: Row) -> None:
    entry["earned"] = "0.200000"
    entry["late_start"]["until"] = "2030-01-01T00:15:45.000000Z"


def before_promise(entry: Row) -> None:
    entry["late_start"]["until"] = "2030-01-01T00:14:00.000000Z"


def unstarted(entry: Row) -> None:
    entry["late_start"]["started"] = False


def other_promise(entry: Row) -> None:
    entry["late_start"]["promised_round"] = 3


def other_round(entry: Row) -> None:
    entry["late_start"]["round"] = 5


def other_job(entry: Row) -> None:
    entry["late_start"]["job"] = "0" * 32


def other_hour(entry: Row) -> None:
    entry["effective_at"] = "2030-01-01T02:00:00.000000Z"


@pytest.mark.parametrize(
    ("plant", "checks"),
    [
        (more, {CHECKS[0]}),
        (double_rate, {CHECKS[1]}),
        (fewer_gpus, {*CHECKS[2:4]}),
        (later_promise, {CHECKS[3]}),
        (earlier_start, {CHECKS[3]}),
        (before_promise, {CHECKS[0], CHECKS[3]}),
        (unstarted, {CHECKS[3]}),
        (other_promise, {*CHECKS[2:4]}),
        (other_round, {CHECKS[0], *CHECKS[3:]}),
        (other_job, {CHECKS[0], *CHECKS[2:4]}),
        (other_hour, {CHECKS[4]}),
    ],
)
def test_planted_factor_is_found(
    there: tuple[Row, Rounds], plant: Callable[[Row], None], checks: set[str]
) -> None:
    entry, rounds = there
    plant(entry)
    report = verified([entry], rounds)
    assert {finding.what for finding in report.findings} == checks
    assert report.verdict() is ProofVerdict.WRONG


def test_repeated_credit_is_found(there: tuple[Row, Rounds]) -> None:
    entry, rounds = there
    again = entry | {"transfer": "00000000-0000-0000-0000-000000000000"}
    (finding,) = verified([entry, again], rounds).findings
    assert finding.stated == "listed twice"


class TestWithheldCredit:
    @pytest.fixture
    def other(self, there: tuple[Row, Rounds]) -> Row:
        """Return an entry that shows that the hour of the late start is settled."""
        hour = {"code": "usage", "hour": "2030-01-01T00:00:00Z", "late_start": None}
        return there[0] | hour | {"earned": "0.000000"}

    def test_is_found(self, there: tuple[Row, Rounds], other: Row) -> None:
        (finding,) = verified([other], there[1]).findings
        assert (finding.stated, finding.recomputed) == ("no entry", "0.400000")
        assert finding.where == "round 4, promised in round 2"

    def test_is_not_proven_without_round_of_promise(
        self, there: tuple[Row, Rounds], other: Row
    ) -> None:
        del there[1].bundles[2]
        report = verified([other], there[1])
        assert (report.findings, report.not_recomputed[NO_PROMISE]) == ([], 1)
        assert report.verdict() is ProofVerdict.NOT_PROVEN

    def test_of_open_hour_is_not_proven(self, there: tuple[Row, Rounds]) -> None:
        report = verified([], there[1])
        assert (report.findings, report.not_recomputed[OPEN]) == ([], 1)
        assert {row.gap for row in report.unproven} == {Gap.ROWS}

    def test_of_other_time_is_no_finding(self, there: tuple[Row, Rounds], other: Row) -> None:
        span_us = (to_us(BEGIN) + 2 * HOUR_US, SPAN_US[1])
        report = verified([other], there[1], span_us)
        assert (report.findings, report.not_recomputed[NO_PROMISE]) == ([], 0)


@pytest.mark.parametrize("gap", [Gap.ROWS, Gap.ROUNDS, Gap.NAMES])
def test_credit_without_evidence_is_not_proven(there: tuple[Row, Rounds], gap: Gap) -> None:
    entry, rounds = there
    if gap is Gap.ROWS:
        entry["late_start"] = None
    elif gap is Gap.ROUNDS:
        del rounds.bundles[2]
    else:
        rounds.keys.clear()
    report = verified([entry], rounds)
    assert report.findings == []
    assert {row.gap for row in report.unproven} == {gap}
    assert report.verdict() is ProofVerdict.NOT_PROVEN
