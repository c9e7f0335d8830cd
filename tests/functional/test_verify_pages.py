"""Test instructions to verify a page: client's command, head, viewer's last verification."""

from __future__ import annotations

import html
import re
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest

from billing.models import Transfer
from scheduling.models import Verification
from tenants import transparency
from tenants.models import User
from tenants.transparency.log import newest_root
from tests.functional.pool_stage import Stage

DAYS = "from=2030-01-01&to=2030-01-02"
STATEMENT = f"/t/alpha/ledger/statement/?{DAYS}"
CONTRIBUTION = f"/t/alpha/ledger/contribution/?{DAYS}"
CLIENT = "evenshare 1.0"


@pytest.fixture
def there(settled: Stage) -> Stage:
    settled.lab.seal()
    return settled


def text_of(there: Stage, who: str, path: str) -> str:
    """Return a page's text without tags, in one line."""
    page = there.page(who, path).split("<main")[1]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def command_of(text: str) -> str:
    found = re.search(
        r"evenshare statement verify --pool \S+ --tenant \S+ --from \S+ --to \S+", text
    )
    assert found is not None, text
    return found[0]


def say(there: Stage, who: str, tenant: str, **more: Any) -> Verification:
    """Report a verification by a person's client for this pool."""
    fields: dict[str, Any] = {
        "kind": "rounds", "first": 2, "last": 9, "size": 10, "root": "ab" * 32, "checked": 8,
        "findings": 0, "client": CLIENT,
    }  # fmt: skip
    row = Verification.objects.create(
        uid=uuid4(), tenant=there.tenant(tenant), pool=there.lab.pool,
        user=User.objects.get(username=who), **{**fields, **more},
    )  # fmt: skip
    row.refresh_from_db()
    return row


def statement(**more: Any) -> dict[str, Any]:
    return {
        "kind": "statement", "first": None, "last": None,
        "since": datetime.fromisoformat("2030-01-01T00:00:00Z"),
        "until": datetime.fromisoformat("2030-01-02T12:00:00Z"), **more,
    }  # fmt: skip


def head(there: Stage) -> str:
    size, root = newest_root(transparency.round_log(there.pool))
    assert size == 12
    return f"Signed head of {there.pool}: {size} rounds, root {root.hex()[:12]}…"


