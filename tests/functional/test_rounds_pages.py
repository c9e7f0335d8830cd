"""Test the list of rounds and a round's page: access, visibility, keys, lost bytes, violations."""

from __future__ import annotations

import re

import pytest

from evenshare_core.domain.invariants import Violation
from portal.rounds.text.round import applied_note
from scheduling.models import Node, Round
from scheduling.selectors.rounds import one_round as selectors
from scheduling.selectors.rounds import promises
from scheduling.selectors.rounds.lists import rounds_page
from scheduling.selectors.rounds.one_round import round_view
from scheduling.selectors.rounds.stored import ReplayError
from scheduling.selectors.visibility import read_visibility
from tenants.models import User
from tenants.selectors.access import access_of
from tests.factories import Cluster, cluster
from tests.functional.pool_stage import Stage, headline, last_round, stage
from tests.stages import staged

# Queries of the chain's panel: the records of this round and the previous one, and the head.
PLACE_QUERIES = 7


there = staged(stage)


class TestAccess:
    @pytest.mark.parametrize("page", ["rounds/", "rounds/1/"])
    def test_rounds_are_visible_to_tenants_of_pool_and_operator(
        self, there: Stage, page: str
    ) -> None:
        people = ("owner", "mate", "neighbour", "operator", "stranger", "nobody")
        answers = [there.get(who, there.url(page)).status_code for who in people]
        assert answers == [200, 200, 200, 200, 404, 404]
        assert there.get(None, there.url(page)).status_code == 302

    def test_unknown_round_returns_404(self, there: Stage) -> None:
        assert there.get("owner", there.url("rounds/99/")).status_code == 404
        assert there.get("owner", there.url("rounds/0/")).status_code == 404


class TestRoundList:
    def test_pages_by_key_without_gaps_or_repeats(self, there: Stage) -> None:
        there.lab.rounds(5, every_s=900)
        pool_id = there.lab.pool.pk
        everything = list(
            Round.objects.filter(pool=there.lab.pool).order_by("-number").values_list("number")
        )
        numbers, before = [], None
        while True:
            page = rounds_page(pool_id, before=before, limit=3)
            numbers += [(row.number,) for row in page.rows]
            before = page.older
            if before is None:
                break
        assert numbers == everything
        back = rounds_page(pool_id, after=1, limit=3)
        assert [row.number for row in back.rows] == [4, 3, 2]
        assert (back.older, back.newer) == (2, 4)

    def test_total_matches_listed_rounds(self, there: Stage) -> None:
        page = rounds_page(there.lab.pool.pk)
        assert page.total("granted") == sum(row.summary["granted"] for row in page.rows) == 3

    @pytest.mark.parametrize("query", ["?before=x", "?after=-1", "?before=" + "9" * 30])
    def test_invalid_cursor_returns_404(self, there: Stage, query: str) -> None:
        assert there.get("owner", there.url("rounds/" + query)).status_code == 404

    def test_query_count_does_not_grow_with_rounds(self, there: Stage) -> None:
        counts = []
        for _ in range(2):
            counts.append(there.reads("owner", there.url("rounds/")))
            there.lab.rounds(3, every_s=900)
        assert counts == [8, 8]


