"""Test a term that expired while no round ran: what a borrower sees, and recomputation."""

from __future__ import annotations

import copy
import csv
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from billing.models import Transfer, UsageLine, UsageShare
from billing.selectors.statements import LATE, account_statement
from evenshare_core.domain.instants import to_us
from evenshare_core.money.fixed_point import largest_remainder, term_charge, to_micro, to_text
from evenshare_core.units import HOUR_US
from evenshare_core.verification.statement_report import StatementReport
from evenshare_core.verification.statement_rounds import PAST_EXPIRY, verify_with_rounds
from evenshare_core.verification.statement_rows import read_statement
from tenants.answers import time_text
from tests.functional.api_stage import ApiStage
from tests.functional.lending_stage import disclosed, late_stage
from tests.functional.test_api_income import ALL, Answers, answers
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


class TestLateRound:
    def test_recomputes_for_lender_and_borrower(self, live: ApiStage) -> None:
        for who, slug in (("ada", "aa"), ("bob", "bb")):
            report = compared(live, answers(live, who), slug)
            assert report.findings == []
            assert report.not_recomputed[PAST_EXPIRY] == 0
            assert report.recomputed["late rounds"] == 1
        assert report.recomputed["income"] > 2

    def test_charges_only_one_lease_length(self, live: ApiStage) -> None:
        row, line = late_row(answers(live, "ada")), the_line()
        assert line.charged_until is not None
        quarter_us = 900 * 1_000_000
        due, _ = term_charge(line.gpus, to_micro(line.price), quarter_us, line.carried or 0)
        assert (to_micro(line.amount), row["amount"]) == (due, to_text(due))
        assert to_us(line.charged_until) - to_us(line.starts_at) == quarter_us

    def test_is_shown_on_pages_and_in_csv_of_borrower(self, live: ApiStage) -> None:
        line, client = the_line(), Client()
        client.force_login(live.people["ada"])
        transfer = Transfer.objects.get(hour=line.hour, tenant=line.tenant, code="usage")
        for path in (f"/jobs/{line.job.uid}/", f"/t/aa/ledger/{transfer.pk}/"):
            page = client.get(path).content.decode()
            assert "rounds were late" in page, path
        # The operator has a part in the transfer because it paid, not because of a quota.
        assert "operator, for time without rounds" in page
        assert "operator, for unallocated quota" not in page
        days = "since=2029-12-01&until=2030-12-01"
        answer = client.get(f"/t/aa/ledger/statement.csv?book=main&{days}")
        lines = answer.content.decode().splitlines()
        rows = {row["transfer"]: row for row in csv.DictReader(lines)}
        assert rows[str(transfer.pk)]["not_charged_gpu_h"] == f"{line.gpus * 4.25:.6f}"
        statement = client.get(f"/t/aa/ledger/statement/?{days}").content.decode()
        assert "operator, for time without rounds" in statement


class TestAlteredUsage:
    def test_charge_past_expiry_is_detected(self, live: ApiStage) -> None:
        """The changed numbers agree with each other. Only the round shows when the term expired."""
        stated = copy.deepcopy(answers(live, "ada"))
        row, line = late_row(stated), the_line()
        later, full = line.starts_at + timedelta(hours=1), line.amount + line.borne
        more, _ = term_charge(line.gpus, to_micro(line.price), HOUR_US, line.carried or 0)
        row |= {"charged_until": time_text(later), "amount": to_text(more)}
        row["borne"] = to_text(to_micro(full) - more)
        assert "charged until" in {one.what for one in compared(live, stated).findings}

    def test_charge_past_end_is_detected(self, live: ApiStage) -> None:
        stated = copy.deepcopy(answers(live, "ada"))
        late_row(stated)["charged_until"] = time_text(the_line().ends_at + timedelta(hours=1))
        assert "charged time" in {one.what for one in compared(live, stated).findings}

    @pytest.mark.parametrize("field", ["amount", "borne"])
    def test_altered_amount_is_detected(self, live: ApiStage, field: str) -> None:
        stated = copy.deepcopy(answers(live, "ada"))
        late_row(stated)[field] = "0.000001"
        assert "late rounds" in {one.what for one in compared(live, stated).findings}

    def test_row_without_late_round_data_is_not_proven(self, live: ApiStage) -> None:
        """Older terms lack data on late rounds and look the same, so no change is proven."""
        stated = copy.deepcopy(answers(live, "ada"))
        row, line = late_row(stated), the_line()
        row |= {"charged_until": None, "borne": "0.000000"}
        row["amount"] = to_text(to_micro(line.amount) + to_micro(line.borne))
        assert compared(live, stated).not_recomputed[PAST_EXPIRY] == 1


def late_income(stated: Answers) -> dict[str, Any]:
    (row,) = [row for row in stated["income"] if row["charged_until"]]
    return row


def the_share() -> UsageShare:
    return UsageShare.objects.get(line=the_line(), account__tenant__slug="bb")