class TestVerificationHint:
    """A page of a tenant's money, or of a round."""

    def paths(self, there: Stage) -> dict[str, str]:
        transfer = Transfer.objects.filter(tenant__slug="alpha").order_by("hour").first()
        assert transfer is not None
        return {
            "statement": STATEMENT,
            "contribution": CONTRIBUTION,
            "transfer": f"/t/alpha/ledger/{transfer.pk}/",
            "round": there.url("rounds/3/"),
        }

    def test_shows_client_command_and_signed_head(self, there: Stage) -> None:
        for name, path in self.paths(there).items():
            text = text_of(there, "owner", path)
            assert head(there) in text, name
            assert "manage.py" not in text, name
            if name == "round":
                assert f"evenshare round verify 3 --pool {there.pool}" in text
                assert f"You have not verified {there.pool} yet." in text
            else:
                assert command_of(text).startswith(
                    f"evenshare statement verify --pool {there.pool} --tenant alpha --from 2030-"
                ), name
                assert f"You have not verified a statement of alpha in {there.pool} yet." in text

    def test_command_covers_the_period_shown(self, there: Stage) -> None:
        for path in (STATEMENT, CONTRIBUTION):
            text = text_of(there, "owner", path)
            assert command_of(text).endswith("--from 2030-01-01 --to 2030-01-03"), path

    def test_transfer_command_covers_its_hour(self, there: Stage) -> None:
        transfer = Transfer.objects.filter(tenant__slug="alpha").order_by("hour").first()
        assert transfer is not None
        text = text_of(there, "owner", f"/t/alpha/ledger/{transfer.pk}/")
        said = re.search(r"--from (\S+) --to (\S+)", command_of(text))
        assert said is not None
        since, until = (datetime.fromisoformat(word) for word in said.groups())
        assert since <= transfer.effective_at < until
        assert (until - since).total_seconds() == 3600

    def test_shows_last_own_verification_and_result(self, there: Stage) -> None:
        say(there, "owner", "alpha", last=4, checked=3)
        row = say(there, "owner", "alpha", findings=2)
        of_money = say(there, "owner", "alpha", **statement(checked=40))
        paths = self.paths(there)
        assert (
            f"You verified {there.pool} last on {row.said_at:%Y-%m-%d %H:%M:%S} UTC, up to round 9,"
            " with 2 findings, as reported by your client."
        ) in text_of(there, "owner", paths["round"])
        for name in ("statement", "contribution", "transfer"):
            assert (
                f"You verified a statement of alpha last on {of_money.said_at:%Y-%m-%d %H:%M:%S}"
                " UTC, 2030-01-01 to 2030-01-02 12:00 UTC, without findings, as reported by"
                " your client."
            ) in text_of(there, "owner", paths[name]), name

    def test_hides_verifications_of_other_users(self, there: Stage) -> None:
        """Other users do not see a verification.

        Its user does not see it on pages of other tenants.
        """
        say(there, "owner", "alpha")
        say(there, "owner", "alpha", **statement())
        neighbours = ("/t/beta/ledger/statement/", "/t/beta/ledger/contribution/")
        paths = self.paths(there)
        looks = [("mate", path) for path in paths.values()]
        looks += [("neighbour", path) for path in (*neighbours, paths["round"])]
        looks += [("operator", f"{path}?{DAYS}") for path in neighbours]
        for who, path in looks:
            text = text_of(there, who, path)
            if "evenshare" in text:
                assert "You have not verified " in text, (who, path)
            assert "last on" not in text, (who, path)

    def test_is_omitted_if_nothing_can_be_verified(self, there: Stage) -> None:
        assert "You have not" not in text_of(
            there, "operator", "/t/delta/ledger/contribution/line/"
        )

    def test_states_that_log_cannot_be_proven(
        self, there: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def damaged(_: str) -> None:
            raise transparency.DamagedLogError

        monkeypatch.setattr("scheduling.selectors.rounds.verifications.newest_root", damaged)
        text = text_of(there, "owner", STATEMENT)
        assert f"The log of {there.pool} cannot be proven at the moment" in text
        assert "Signed head" not in text


class TestOperatorPage:
    """The operator's page of a pool's rounds."""

    def path(self, there: Stage) -> str:
        return f"/operate/pools/{there.pool}/health/"

    def test_explains_verification_before_the_first(self, there: Stage) -> None:
        text = text_of(there, "operator", self.path(there))
        assert "0 of 3 tenants verified" in text
        assert "No tenant has verified this pool yet." in text
        assert f"evenshare round verify --last 10 --pool {there.pool}" in text

    def test_lists_last_verifications_of_each_tenant(self, there: Stage) -> None:
        say(there, "neighbour", "beta", last=3, checked=2)
        say(there, "owner", "alpha", findings=1)
        say(there, "mate", "alpha", **statement(checked=40))
        row = say(there, "neighbour", "beta", root="cd" * 32)
        page = there.page("operator", self.path(there))
        text = text_of(there, "operator", self.path(there))
        assert "2 of 3 tenants verified" in text
        table = page.split('id="t-verified"')[1].split("</table>")[0]
        rows = [
            " ".join(html.unescape(re.sub(r"<[^>]+>", " ", part)).split())
            for part in table.split("<tr>")[2:]
        ]
        assert len(rows) == 3
        assert rows[0].startswith("alpha ")
        assert "up to round 9, from 2" in rows[0]
        assert "with 1 finding" in rows[0]
        assert "statement, 2030-01-01 to 2030-01-02 12:00 UTC 40 amounts" in rows[1]
        assert "without findings" in rows[1]
        assert f"{row.said_at:%Y-%m-%d %H:%M}" in rows[2]
        assert "up to round 9, from 2 8 rounds 10 rounds, cdcdcdcdcdcd… " in rows[2]
        assert "owner" not in table, "who it was is the tenant's own business"

    def test_query_count_does_not_grow_with_tenants(self, there: Stage) -> None:
        before = there.reads("operator", self.path(there))
        say(there, "owner", "alpha")
        say(there, "neighbour", "beta")
        assert there.reads("operator", self.path(there)) == before
