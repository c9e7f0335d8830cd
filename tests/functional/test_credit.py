"""Test limits, budgets, allowances and transfers by services, pages, REST and a file."""

from __future__ import annotations

import re
from datetime import date, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import Error, transaction

from billing.checks import run_checks
from billing.ledger import open_accounts, open_book, post_allowance
from billing.models import Account, Transfer, TransferRequest
from billing.selectors.clock import book_now
from scheduling.models import Job
from tenants.models import AuditRecord, Budget, DailySpend, Membership, User
from tenants.tokens import Scope
from tests.factories import BEGIN
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.visitors import Town, town, visitor
from tests.stages import staged

Role = Membership.Role
TERMS = "operate/credit/aa/main"
GIFT = {"tenant": "aa", "to": "bb", "amount": "3", "reason": "for the course"}


def played_stage() -> ApiStage:
    stage = api_stage()
    stage.person("mia", "aa", Role.MANAGER)
    stage.person("otto", site_role="operator")
    stage.person("fin", site_role="finance")
    stage.person("aud", site_role="auditor")
    book = open_book("main")
    open_accounts(book, [tenant.pk for tenant in stage.cluster.tenants.values()])
    post_allowance(
        book=book, tenant_id=stage.cluster.tenants["aa"].pk, amount_micro=10_000_000,
        effective_at=BEGIN, name="start",
    )  # fmt: skip
    return stage


stage = staged(played_stage)


def limit(stage: ApiStage, **fields: Any) -> None:
    Budget.objects.filter(tenant=stage.cluster.tenants["aa"], book="main").update(**fields)


def balance(stage: ApiStage, tenant: str) -> str:
    return str(Account.objects.get(tenant=stage.cluster.tenants[tenant]).balance)


def wrong_books() -> list[str]:
    return [result.name for result in run_checks() if not result.ok]


def edit(stage: ApiStage, body: Any, *, as_: str = "fin") -> Any:
    seen = stage.get(TERMS, as_=as_)
    return stage.call("PUT", TERMS, body, as_=as_, **{"If-Match": seen.get("ETag", "none")})


class TestCreditTerms:
    def test_set_limit_of_budget_and_account_with_audit_record(self, stage: ApiStage) -> None:
        made = edit(stage, {"credit_limit": "5", "reason": "trial"})
        assert made.status_code == 200, made.content
        assert made.json()["credit_limit"] == "5.000000"
        budget = Budget.objects.get(tenant=stage.cluster.tenants["aa"])
        account = Account.objects.get(tenant=stage.cluster.tenants["aa"])
        assert budget.credit_limit == account.credit_limit == Decimal(5)
        record = AuditRecord.objects.get(action="credit.terms")
        assert (record.actor.username, record.reason) == ("fin", "trial")
        assert (record.before, record.after) == ({"credit_limit": None}, {"credit_limit": "5"})
        (row,) = stage.get("credit", as_="ada").json()["results"]
        assert (row["credit_limit"], row["promisable"]) == ("5.000000", "15.000000")
        assert wrong_books() == []

    def test_lower_limit_keeps_reserved_credits(self, stage: ApiStage) -> None:
        limit(stage, reserved=Decimal(12))
        assert edit(stage, {"credit_limit": "0"}).status_code == 200
        budget = Budget.objects.get(tenant=stage.cluster.tenants["aa"])
        assert (budget.reserved, budget.overrun) == (Decimal(12), Decimal(2))

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"credit_limit": "-1"}, "credit_limit"),
            ({"budget_amount": "0"}, "budget_amount"),
            ({"budget_amount": "5", "budget_period": "week"}, "budget_period"),
            ({"budget_amount": "5", "budget_action": "stop"}, "budget_action"),
            ({"budget_amount": "5", "budget_from": "2030-01-01T00:00:00Z"}, "budget_from"),
            ({"budget_amount": "5", "budget_period": "custom"}, "budget_from"),
            (
                {
                    "budget_amount": "5", "budget_period": "custom",
                    "budget_from": "2030-01-01T12:00:00Z", "budget_until": "2030-02-01T00:00:00Z",
                },
                "budget_from",
            ),
            (
                {
                    "budget_amount": "5", "budget_period": "custom",
                    "budget_from": "2030-02-01T00:00:00Z", "budget_until": "2030-02-01T00:00:00Z",
                },
                "budget_until",
            ),
        ],
    )  # fmt: skip
    def test_invalid_value_names_field(
        self, stage: ApiStage, body: dict[str, Any], field: str
    ) -> None:
        refused = edit(stage, body)
        assert refused.status_code == 400, refused.content
        assert refused.json()["errors"][0]["field"] == field

    @pytest.mark.parametrize(("who", "status"), [("aud", 403), ("ada", 404), ("mia", 404)])
    def test_reject_changes_by_auditors_and_tenants(
        self, stage: ApiStage, who: str, status: int
    ) -> None:
        headers = {"If-Match": '"x"'}
        answer = stage.call("PUT", TERMS, {"credit_limit": "5"}, as_=who, **headers)
        assert answer.status_code == status


