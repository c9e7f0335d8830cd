"""Test row level security: the rows that a query returns in a tenant's scope, without filters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DataError, Error, connection, models, transaction
from django.db.models import QuerySet

from billing.models import Account, Entry, Transfer, UsageLine
from scheduling import models as scheduling
from scheduling.models import Job, Profile
from tenants import models as tenants
from tenants import scopes
from tenants.models import Quota
from tenants.scopes import engine_scope, site_reading, site_scope, tenant_scope, tenants_scope
from tests.functional.access_table import TABLE
from tests.functional.canaries import OWNED, strange_ids
from tests.functional.test_canaries import LOOKS, ask, leaks, own_words
from tests.functional.two_tenants import Pair, Side
from tests.scope import SECURED as WATCHED
from tests.scope import uncompared

# Read before a tenant's scope starts, to find the user and their tenants.
PEOPLE = (
    tenants.Tenant,
    tenants.User,
    tenants.Membership,
    tenants.ApiToken,
    tenants.AuditRecord,
)
SECURED = [model for model in OWNED if model not in PEOPLE]
# Models whose filter is removed, each with a URL that would show its rows.
FORGOTTEN = [
    (Job, "api/v1/jobs"),
    (Job, "t/<slug:slug>/jobs/"),
    (UsageLine, "api/v1/usage"),
    (Profile, "api/v1/pools/<slug:name>/profiles"),
    (Profile, "t/<slug:slug>/profiles/"),
    (Account, "t/<slug:slug>/ledger/"),
    (Entry, "t/<slug:slug>/ledger/"),
    (Quota, "t/<slug:slug>/"),
]


def rows_of(model: type[models.Model], side: Side) -> set[Any]:
    """Return the keys of a tenant's rows; for transfers, the keys of those with its entries."""
    way = "entries__account__tenant" if model is Transfer else OWNED[model]
    return set(model._default_manager.filter(**{way: side.tenant}).values_list("pk", flat=True))


def found(model: type[models.Model]) -> set[Any]:
    """Return the keys of all rows that are visible in the scope."""
    return set(model._default_manager.values_list("pk", flat=True))


@transaction.atomic
def found_in_no_scope(model: type[models.Model]) -> set[Any]:
    with connection.cursor() as cursor:
        cursor.execute(scopes.SET_SCOPE, [""])
    return found(model)


@pytest.fixture(autouse=True)
def _without_filters() -> Iterator[None]:
    with uncompared():
        yield


class TestTables:
    def test_all_tenant_tables_and_no_others_have_the_policy(self, pair: Pair) -> None:
        assert pair is not None
        query = (
            "SELECT relname FROM pg_class JOIN pg_policy ON polrelid = pg_class.oid"
            " WHERE relrowsecurity AND polname = 'of_scope'"
        )
        with connection.cursor() as cursor:
            cursor.execute(query)
            secured = {name for (name,) in cursor.fetchall()}
        assert secured == {model._meta.db_table for model in SECURED}
        assert [table for table in secured if not WATCHED.fullmatch(table)] == []

    def test_each_scope_finds_exactly_its_rows(self, pair: Pair) -> None:
        one, two = pair.one, pair.two
        for model in SECURED:
            mine, others, every = rows_of(model, one), rows_of(model, two), found(model)
            assert mine - others, model
            with tenant_scope(one.tenant.pk):
                assert found(model) == mine, model
            with tenants_scope([one.tenant.pk, two.tenant.pk]):
                assert found(model) == mine | others, model
            with tenants_scope([]):
                assert found(model) == set(), model
            for whole in (site_scope(), engine_scope(one.alone.pool.pk), tenants_scope(None)):
                with whole:
                    assert found(model) == every, model

    def test_reading_without_scope_raises(self, pair: Pair) -> None:
        assert pair is not None
        for model in SECURED:
            with pytest.raises(Error, match="without a scope"):
                found_in_no_scope(model)

    def test_cannot_change_or_insert_rows_of_another_tenant(self, pair: Pair) -> None:
        me, other = pair.one.tenant.pk, pair.two.tenant.pk
        with tenant_scope(me):
            assert Job.objects.filter(tenant=other).update(name="mine") == 0
            assert Profile.objects.filter(tenant=other).delete()[0] == 0
        profile = Profile.objects.filter(tenant=me).first()
        assert profile is not None
        for change in ({"tenant_id": other}, {"pk": None, "tenant_id": other, "name": "new"}):
            vars(profile).update(change)
            with pytest.raises(Error, match="row-level security"), tenant_scope(me):
                profile.save()


