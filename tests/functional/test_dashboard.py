"""A tenant's dashboard: its audience, and that its figures add up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from billing.tasks import meter
from evenshare_core.policies.registry import POLICIES
from portal.charts.figures import credits_text
from portal.charts.notes import LineItem
from portal.overview.text.dashboard import Board, day_title, stats
from scheduling.selectors.rounds.histories import ClaimHistoryPoint, claim_history
from scheduling.selectors.tenants.pools import pool_uses
from tenants.models import Quota
from tenants.scopes import tenant_scope
from tests.functional.visitors import Town, reads, town
from tests.stages import staged

PAGE = "/t/north/"
AT = datetime(2026, 1, 5, tzinfo=UTC)


@pytest.mark.django_db
class TestWhoMaySeeIt:
    def test_is_its_people_and_the_operators(self) -> None:
        place = town()
        for client in (place.owner, place.mate, place.operator):
            assert client.get(PAGE).status_code == 200

    def test_is_nobody_else(self) -> None:
        place = town()
        for client in (place.neighbour, place.outsider):
            assert client.get(PAGE).status_code == 404
        assert place.owner.get("/t/nowhere/").status_code == 404
        assert place.nobody.get(PAGE).headers["Location"] == "/login/?next=/t/north/"

    def test_is_not_of_a_pool_where_the_tenant_has_nothing(self) -> None:
        place = town()
        assert place.owner.get(f"{PAGE}?pool={place.cluster.pool.name}").status_code == 200
        assert place.owner.get(f"{PAGE}?pool={place.elsewhere.pool.name}").status_code == 404


@pytest.mark.django_db
class TestBeforeAnythingHappened:
    def test_says_what_there_is(self) -> None:
        page = town().owner.get(PAGE).content
        assert b"has had no job in this pool" in page
        assert b"No job is queued" in page

    def test_says_what_a_quota_means_under_the_policy(self) -> None:
        place = town()
        quota_text = POLICIES[place.cluster.pool.policy].quota_text
        assert quota_text in place.owner.get(PAGE).content.decode()

    def test_says_that_there_is_no_quota(self) -> None:
        place = town()
        Quota.objects.filter(tenant=place.tenant).delete()
        assert b"has no quota yet" in place.owner.get(PAGE).content


@pytest.mark.django_db
class TestIdleQuota:
    """The text on idle quota depends on the quota's mode and its lend limit."""

    @pytest.mark.parametrize(
        ("terms", "said", "unsaid"),
        [
            ({"mode": "RESERVE"}, "they are not lent", "other tenants may borrow"),
            ({"mode": "LEND", "lend_limit": 0}, "they are not lent", "other tenants may borrow"),
            ({"mode": "LEND"}, "other tenants may borrow them", "not lent"),
            (
                {"lend_limit": 3},
                "borrow 3 of them at the posted price; the other 1 is",
                "borrow them",
            ),
            ({}, "other tenants may borrow them", "not lent"),
        ],
    )
    def test_is_said_to_be_lent_where_it_is(
        self, terms: dict[str, Any], said: str, unsaid: str
    ) -> None:
        place = town()
        Quota.objects.filter(tenant=place.tenant).update(**terms)
        page = place.owner.get(PAGE).content.decode()
        deck = " ".join(page.split('class="deck"')[1].split("</p>")[0].split())
        assert said in deck
        assert unsaid not in deck
        assert ("free for others" in page) == ("tenants may" in said or "borrow 3" in said)
        assert ("idle, not lent" in page) == ("not lent" in said or "borrow 3" in said)

    def test_of_one_gpu_reads_as_one(self) -> None:
        place = town()
        Quota.objects.filter(tenant=place.tenant).update(gpus=1)
        assert b"other tenants may borrow it" in place.owner.get(PAGE).content


class TestTheDay:
    """The heading of the use chart is exact to the minute, for any part of the day."""

    @pytest.mark.parametrize(
        ("above", "title"),
        [
            ([], "Within quota for all of the last 20 h"),
            ([600], "Above quota for 10 min of the last 20 h"),
            (list(range(0, 1200, 10)), "Above quota for all of the last 20 h"),
            (list(range(0, 1190, 10)), "Above quota for all but 10 min of the last 20 h"),
        ],
    )
    def test_counts_a_short_spike(self, above: list[int], title: str) -> None:
        days = [
            ClaimHistoryPoint(
                n, AT + timedelta(minutes=n), AT, 1, "gpu", 5 if n in above else 3, 4, 1.0, 1, 1
            )
            for n in range(0, 1200, 10)
        ]
        assert day_title(days, AT + timedelta(hours=20)) == title


def played_town() -> Town:
    """Create a town in which north runs two jobs on 6 GPUs, with a quota of 4; three more wait."""
    place = town()
    for gpus in (4, 2, 4, 4, 4):
        place.submit(gpus)
    place.submit(2, tenant="south")
    place.play(2)
    return place


busy = staged(played_town)


def board_of(place: Town) -> Board:
    page = place.owner.get(PAGE)
    assert page.status_code == 200
    board: Board = page.context["board"]
    return board