class TestCreditLimit:
    def test_account_limit_changes_only_with_its_budget(self, stage: ApiStage) -> None:
        accounts = Account.objects.filter(tenant=stage.cluster.tenants["aa"])
        with pytest.raises(Error, match="permission denied"), transaction.atomic():
            accounts.update(credit_limit=99)
        limit(stage, credit_limit=7)
        assert accounts.get().credit_limit == 7


class TestAllowance:
    BODY = {"tenant": "aa", "amount": "2.5", "name": "2026-Q4", "reason": "grant 7"}

    def test_is_posted_once_per_key_and_name(self, stage: ApiStage) -> None:
        path, headers = "operate/allowances", {"Idempotency-Key": "k"}
        first = stage.post(path, self.BODY, as_="fin", **headers)
        assert first.status_code == 201, first.content
        again = stage.post(path, self.BODY, as_="fin", **headers)
        named = stage.post(path, self.BODY, as_="otto")
        assert first.json() == again.json() == named.json()
        assert again["Idempotent-Replayed"] == named["Idempotent-Replayed"] == "true"
        assert balance(stage, "aa") == "12.500000"
        transfer = Transfer.objects.get(pk=first.json()["transfer"])
        assert transfer.data == {"name": "2026-Q4", "reason": "grant 7"}
        assert AuditRecord.objects.filter(action="credit.allowance").count() == 1
        assert wrong_books() == []

    def test_reused_name_with_other_amount_returns_409(self, stage: ApiStage) -> None:
        stage.post("operate/allowances", self.BODY, as_="fin")
        other = stage.post("operate/allowances", {**self.BODY, "amount": "3"}, as_="fin")
        assert other.status_code == 409
        assert balance(stage, "aa") == "12.500000"

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"amount": "0"}, "amount"), ({"amount": "-1"}, "amount"), ({"amount": None}, "amount"),
            ({"amount": "1.0000001"}, "amount"), ({"tenant": "none"}, "tenant"),
            ({"book": "none"}, "book"), ({"name": "a/b"}, "name"), ({"reason": ""}, "reason"),
        ],
    )  # fmt: skip
    def test_invalid_value_names_field(
        self, stage: ApiStage, change: dict[str, Any], field: str
    ) -> None:
        refused = stage.post("operate/allowances", self.BODY | change, as_="fin")
        assert refused.status_code == 400, refused.content
        assert refused.json()["errors"][0]["field"] == field
        assert balance(stage, "aa") == "10.000000"

    def test_file_is_posted_once_and_only_with_apply(self, stage: ApiStage, tmp_path: Path) -> None:
        path, out = tmp_path / "allowances.csv", StringIO()
        path.write_text("tenant,amount,name,reason\naa,1,one,first\nbb,2.25,one,second\n")
        call_command("post_allowances", str(path), stdout=out)
        assert "2 of 2 new; nothing posted" in out.getvalue()
        assert balance(stage, "aa") == "10.000000"
        for expected in ("2 of 2 new; posted", "0 of 2 new; posted"):
            out = StringIO()
            call_command("post_allowances", str(path), apply=True, user="fin", stdout=out)
            assert expected in out.getvalue()
        assert (balance(stage, "aa"), balance(stage, "bb")) == ("11.000000", "2.250000")

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("tenant,amount,name\n", "line 1, reason: this column is missing"),
            ("tenant,amount,name,reason\naa,1,one,x\naa,1,one,x\n", "line 3, name: repeats line 2"),
            (
                "tenant,amount,name,reason\naa,1,one,x\nzz,1,one,x\n",
                "line 3, tenant: is not a tenant",
            ),
            ("tenant,amount,name,reason\naa,1e3,one,x\n", "line 2, amount: must be"),
        ],
    )
    def test_invalid_line_rejects_the_whole_file(
        self, stage: ApiStage, tmp_path: Path, text: str, complaint: str
    ) -> None:
        path, out = tmp_path / "allowances.csv", StringIO()
        path.write_text(text)
        with pytest.raises(SystemExit):
            call_command("post_allowances", str(path), apply=True, user="fin", stderr=out)
        assert complaint in out.getvalue()
        assert balance(stage, "aa") == "10.000000"


