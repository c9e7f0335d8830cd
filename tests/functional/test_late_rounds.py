"""What a borrower reads, and can recompute, of a term that was due while no round came."""

from __future__ import annotations

import copy
import csv
import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from billing.models import Transfer, UsageLine
from evenshare_core.domain.instants import to_us
from evenshare_core.money.fixed_point import term_charge, to_micro, to_text
from evenshare_core.units import HOUR_US
from evenshare_core.verification.statement import StatementReport
from evenshare_core.verification.statement_rounds import PAST_EXPIRY, verify_with_rounds
from evenshare_core.verification.statement_rows import read_statement
from tenants.api.times import time_text
from tests.functional.api_stage import ApiStage
from tests.functional.lending_stage import disclosed, late_stage
from tests.functional.test_api_income import Answers, answers
from tests.stages import staged

live = staged(late_stage)


def compared(live: ApiStage, stated: Answers, slug: str = "aa") -> StatementReport:
    there = disclosed(live, slug)
    statement = read_statement(json.loads(json.dumps(stated)))
    instants = [one.at_us for one in there.rounds.values()]
    return verify_with_rounds(statement, there.rounds, there.keys, instants)


def late_row(stated: Answers) -> dict[str, Any]:
    (row,) = [row for row in stated["usage"] if row["charged_until"] and row["borne"] != "0.000000"]
    return row


def the_line() -> UsageLine:
    return UsageLine.objects.filter(borne__gt=0).get()


class TestALateRound:
    def test_is_recomputed_by_lender_and_borrower(self, live: ApiStage) -> None:
        for who, slug in (("ada", "aa"), ("bob", "bb")):
            report = compared(live, answers(live, who), slug)
            assert report.findings == []
            assert report.not_recomputed[PAST_EXPIRY] == 0
            assert report.recomputed["late rounds"] == (1 if slug == "aa" else 0) + 0
        assert report.recomputed["income"] > 2

    def test_is_charged_for_its_lease_length_alone(self, live: ApiStage) -> None:
        row, line = late_row(answers(live, "ada")), the_line()
        assert line.charged_until is not None
        quarter_us = 900 * 1_000_000
        due, _ = term_charge(line.gpus, to_micro(line.price), quarter_us, line.carried or 0)
        assert (to_micro(line.amount), row["amount"]) == (due, to_text(due))
        assert to_us(line.charged_until) - to_us(line.starts_at) == quarter_us

    def test_stands_on_the_pages_and_in_the_file_of_the_borrower(self, live: ApiStage) -> None:
        line, client = the_line(), Client()
        client.force_login(live.people["ada"])
        transfer = Transfer.objects.get(hour=line.hour, tenant=line.tenant, code="usage")
        for path in (f"/jobs/{line.job.uid}/", f"/t/aa/ledger/{transfer.pk}/"):
            assert "rounds were late" in client.get(path).content.decode(), path
        days = "since=2029-12-01&until=2030-12-01"
        answer = client.get(f"/t/aa/ledger/statement.csv?book=main&{days}")
        lines = answer.content.decode().splitlines()
        rows = {row["transfer"]: row for row in csv.DictReader(lines)}
        assert rows[str(transfer.pk)]["not_charged_gpu_h"] == f"{line.gpus * 4.25:.6f}"
        statement = client.get(f"/t/aa/ledger/statement/?{days}").content.decode()
        assert "operator, for time without rounds" in statement


class TestABentAnswer:
    def test_that_charges_past_the_expiry_is_found(self, live: ApiStage) -> None:
        """All of its numbers agree; only the round says when the term expired."""
        stated = copy.deepcopy(answers(live, "ada"))
        row, line = late_row(stated), the_line()
        later, full = line.starts_at + timedelta(hours=1), line.amount + line.borne
        more, _ = term_charge(line.gpus, to_micro(line.price), HOUR_US, line.carried or 0)
        row |= {"charged_until": time_text(later), "amount": to_text(more)}
        row["borne"] = to_text(to_micro(full) - more)
        assert "charged until" in {one.what for one in compared(live, stated).findings}

    def test_that_charges_past_the_end_is_found(self, live: ApiStage) -> None:
        stated = copy.deepcopy(answers(live, "ada"))
        late_row(stated)["charged_until"] = time_text(the_line().ends_at + timedelta(hours=1))
        assert "charged time" in {one.what for one in compared(live, stated).findings}

    @pytest.mark.parametrize("field", ["amount", "borne"])
    def test_is_found_by_its_sum(self, live: ApiStage, field: str) -> None:
        stated = copy.deepcopy(answers(live, "ada"))
        late_row(stated)[field] = "0.000001"
        assert "late rounds" in {one.what for one in compared(live, stated).findings}

    def test_that_says_nothing_of_late_rounds_is_not_proven(self, live: ApiStage) -> None:
        """So were terms of before: what differs is that no round came in time."""
        stated = copy.deepcopy(answers(live, "ada"))
        row, line = late_row(stated), the_line()
        row |= {"charged_until": None, "borne": "0.000000"}
        row["amount"] = to_text(to_micro(line.amount) + to_micro(line.borne))
        assert compared(live, stated).not_recomputed[PAST_EXPIRY] == 1
