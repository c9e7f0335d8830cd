"""Test a tenant's dashboard: its audience, and that its figures add up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from billing.tasks import meter
from evenshare_core.policies.registry import POLICIES
from portal.charts.figures import credits_text
from portal.charts.notes import LineItem
from portal.overview.text.board import Board
from portal.overview.text.charts import day_title
from portal.overview.text.lent import lent_context
from portal.overview.text.stats import stats
from scheduling.selectors.rounds.histories import ClaimHistoryPoint, claim_history
from scheduling.selectors.tenants.dashboard import LastRound, lent_now
from scheduling.selectors.tenants.pools import pool_uses
from scheduling.selectors.tenants.prospects import prospects
from scheduling.selectors.visibility import Visibility, VisibleTenant
from tenants.models import Quota
from tenants.scopes import tenant_scope
from tests.functional.page_text import sentences
from tests.functional.visitors import Town, reads, town
from tests.stages import staged

PAGE = "/t/north/"
AT = datetime(2026, 1, 5, tzinfo=UTC)


@pytest.mark.django_db
class TestPermissions:
    def test_members_and_operators_can_open(self) -> None:
        place = town()
        for client in (place.owner, place.mate, place.operator):
            assert client.get(PAGE).status_code == 200

    def test_returns_404_to_other_users(self) -> None:
        place = town()
        for client in (place.neighbour, place.outsider):
            assert client.get(PAGE).status_code == 404
        assert place.owner.get("/t/nowhere/").status_code == 404
        assert place.nobody.get(PAGE).headers["Location"] == "/login/?next=/t/north/"

    def test_returns_404_for_pool_without_quota_or_jobs(self) -> None:
        place = town()
        assert place.owner.get(f"{PAGE}?pool={place.cluster.pool.name}").status_code == 200
        assert place.owner.get(f"{PAGE}?pool={place.elsewhere.pool.name}").status_code == 404


@pytest.mark.django_db
class TestEmptyDashboard:
    def test_states_that_there_are_no_jobs(self) -> None:
        page = town().owner.get(PAGE).content
        assert b"has had no job in this pool" in page
        assert b"No job is queued" in page

    def test_explains_quota_under_the_policy(self) -> None:
        place = town()
        quota_text = POLICIES[place.cluster.pool.policy].quota_text
        assert quota_text in place.owner.get(PAGE).content.decode()

    def test_states_missing_quota(self) -> None:
        place = town()
        Quota.objects.filter(tenant=place.tenant).delete()
        assert b"has no quota yet" in place.owner.get(PAGE).content


@pytest.mark.django_db
class TestIdleQuota:
    """The text about idle quota depends on the quota's mode and its lend limit."""

    @pytest.mark.parametrize(
        ("terms", "said", "unsaid"),
        [
            ({"mode": "RESERVE"}, "they are not lent", "Other tenants may borrow"),
            ({"mode": "LEND", "lend_limit": 0}, "they are not lent", "Other tenants may borrow"),
            ({"mode": "LEND"}, "Other tenants may borrow them", "not lent"),
            (
                {"lend_limit": 3},
                "borrow 3 of them at the posted price. The other 1 is",
                "borrow them",
            ),
            ({}, "Other tenants may borrow them", "not lent"),
        ],
    )
    def test_text_follows_quota_mode_and_limits(
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

    def test_uses_singular_for_one_gpu(self) -> None:
        place = town()
        Quota.objects.filter(tenant=place.tenant).update(gpus=1)
        assert b"Other tenants may borrow it" in place.owner.get(PAGE).content


class TestDayTitle:
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
    def test_counts_minutes_above_quota(self, above: list[int], title: str) -> None:
        days = [
            ClaimHistoryPoint(
                n, AT + timedelta(minutes=n), AT, 1, "gpu", 5 if n in above else 3, 4, 1.0, 1, 1
            )
            for n in range(0, 1200, 10)
        ]
        assert day_title(days, AT + timedelta(hours=20)) == title


class TestLentGpus:
    """Tenant 1 borrows 2 GPUs; tenants 2 and 3 have 2 and 1 idle GPUs of quota."""

    SHARES = tuple(
        {"tenant": tenant, "gpu_type": "gpu", "quota": quota, "own": own, "borrowed": borrowed}
        for tenant, quota, own, borrowed in ((1, 4, 4, 2), (2, 6, 4, 0), (3, 1, 0, 0))
    )

    def test_are_in_proportion_to_idle_quota(self) -> None:
        lent = {tenant: lent_now(self.SHARES, {}, tenant) for tenant in (1, 2, 3)}
        assert lent[1] == (Fraction(0), ())
        assert lent[2] == (Fraction(4, 3), ((1, 2),))
        assert lent[3] == (Fraction(2, 3), ((1, 2),))

    def test_are_at_most_the_idle_quota(self) -> None:
        """A lease that a lender's job will replace still counts as borrowed."""
        shares = (dict(self.SHARES[0], borrowed=9), *self.SHARES[1:])
        assert lent_now(shares, {}, 2) == (Fraction(2), ((1, 9),))

    def test_note_lists_borrowers_that_the_sentence_omits(self) -> None:
        known = {one: VisibleTenant(one, one, f"t{one}", f"t{one}", one) for one in range(1, 5)}
        shares = tuple((one, 10 - one) for one in known)
        last = LastRound(1, AT, (), (), 30, 0, shares, Fraction(4))
        shown = lent_context(last, Visibility("full", known=known), ())
        assert shown["borrowers"] == "t1, t2 and 2 others"
        lines = [(line.label, line.value) for line in shown["borrowers_note"].line_items]
        assert lines == [("t1", "9"), ("t2", "8"), ("t3", "7"), ("t4", "6")]
        del known[4]
        assert lent_context(last, Visibility("own", known=known), ())["borrowers_note"] is None

    def test_of_other_types_do_not_count(self) -> None:
        shares = (dict(self.SHARES[0], gpu_type="other"), *self.SHARES[1:])
        assert lent_now(shares, {}, 2) == (Fraction(0), ())


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


class TestDashboard:
    @pytest.mark.parametrize(
        ("rho", "said"), [(0.97, "below"), (0.99, "at"), (1.01, "at"), (1.03, "above")]
    )
    def test_within_two_percent_is_at_fair_share(self, busy: Town, rho: float, said: str) -> None:
        board = board_of(busy)
        assert board.last is not None
        claim = replace(board.last.claims[0], received_gpu_s=100 * rho, deserved_gpu_s=100.0)
        received = stats(replace(board, last=replace(board.last, claims=(claim,))))[2]
        assert received.state is not None
        assert received.state.text == f"{said} fair share"

    def test_hides_hourly_deficit_if_policy_has_no_memory(self, busy: Town) -> None:
        assert "hourly deficit, last 24 h" in busy.owner.get(PAGE).content.decode()
        busy.cluster.pool.policy = "ltgf"
        busy.cluster.pool.options = {"fairness_window_s": 86_400}
        busy.cluster.pool.save(update_fields=["policy", "options"])
        assert "hourly deficit" not in busy.owner.get(PAGE).content.decode()

    def test_shows_short_lease_time_in_seconds(self, busy: Town) -> None:
        busy.cluster.pool.lease_s = 20
        busy.cluster.pool.save(update_fields=["lease_s"])
        assert b"A lease lasts 20 s of pool time" in busy.owner.get(PAGE).content

    def test_gpu_counts_and_costs_add_up(self, busy: Town) -> None:
        board = board_of(busy)
        assert (board.has, board.own, board.borrowed) == (4, 4, 2)
        assert sum(run.lease.gpus for run in board.runs) == board.uses == 6
        assert board.hourly == sum(run.hourly for run in board.runs)

    def test_pages_count_a_quota_as_the_pool_scales_it(self, busy: Town) -> None:
        """Quotas of 6 and 4 in 8 GPUs are scaled to 5 and 3."""
        Quota.objects.filter(tenant=busy.tenant).update(gpus=6)
        busy.play()
        assert board_of(busy).has == 5
        shown = sentences(busy.owner.get(PAGE).content.decode())
        assert "The quota of 6 GPUs counted as 5" in shown
        at, pool = busy.cluster.at, busy.cluster.pool.pk
        with tenant_scope(busy.tenant.pk):
            (start,) = prospects(pool, busy.tenant.pk, at=at)
        held = board_of(busy).own
        assert (start.quota, start.own_left) == (5, 5 - held)

    def test_names_lender_without_its_jobs(self, busy: Town) -> None:
        page = busy.owner.get(PAGE).content.decode()
        assert "borrowed from south" in page
        assert "south-2" not in page

    def test_omits_tenants_that_do_not_lend(self, busy: Town) -> None:
        Quota.objects.exclude(tenant=busy.tenant).update(mode="RESERVE")
        assert "borrowed from south" not in busy.owner.get(PAGE).content.decode()

    def test_names_lender_that_reserves_another_gpu_type(self, busy: Town) -> None:
        kept = busy.cluster.add_type("a100", nodes=1, gpus=4, quotas={"south": 4})
        Quota.objects.filter(gpu_type=kept).update(mode="RESERVE")
        busy.play()
        assert "borrowed from south" in busy.owner.get(PAGE).content.decode()

    @pytest.mark.parametrize(("limit", "idle"), [(None, [2]), (1, [1]), (0, [])])
    def test_idle_gpus_of_lender_respect_lend_limit(
        self, busy: Town, limit: int | None, idle: list[int]
    ) -> None:
        Quota.objects.exclude(tenant=busy.tenant).update(lend_limit=limit)
        board = board_of(busy)
        assert board.last is not None
        assert [idle for _, idle in board.last.lenders] == idle

    @pytest.mark.parametrize(("limit", "said"), [(None, "2 GPUs"), (1, "1 GPU")])
    def test_shows_how_much_is_lent_and_to_whom(
        self, busy: Town, limit: int | None, said: str
    ) -> None:
        Quota.objects.exclude(tenant=busy.tenant).update(lend_limit=limit)
        shown = sentences(busy.neighbour.get("/t/south/").content.decode())
        assert f"Lent now: {said} GPUs lent" in shown  # the note follows
        assert "/t/south/sharing/" in busy.neighbour.get("/t/south/").content.decode()
        assert ", to north." in shown
        assert ("You do not use the other 2. They are all lent." in shown) == (limit is None)
        assert "Lent now" not in sentences(busy.owner.get(PAGE).content.decode())

    def test_shows_that_nothing_is_lent(self, busy: Town) -> None:
        Quota.objects.exclude(tenant=busy.tenant).update(mode="RESERVE")
        shown = sentences(busy.neighbour.get("/t/south/").content.decode())
        assert "Lent now: none." in shown

    def test_groups_queued_jobs_by_reason(self, busy: Town) -> None:
        board = board_of(busy)
        assert sorted((wait.jobs, wait.gpus) for wait in board.waits) == [(1, 4), (2, 8)]
        assert not any("{" in wait.why.sentence for wait in board.waits)
        page = busy.owner.get(PAGE).content.decode()
        assert "Why 3 jobs are queued" in page
        assert all(wait.why.next_step in sentences(page) for wait in board.waits)

    def test_addresses_operator_in_third_person(self, busy: Town) -> None:
        page = busy.operator.get(PAGE).content
        assert b"north has" in page
        assert b"You have" not in page

    def test_shows_paid_and_earned_amounts(self, busy: Town) -> None:
        # The first term was granted before a price was posted; the second one is charged.
        busy.play(3, every_s=900)
        meter()
        money = board_of(busy).money
        assert money.paid > 0
        assert money.net == money.earned - money.paid

    def test_shows_debt_as_unsigned_amount(self, busy: Town) -> None:
        busy.play(3, every_s=900)
        meter()
        board = board_of(busy)
        assert board.money.net < 0
        owed = stats(board)[3]
        assert owed.label == "You owe, last 24 h"
        assert owed.figure == credits_text(-board.money.net)
        assert owed.total is not None
        assert owed.total == LineItem("total owed", owed.figure)

    def test_query_count_does_not_grow_with_jobs(self, busy: Town) -> None:
        few = len(reads(busy.owner, PAGE))
        for _ in range(20):
            busy.submit(1)
        busy.play(5)
        assert len(reads(busy.owner, PAGE)) <= few

    def test_reads_quota_use_of_all_pools_in_one_query(
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
        # The last round of the first pool used the quota of four. The other pool's round had no row
        # of this tenant.
        assert [(use.pool_id, use.quota) for use in uses] == [(lab.pool.pk, 4), (other.pk, 3)]

    def test_limits_number_of_chart_points(self, busy: Town) -> None:
        busy.play(12)
        pool, tenant = busy.cluster.pool.pk, busy.tenant.pk
        since = busy.cluster.at.replace(year=2029)
        days = claim_history(pool, tenant, since=since)
        assert [day.number for day in days] == list(range(1, 15))
        thin = claim_history(pool, tenant, since=since, points=5)
        assert [day.number for day in thin] == [2, 5, 8, 11, 14]

    def test_history_splits_exactly_at_an_instant(self, busy: Town) -> None:
        busy.play(12)
        pool, tenant = busy.cluster.pool.pk, busy.tenant.pk
        since = busy.cluster.at.replace(year=2029)
        days = claim_history(pool, tenant, since=since)
        old = claim_history(pool, tenant, since=since, until=days[5].at)
        new = claim_history(pool, tenant, since=days[5].at)
        assert [*old, *new] == days