class TestTransfer:
    def ask(self, stage: ApiStage, as_: str = "mia", **change: Any) -> Any:
        return stage.post("transfers", GIFT | change, as_=as_)

    def test_moves_credits_after_approval(self, stage: ApiStage) -> None:
        asked = self.ask(stage)
        assert asked.status_code == 201, asked.content
        assert (asked.json()["state"], balance(stage, "aa")) == ("asked", "10.000000")
        path = f"operate/transfers/{asked.json()['id']}"
        for _ in range(2):  # a repeated approval changes nothing
            done = stage.post(f"{path}/approve", {"answer": "fine"}, as_="fin")
            assert done.status_code == 200, done.content
        assert (done.json()["state"], done.json()["decided_by"]) == ("approved", "fin")
        assert (balance(stage, "aa"), balance(stage, "bb")) == ("7.000000", "3.000000")
        assert stage.post(f"{path}/refuse", {}, as_="fin").status_code == 409
        assert wrong_books() == []
        (row,) = stage.get("transfers", as_="ada").json()["results"]
        assert row == done.json()
        assert stage.get("transfers", as_="bob").json()["results"] == []

    def test_request_is_idempotent_by_key(self, stage: ApiStage) -> None:
        asked = [
            stage.post("transfers", GIFT, as_="mia", **{"Idempotency-Key": "k"}).json()["id"]
            for _ in range(2)
        ]
        assert asked[0] == asked[1]
        assert TransferRequest.objects.count() == 1

    def test_requires_approval_by_a_second_person(self, stage: ApiStage) -> None:
        User.objects.filter(username="mia").update(site_role="finance")
        uid = self.ask(stage).json()["id"]
        refused = stage.post(f"operate/transfers/{uid}/approve", {}, as_="mia")
        assert refused.status_code == 409
        assert "another person must decide" in refused.json()["detail"]
        row = TransferRequest.objects.filter(uid=uid)
        mia = User.objects.get(username="mia")
        with pytest.raises(Error, match="transfer_request_by_two_people"), transaction.atomic():
            row.update(state="refused", decided_by=mia, decided_at=BEGIN)

    def test_rejects_amount_above_unreserved_credits(self, stage: ApiStage) -> None:
        limit(stage, credit_limit=0, reserved=8)
        refused = self.ask(stage)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "amount")
        limit(stage, reserved=0)
        uid = self.ask(stage).json()["id"]
        limit(stage, reserved=8)  # rounds have reserved credits since the request
        late = stage.post(f"operate/transfers/{uid}/approve", {}, as_="fin")
        assert late.status_code == 409
        assert balance(stage, "aa") == "10.000000"
        assert TransferRequest.objects.get().state == "asked"

    @pytest.mark.parametrize(("who", "status"), [("ada", 403), ("bob", 400), ("otto", 403)])
    def test_can_only_be_requested_by_manager(self, stage: ApiStage, who: str, status: int) -> None:
        assert self.ask(stage, as_=who).status_code == status
        assert not TransferRequest.objects.exists()

    def test_hidden_recipient_looks_like_missing_tenant(self, stage: ApiStage) -> None:
        stage.cluster.pool.visibility = "own"
        stage.cluster.pool.save()
        hidden, none = self.ask(stage).json(), self.ask(stage, to="none").json()
        assert hidden["errors"] == none["errors"]
        assert hidden["errors"][0]["field"] == "to"

    def test_requires_token_with_scope(self, stage: ApiStage) -> None:
        secret = stage.token("mia", Scope.READ, Scope.JOBS_WRITE)
        assert self.ask(stage, as_=secret).status_code == 403