class TestLender:
    def test_answers_include_part_paid_by_operator(self, live: ApiStage) -> None:
        """The operator paid the same part of each share of the line, to the micro-credit."""
        stated, line, share = answers(live, "bob"), the_line(), the_share()
        shares = line.shares.order_by("account__tenant_id").values_list("amount", flat=True)
        parts = largest_remainder(to_micro(line.borne), [to_micro(one) for one in shares])
        mine = to_text(parts[[*shares].index(share.amount)])
        row = late_income(stated)
        assert (row["borne"], row["earned_borne"]) == (to_text(to_micro(line.borne)), mine)
        (entry,) = [row for row in stated["entries"] if row["earned_borne"] != "0.000000"]
        assert entry["earned_borne"] == mine
        whole = live.get(f"contribution?{ALL}", as_="bob").json()
        assert whole["borne"] == mine
        for name in ("by_day", "by_gpu_type", "by_borrower"):
            assert sum(to_micro(Decimal(row["borne"])) for row in whole[name]) == to_micro(
                Decimal(mine)
            )
        lines = live.get(f"contribution/lines?{ALL}", as_="bob").json()["results"]
        assert [row["earned_borne"] for row in lines if row["charged_until"]] == [mine]

    def test_pages_and_csv_show_part_paid_by_operator(self, live: ApiStage) -> None:
        mine, client = late_income(answers(live, "bob"))["earned_borne"], Client()
        client.force_login(live.people["bob"])
        days, line, share = "since=2029-12-01&until=2030-12-01", the_line(), the_share()
        transfer = Transfer.objects.get(hour=line.hour, tenant=line.tenant, code="usage")
        at = f"pool={live.pool}&line={round(share.hour.timestamp())}-{share.pk}"
        for path in (
            f"/t/bb/ledger/{transfer.pk}/",
            f"/t/bb/ledger/contribution/line/?{at}",
            f"/t/bb/ledger/contribution/?pool={live.pool}&{days}",
        ):
            page = client.get(path).content.decode()
            assert "rounds were late" in " ".join(page.split()), path
            assert mine in page, path
        for path, name in (
            (f"/t/bb/ledger/statement.csv?book=main&{days}", "earned_borne_credits"),
            (f"/t/bb/ledger/contribution.csv?pool={live.pool}&{days}", "earned_borne_credits"),
        ):
            lines = csv.DictReader(client.get(path).content.decode().splitlines())
            assert [row[name] for row in lines if row[name] not in ("", "0.000000")] == [mine]

    def test_statement_lists_operator_as_counterparty(self, live: ApiStage) -> None:
        mine = Decimal(late_income(answers(live, "bob"))["earned_borne"])
        since, until = datetime(2029, 12, 1, tzinfo=UTC), datetime(2030, 12, 1, tzinfo=UTC)
        for slug in ("bb", None):
            tenant = live.cluster.tenants[slug].pk if slug else None
            shown = account_statement(tenant, "main", since=since, until=until)
            assert sum(row.earned for row in shown.counterparties) == shown.earned
            assert sum(row.paid for row in shown.counterparties) == shown.paid
            (late,) = [row for row in shown.counterparties if row.code == LATE]
            if slug:
                assert late.tenant_id is None
                assert (late.earned, late.paid) == (mine, Decimal(0))
            else:
                assert late.paid == the_line().borne


class TestAlteredIncome:
    @pytest.mark.parametrize("field", ["borne", "earned_borne"])
    @pytest.mark.parametrize("to", ["0.000000", "0.000001", None])
    def test_altered_amount_is_detected(self, live: ApiStage, field: str, to: str | None) -> None:
        stated = copy.deepcopy(answers(live, "bob"))
        late_income(stated)[field] = to
        assert compared(live, stated, "bb").findings

    def test_missing_operator_part_is_detected(self, live: ApiStage) -> None:
        for name in ("income", "entries"):
            stated = copy.deepcopy(answers(live, "bob"))
            for row in stated[name]:
                for field in ("charged_until", "borne", "earned_borne"):
                    row.pop(field, None)
            assert "paid by the operator" in {
                one.what for one in compared(live, stated, "bb").findings
            }

    def test_altered_expiry_is_detected(self, live: ApiStage) -> None:
        """The changed numbers agree with each other. Only the round shows when the term expired."""
        stated = copy.deepcopy(answers(live, "bob"))
        bend(stated, the_line().starts_at + timedelta(hours=1))
        assert {one.what for one in compared(live, stated, "bb").findings} == {"charged until"}

    def test_row_claiming_borrower_paid_is_not_proven(self, live: ApiStage) -> None:
        """Older terms lack data on late rounds and look the same, so no change is proven."""
        stated = copy.deepcopy(answers(live, "bob"))
        bend(stated, None)
        report = compared(live, stated, "bb")
        assert report.findings == []
        assert report.not_recomputed[PAST_EXPIRY] == 1

    def test_answers_of_older_portal_still_verify(self, live: ApiStage) -> None:
        stated = copy.deepcopy(answers(live, "bob"))
        for row in (*stated["income"], *stated["entries"]):
            for field in ("charged_until", "borne", "earned_borne"):
                row.pop(field, None)
        report = compared(live, stated, "bb")
        assert (report.findings, report.unproven) == ([], [])


def bend(stated: Answers, until: datetime | None) -> None:
    """Change all answers consistently, so that the borrower is charged until another time."""
    line, row = the_line(), late_income(stated)
    held_us = to_us(until or line.ends_at) - to_us(line.starts_at)
    paid, _ = term_charge(line.gpus, to_micro(line.price), held_us, line.carried or 0)
    borne = to_micro(line.amount) + to_micro(line.borne) - paid
    shares = [
        (share.account.tenant.slug if share.account.tenant else "", to_micro(share.amount))
        for share in line.shares.select_related("account__tenant").order_by("account__tenant_id")
    ]
    parts = largest_remainder(borne, [amount for _, amount in shares])
    (mine,) = [part for part, (slug, _) in zip(parts, shares, strict=True) if slug == "bb"]
    (entry,) = [one for one in stated["entries"] if one["transfer"] == row["transfer"]]
    row |= {"charged_until": time_text(until), "borne": to_text(borne)}
    row["earned_borne"] = entry["earned_borne"] = to_text(mine)