class TestScope:
    def test_nested_scope_restores_the_outer_one(self, pair: Pair) -> None:
        mine = rows_of(Job, pair.one)
        with tenant_scope(pair.one.tenant.pk):
            with site_scope():
                assert found(Job) > mine
            assert found(Job) == mine
            with pytest.raises(ZeroDivisionError), site_scope():
                _ = 1 // 0
            assert found(Job) == mine

    def test_site_reading_ends_after_caught_database_error(self, pair: Pair) -> None:
        with tenant_scope(pair.one.tenant.pk):
            with pytest.raises(DataError), site_reading(), transaction.atomic():
                connection.cursor().execute("SELECT 1 / 0")
            assert found(Job) == rows_of(Job, pair.one)

    def test_ends_with_its_transaction(self, pair: Pair) -> None:
        with tenant_scope(pair.one.tenant.pk):
            pass
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('evenshare.scope', true)")
            assert cursor.fetchone() == ("site",), "the tests' own again"


def forgetful(model: type[models.Model], filtered: Any, forgot: list[str]) -> Any:
    """Return a `QuerySet.filter` that ignores conditions by tenant for one model."""

    def filter_(self: QuerySet[Any], *conditions: Any, **named: Any) -> QuerySet[Any]:
        if self.model is model:
            by_tenant = [one for one in named if one.startswith(("tenant", "account"))]
            forgot.extend(by_tenant)
            named = {one: value for one, value in named.items() if one not in by_tenant}
        rows: QuerySet[Any] = filtered(self, *conditions, **named)
        return rows

    return filter_


class TestMissingFilter:
    @pytest.mark.parametrize(("model", "address"), FORGOTTEN)
    def test_reveals_nothing_of_the_other_tenant(
        self, pair: Pair, model: type[models.Model], address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        forgot: list[str] = []
        route, hidden = TABLE[address], strange_ids(pair.one, pair.two)
        monkeypatch.setattr(QuerySet, "filter", forgetful(model, QuerySet.filter, forgot))
        for words in own_words(pair.one, address, route, pair.one.pools[:1]):
            answer = ask(pair.one, "GET", address, route, words)
            assert not leaks(answer.content.decode(), pair.two, hidden, "full")
        assert forgot


class TestUrls:
    @pytest.mark.parametrize("turn", [0, 1])
    def test_answer_the_same_without_row_security(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch, turn: int
    ) -> None:
        """A page must not read data of the whole pool in a tenant's scope, which hides rows."""
        differ = []
        # Clocks are paused, and charts do not change.
        scheduling.PoolClock.objects.update(paused=True)
        for address, route in LOOKS[turn::2]:
            for words in own_words(pair.one, address, route, pair.one.pools[:1]):
                answers = [ask(pair.one, "GET", address, route, words)]
                with monkeypatch.context() as without:
                    without.setattr(scopes, "_array", lambda _: scopes.SITE)
                    answers.append(ask(pair.one, "GET", address, route, words))
                if _lasting(answers[0]) != _lasting(answers[1]):
                    differ.append(f"/{address}: {_difference(*map(_lasting, answers))}")
        assert not differ, "\n".join(differ)


def _difference(one: str, other: str) -> str:
    at = next(n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return f"{one[at - 90 : at + 90]!r}, not {other[at - 90 : at + 90]!r}"


def _lasting(answer: Any) -> str:
    changing = r"\d\d:\d\d:\d\d(?:\.\d+)?|data-ago=\"-?\d+\"|\w{64}|[0-9a-f-]{32,36}"
    return re.sub(changing, "", answer.content.decode())