class TestBudget:
    def spend(self, stage: ApiStage, amount: str, days_ago: int = 0) -> None:
        day = (book_now("main") - timedelta(days=days_ago)).date()
        tenant = stage.cluster.tenants["aa"]
        DailySpend.objects.create(tenant=tenant, book="main", day=day, amount=Decimal(amount))

    def test_shows_remaining_amount_without_unreliable_projection(self, stage: ApiStage) -> None:
        assert edit(stage, {"budget_amount": "100"}).status_code == 200
        self.spend(stage, "81")
        limit(stage, reserved=4)
        (row,) = stage.get("credit", as_="ada").json()["results"]
        budget = row["budget"]
        shown = ("spent", "committed", "left", "stops_at", "state")
        assert {key: budget[key] for key in shown} == {
            "spent": "81.000000", "committed": "4.000000", "left": "15.000000",
            "stops_at": "120.000000", "state": "notice",
        }  # fmt: skip
        assert (budget["runs_out_on"], row["promisable"]) == (None, "35.000000")
        assert "No reliable projection" in budget["projection"]

    def test_blocking_budget_rejects_jobs_that_must_borrow(self, stage: ApiStage) -> None:
        stage.cluster.round()
        stage.cluster.submit("bb", 4, 10_000)
        stage.cluster.round(after_s=10)  # now a price is posted
        stage.cluster.round(after_s=10)
        limit(stage, period_amount=1, period_action="block")
        self.spend(stage, "1")
        within = stage.post("jobs", stage.spec(gpus=3))
        assert within.status_code == 201, within.content
        beyond = stage.post("jobs", stage.spec(gpus=4))
        assert beyond.status_code == 400, beyond.content
        (error,) = beyond.json()["errors"]
        assert error["field"] == "gpus"
        assert "budget" in error["reason"]
        many = stage.post("jobs/bulk", {"jobs": [stage.spec(gpus=3), stage.spec(gpus=4)]})
        assert many.json()["errors"][0]["field"] == "jobs[1].gpus"
        limit(stage, period_action="warn")
        assert stage.post("jobs", stage.spec(gpus=4)).status_code == 201