class TestWhatItSays:
    @pytest.mark.parametrize(
        ("rho", "said"), [(0.97, "below"), (0.99, "at"), (1.01, "at"), (1.03, "above")]
    )
    def test_calls_what_is_within_two_percent_at_fair_share(
        self, busy: Town, rho: float, said: str
    ) -> None:
        board = board_of(busy)
        assert board.last is not None
        claim = replace(board.last.claims[0], received_gpu_s=100 * rho, deserved_gpu_s=100.0)
        received = stats(replace(board, last=replace(board.last, claims=(claim,))))[2]
        assert received.state is not None
        assert received.state.text == f"{said} fair share"

    def test_tells_the_hourly_deficit_unless_the_policy_forgets(self, busy: Town) -> None:
        assert "hourly deficit, last 24 h" in busy.owner.get(PAGE).content.decode()
        busy.cluster.pool.policy = "ltgf"
        busy.cluster.pool.options = {"fairness_window_s": 86_400}
        busy.cluster.pool.save(update_fields=["policy", "options"])
        assert "hourly deficit" not in busy.owner.get(PAGE).content.decode()

    def test_tells_how_long_a_short_lease_lasts(self, busy: Town) -> None:
        busy.cluster.pool.lease_s = 20
        busy.cluster.pool.save(update_fields=["lease_s"])
        assert b"A lease lasts 20 s of pool time" in busy.owner.get(PAGE).content

    def test_adds_up(self, busy: Town) -> None:
        board = board_of(busy)
        assert (board.has, board.own, board.borrowed) == (4, 4, 2)
        assert sum(run.gpus for run in board.runs) == board.uses == 6
        assert board.hourly == sum(run.hourly for run in board.runs)

    def test_names_whom_it_borrows_from_and_no_job_of_theirs(self, busy: Town) -> None:
        page = busy.owner.get(PAGE).content.decode()
        assert "borrowed from south" in page
        assert "south-2" not in page

    def test_names_nobody_who_lends_nothing(self, busy: Town) -> None:
        Quota.objects.exclude(tenant=busy.tenant).update(mode="RESERVE")
        assert "borrowed from south" not in busy.owner.get(PAGE).content.decode()

    def test_names_who_keeps_gpus_of_another_type_alone(self, busy: Town) -> None:
        kept = busy.cluster.add_type("a100", nodes=1, gpus=4, quotas={"south": 4})
        Quota.objects.filter(gpu_type=kept).update(mode="RESERVE")
        busy.play()
        assert "borrowed from south" in busy.owner.get(PAGE).content.decode()

    @pytest.mark.parametrize(("limit", "idle"), [(None, [2]), (1, [1]), (0, [])])
    def test_counts_of_a_lender_what_it_lends(
        self, busy: Town, limit: int | None, idle: list[int]
    ) -> None:
        Quota.objects.exclude(tenant=busy.tenant).update(lend_limit=limit)
        board = board_of(busy)
        assert board.last is not None
        assert [lender.idle for lender in board.last.lenders] == idle

    def test_groups_what_waits_by_reason_with_its_numbers(self, busy: Town) -> None:
        board = board_of(busy)
        assert [(wait.jobs, wait.gpus) for wait in board.waits] == [(3, 12)]
        assert "{" not in board.waits[0].why.sentence
        assert b"Why 3 jobs are queued" in busy.owner.get(PAGE).content

    def test_speaks_of_the_tenant_to_an_operator(self, busy: Town) -> None:
        page = busy.operator.get(PAGE).content
        assert b"north has" in page
        assert b"You have" not in page

    def test_shows_what_was_paid_and_earned(self, busy: Town) -> None:
        # The first term was granted before a price was posted; the second one is charged.
        busy.play(3, every_s=900)
        meter()
        money = board_of(busy).money
        assert money.paid > 0
        assert money.net == money.earned - money.paid

    def test_says_what_is_owed_without_a_sign(self, busy: Town) -> None:
        busy.play(3, every_s=900)
        meter()
        board = board_of(busy)
        assert board.money.net < 0
        owed = stats(board)[3]
        assert owed.label == "You owe, last 24 h"
        assert owed.figure == credits_text(-board.money.net)
        assert owed.total is not None
        assert owed.total == LineItem("total owed", owed.figure)

    def test_asks_as_often_for_more_jobs(self, busy: Town) -> None:
        few = len(reads(busy.owner, PAGE))
        for _ in range(20):
            busy.submit(1)
        busy.play(5)
        assert len(reads(busy.owner, PAGE)) <= few

    def test_reads_all_pools_by_one_query_each_with_what_its_round_counted(
        self, busy: Town, django_assert_num_queries: Any
    ) -> None:
        other, lab = busy.elsewhere.pool, busy.cluster
        gpu_type = busy.elsewhere.gpu_type
        busy.elsewhere.round()
        Quota.objects.create(
            tenant=busy.tenant, pool=other, gpu_type=gpu_type, gpus=3, valid_from=lab.at
        )
        Quota.objects.filter(tenant=busy.tenant, pool=lab.pool).update(gpus=2)
        times = {lab.pool.pk: lab.at, other.pk: lab.at}
        with tenant_scope(busy.tenant.pk), django_assert_num_queries(1):
            uses = pool_uses(busy.tenant.pk, times)
        # The last round of the first pool used the quota of four. The last round of the other pool
        # had no row of this tenant.
        assert [(use.pool_id, use.quota) for use in uses] == [(lab.pool.pk, 4), (other.pk, 3)]

    def test_shows_no_more_points_than_a_chart_can(self, busy: Town) -> None:
        busy.play(12)
        pool, tenant = busy.cluster.pool.pk, busy.tenant.pk
        since = busy.cluster.at.replace(year=2029)
        days = claim_history(pool, tenant, since=since)
        assert [day.number for day in days] == list(range(1, 15))
        thin = claim_history(pool, tenant, since=since, points=5)
        assert [day.number for day in thin] == [2, 5, 8, 11, 14]

    def test_reads_older_rounds_apart(self, busy: Town) -> None:
        busy.play(12)
        pool, tenant = busy.cluster.pool.pk, busy.tenant.pk
        since = busy.cluster.at.replace(year=2029)
        days = claim_history(pool, tenant, since=since)
        old = claim_history(pool, tenant, since=since, until=days[5].at)
        new = claim_history(pool, tenant, since=days[5].at)
        assert [*old, *new] == days