class TestRoundPage:
    def test_heading_summarizes_leases(self, there: Stage) -> None:
        sentence = headline(there.page("owner", there.url("rounds/1/")))
        assert sentence == "Round 1 granted 2, renewed 0 and ended 0 leases."

    def test_shows_decision_hashes_and_verify_command(self, there: Stage) -> None:
        round_ = last_round(there)
        there.lab.seal()
        page = there.page("owner", there.url(f"rounds/{round_.number}/"))
        assert "1 grant: " in page
        assert "n000" in page
        assert round_.decision_sha256[:8] in page
        assert round_.snapshot_sha256[:8] in page
        assert f"evenshare round verify {round_.number} --pool {there.pool}" in page

    def test_links_own_jobs_and_hides_those_of_others(self, there: Stage) -> None:
        mine = there.page("owner", there.url("rounds/1/"))
        assert "alpha-4" in mine
        assert "beta-1" not in mine
        everybody = there.page("operator", there.url("rounds/1/"))
        assert "beta-1" in everybody

    def test_explains_unscheduled_jobs(self, there: Stage) -> None:
        page = there.page("owner", there.url(f"rounds/{last_round(there).number}/"))
        assert "1 job was not scheduled" in page
        assert "start promised" in page

    def test_names_follow_visibility_of_pool(self, there: Stage) -> None:
        path = there.url(f"rounds/{last_round(there).number}/")
        there.see("pseudonyms")
        page = there.page("owner", path)
        assert "gamma" not in page
        assert "tenant 3" in page
        there.see("own")
        page = there.page("owner", path)
        assert "gamma" not in page
        assert "tenant 3" not in page
        assert last_round(there).decision_sha256[:8] in page
        assert "gamma" in there.page("operator", path)

    def test_marks_properties_that_are_not_promised(self, there: Stage) -> None:
        page = there.page("owner", there.url("rounds/1/"))
        assert page.count("not promised") >= 3
        assert "violated" not in page
        assert "5 leased + 3 free = 8" in page

    def test_marks_broken_invariant(self, there: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        planted = [Violation("gang", "job 1 needs 4 GPUs, gets 3")]
        monkeypatch.setattr(promises, "violations", lambda *_: planted)
        page = there.page("owner", there.url("rounds/1/"))
        assert "violated" in page
        assert "1 promise is broken" in page

    def test_shows_counts_and_hashes_without_stored_bytes(
        self, there: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def gone(round_: Round) -> tuple[bytes, bytes]:
            raise ReplayError(f"the bytes of round {round_.number} are no longer kept")

        monkeypatch.setattr(selectors, "round_bytes", gone)
        page = there.page("owner", there.url("rounds/1/"))
        assert "no longer kept" in page
        assert "Round 1 granted" in page
        assert last_round(there).decision_sha256[:8] not in page
        assert Round.objects.get(pool=there.lab.pool, number=1).decision_sha256[:8] in page
        assert "vc-" not in page
        assert 'id="grants"' not in page

    def test_shows_grants_that_were_not_applied(self, there: Stage) -> None:
        access = access_of(User.objects.get(username="owner"))
        view = round_view(there.lab.pool.pk, 1, read_visibility(there.lab.pool.pk, access))
        assert view is not None
        view.round.superseded = [{"item": "grant", "id": 1, "why": "the job no longer waited"}]
        note = applied_note(view, "grants", "grant", "Leases granted")
        assert note is not None
        assert note.total is not None
        assert (note.total.label, note.total.value) == ("applied", "1")

    def test_query_count_does_not_grow_with_leases(self, there: Stage) -> None:
        there.lab.seal()
        counts = [
            there.reads("owner", there.url(f"rounds/{number}/"))
            for number in (1, last_round(there).number)
        ]
        # The later round reads the previous one, and both read the viewer's last verification.
        assert counts == [17 + PLACE_QUERIES, 18 + PLACE_QUERIES]


class TestStoredSums:
    def test_add_up_to_the_pool(self, there: Stage) -> None:
        for who in ("owner", "operator"):
            visibility = read_visibility(
                there.lab.pool.pk, access_of(User.objects.get(username=who))
            )
            for number in (1, 2):
                view = round_view(there.lab.pool.pk, number, visibility)
                assert view is not None
                assert view.decision is not None
                checked = view.decision.checked
                assert checked.broken == {}
                assert checked.own + checked.borrowed == checked.leased
                assert sum(row.holds for row in view.shares) == checked.leased
                assert checked.waiting == checked.explained == view.round.summary["waiting"]
                assert checked.expired == checked.renewed + checked.ended


def long_round(jobs: int) -> Cluster:
    """Return a pool whose first round grants a number of jobs."""
    tenant = f"many-{jobs:02}"
    lab = cluster({tenant: 40}, nodes=10, gpus=4, lease_s=10)
    for _ in range(jobs):
        lab.submit(tenant, 1, 40_000)
    lab.round()
    return lab


class TestLongRound:
    def test_page_has_first_rows_and_sums_of_any_number(self, there: Stage) -> None:
        few, many = (
            there.page("operator", f"/pools/{long_round(jobs).pool.name}/rounds/1/")
            for jobs in (8, 30)
        )
        assert many.count("<tr") == few.count("<tr")
        assert abs(len(many) - len(few)) < 1000, "rows beyond the first add only digits"
        grants = " ".join(many.split('id="d-grants"')[1].partition("</details>")[0].split())
        assert "30 grants: 30 own, 0 borrowed GPUs" in grants.partition("</summary>")[0]
        assert "All 30 rows" in grants

    def test_each_table_has_a_page(self, there: Stage) -> None:
        lab = long_round(30)
        Node.objects.filter(pool=lab.pool).update(state=Node.State.DRAINED)
        lab.round(after_s=300)  # after the minimum runtime of the leases
        ends = f"/pools/{lab.pool.name}/rounds/2/ends/"
        first, second = (
            " ".join(there.page("operator", ends + query).split()) for query in ("", "?from=21")
        )
        assert "30 leases ended: 30 GPUs" in first
        assert "Rows 1 to 20 of 30" in first
        assert f'href="{ends}?from=21"' in first
        assert "Rows 21 to 30 of 30" in second
        assert (first.count('scope="row"'), second.count('scope="row"')) == (20, 10)
        assert there.get("operator", f"{ends}?from=31").status_code == 404


class TestTables:
    def test_exist_if_they_have_rows(self, there: Stage) -> None:
        number = last_round(there).number
        for table in ("shares", "grants", "queued", "nothing", "answers"):
            status = there.get("owner", there.url(f"rounds/{number}/{table}/")).status_code
            assert status == (404 if table in {"nothing", "answers"} else 200), table

    def test_link_own_jobs_and_hide_those_of_others(self, there: Stage) -> None:
        mine = there.page("owner", there.url("rounds/1/grants/"))
        assert "alpha-4" in mine
        assert "beta-1" not in mine
        own = there.page("owner", there.url("rounds/1/grants/?own=1"))
        assert "Rows 1 to 1 of 1" in " ".join(own.split())
        assert "beta-1" in there.page("operator", there.url("rounds/1/grants/"))


class TestOwnRows:
    def test_come_first_with_reasons(self, there: Stage) -> None:
        page = there.page("owner", there.url("rounds/1/"))
        part = page[page.index('id="yours"') :].partition("</section>")[0]
        assert "Your jobs: 1 granted<" in part
        assert "alpha-4" in part
        assert 'id="yours"' not in there.page("operator", there.url("rounds/1/"))


class TestVerdict:
    def test_is_green_while_promises_hold(self, there: Stage) -> None:
        page = there.page("owner", there.url("rounds/1/"))
        assert re.search(r"(\d+) of \1 promises hold", page)
        assert not re.search(r'<details[^>]*id="verify"[^>]*\bopen', page)

    def test_names_broken_promise_and_opens_verification(
        self, there: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        planted = [Violation("gang", "job 1 needs 4 GPUs, gets 3")]
        monkeypatch.setattr(promises, "violations", lambda *_: planted)
        page = there.page("owner", there.url("rounds/1/"))
        assert "1 promise is broken." in headline(page)
        assert "Broken: Each job holds all of its GPUs" in page
        assert re.search(r'<details[^>]*id="verify"[^>]*\bopen', page)
        certificate = page[page.index('<section class="cert broken"') :]
        first = certificate[certificate.index("<details") :].partition("</summary>")[0]
        assert " open" in first.partition(">")[0]
        assert "Each job holds all of its GPUs" in first