class TestBudgetThresholds:
    def test_acts_at_80_100_and_120_percent_of_budget(self, stage: ApiStage) -> None:
        stage.cluster.round()
        stage.cluster.submit("bb", 4, 10_000)
        for _ in range(2):  # now a price is posted
            stage.cluster.round(after_s=10)
        terms = {
            "budget_amount": "100", "budget_period": "custom", "budget_action": "block",
            "budget_from": "2020-01-01T00:00:00Z", "budget_until": "2099-01-01T00:00:00Z",
        }  # fmt: skip
        assert edit(stage, terms).status_code == 200
        today = book_now("main").date()
        for days_ago in range(1, 10):
            self.spend(stage, "9", today - timedelta(days=days_ago))
        budget = self.budget(stage)
        in_two_days = today + timedelta(days=19 // 9)
        assert (budget["state"], budget["runs_out_on"]) == ("notice", in_two_days.isoformat())
        borrowing = stage.spec(gpus=4)
        assert stage.post("jobs", borrowing).status_code == 201
        self.spend(stage, "19", today)
        assert self.budget(stage)["state"] == "full"
        refused = stage.post("jobs", borrowing)
        assert refused.status_code == 400
        assert "budget" in refused.json()["errors"][0]["reason"]
        assert edit(stage, {**terms, "budget_action": "warn"}).status_code == 200
        job = stage.post("jobs", borrowing).json()["id"]
        DailySpend.objects.filter(day=today).update(amount=39)
        assert self.budget(stage)["state"] == "stopped"
        stage.cluster.round(after_s=10)
        assert Job.objects.get(uid=job).reason_code == "budget"

    def spend(self, stage: ApiStage, amount: str, day: date) -> None:
        tenant = stage.cluster.tenants["aa"]
        DailySpend.objects.create(tenant=tenant, book="main", day=day, amount=Decimal(amount))

    def budget(self, stage: ApiStage) -> Any:
        (row,) = stage.get("credit", as_="ada").json()["results"]
        return row["budget"]


class TestCreditPages:
    @pytest.fixture
    def there(self, committed_db: str) -> Town:
        assert committed_db
        made = town()
        made.play(1)
        book = open_book("main")
        tenants = [*made.cluster.tenants.values()]
        open_accounts(book, [tenant.pk for tenant in tenants])
        return made

    def test_manager_requests_and_finance_approves_transfer(self, there: Town) -> None:
        manager = visitor("man", there.tenant, Role.MANAGER)
        path = "/t/north/credit/"
        form = {"to": "south", "amount": "4", "reason": "course", "book": "main"}
        assert manager.post(path, form).status_code == 302
        shown = manager.get(path).content.decode()
        assert "course" in shown
        labels = dict(re.findall(r'<label for="f-(\w+)">([^<]*?)\s*<', shown))
        assert labels == {"to": "To", "amount": "Amount", "reason": "Reason"}
        assert "waits" in there.operator.get("/operate/credit/").content.decode()
        finance = visitor("fin", site_role=User.SiteRole.FINANCE)
        uid = str(TransferRequest.objects.get().uid)
        done = finance.post("/operate/credit/", {"do": "approve", "uid": uid, "answer": "ok"})
        assert done.status_code == 302, done.content
        assert str(Account.objects.get(tenant=there.tenant).balance) == "-4.000000"

    def test_other_users_cannot_request_transfer(self, there: Town) -> None:
        for client, status in ((there.owner, 403), (there.mate, 403), (there.neighbour, 404)):
            assert client.post("/t/north/credit/", {"to": "south"}).status_code == status

    def test_operator_sets_terms_and_posts_allowance(self, there: Town) -> None:
        path = "/operate/credit/north/main/"
        terms = {
            "do": "terms", "credit_limit": "5", "budget_amount": "10", "budget_period": "custom",
            "budget_action": "block", "budget_from": "2020-01-01", "budget_until": "2099-01-01",
        }  # fmt: skip
        assert there.operator.post(path, terms).status_code == 302
        budget = Budget.objects.get(tenant=there.tenant)
        assert (budget.credit_limit, budget.period_amount) == (Decimal(5), Decimal(10))
        allowance = {"do": "allowance", "amount": "8", "name": "one", "reason": "start"}
        assert there.operator.post(path, allowance).status_code == 302
        assert Budget.objects.get(tenant=there.tenant).spendable == 8
        wrong = there.operator.post(path, {**terms, "budget_until": "2019-01-01"})
        assert wrong.status_code == 422
        assert "must be after its first day" in wrong.content.decode()

    def test_overview_shows_budget_notice_from_80_percent(self, there: Town) -> None:
        Budget.objects.filter(tenant=there.tenant).update(period_amount=100)
        assert "Budget at" not in there.owner.get("/t/north/").content.decode()
        DailySpend.objects.create(
            tenant=there.tenant, book="main", day=there.cluster.at.date(), amount=85
        )
        shown = there.owner.get("/t/north/").content.decode()
        assert "Budget at 85" in shown
        plain = " ".join(re.sub(r"<[^>]*>", "", shown).split())
        assert "At 120 % (120" in plain
        assert "new and renewed borrowing stops" in plain
        assert "Runs out: No reliable projection" in plain
        Budget.objects.filter(tenant=there.tenant).update(period_action="block")
        blocks = there.owner.get("/t/north/").content.decode()
        assert "At 100 % (100" in " ".join(re.sub(r"<[^>]*>", "", blocks).split())
        Budget.objects.filter(tenant=there.tenant).update(period_amount=85)
        assert "Borrowing has stopped; own quota" in there.owner.get("/t/north/").content.decode()
        assert "85" in there.owner.get("/t/north/credit/").content.decode()
