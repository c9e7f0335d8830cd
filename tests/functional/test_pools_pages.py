"""The pool page and the price board: audience, content, and number of queries."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from portal.charts.deficits import day_deficit
from portal.charts.explore.spans import DAY
from portal.charts.figures import gpu_hours, percent
from portal.common.clocks import pool_now
from scheduling.models import GpuType, Job, Lease, LeaseSlot, Node, Round
from scheduling.selectors.pools.lines import pool_facts, pool_so_far
from scheduling.selectors.pools.now import pool_overview
from scheduling.selectors.rounds.histories import claim_history
from scheduling.selectors.visibility import read_visibility
from tenants.models import Quota, Tenant, User
from tenants.scopes import site_scope
from tenants.selectors.access import Access, access_of
from tests.functional.mixed_stage import mixed_stage
from tests.functional.pool_stage import Stage, headline, last_round, settled_stage, stage
from tests.functional.visitors import town
from tests.round_states import add_state
from tests.stages import staged

there = staged(stage)


def access(name: str) -> Access:
    return access_of(User.objects.get(username=name))


class TestAccess:
    @pytest.mark.parametrize("page", ["", "history/", "prices/"])
    def test_pool_is_visible_to_its_tenants_and_operators(self, there: Stage, page: str) -> None:
        answers = {
            who: there.get(who, there.url(page)).status_code
            for who in ("owner", "mate", "neighbour", "operator", "stranger", "nobody")
        }
        assert answers == {
            "owner": 200,
            "mate": 200,
            "neighbour": 200,
            "operator": 200,
            "stranger": 404,
            "nobody": 404,
        }
        answer = there.get(None, there.url(page))
        assert (answer.status_code, answer["Location"].split("?")[0]) == (302, "/login/")

    def test_unknown_pool_returns_404(self, there: Stage) -> None:
        assert there.get("operator", "/pools/none/").status_code == 404


class TestDailyDeficit:
    def test_operator_table_matches_dashboards_of_tenants(self, settled: Stage) -> None:
        page = settled.get("operator", settled.url("history/"))
        rows = {row.badge.name: row for row in page.context["deficits"]}
        assert 'id="deficits"' in page.content.decode()
        with site_scope():
            facts = pool_facts(settled.lab.pool.pk)
            assert facts is not None
            now = pool_now(facts).pool_at
            for name in ("alpha", "beta", "gamma"):
                tenant = settled.tenant(name).pk
                points = claim_history(settled.lab.pool.pk, tenant, since=now - DAY)
                expected = day_deficit(points, now)
                assert expected is not None
                assert rows[name].short == gpu_hours(expected.short_gpu_s)
                assert rows[name].deserved == gpu_hours(expected.deserved_gpu_s)
                assert rows[name].share == percent(expected.share, 1)
        assert len({row.share for row in rows.values()}) > 1

    def test_is_hidden_from_tenants_and_under_windowed_policies(self, settled: Stage) -> None:
        assert 'id="deficits"' not in settled.page("owner", settled.url("history/"))
        settled.lab.pool.policy = "ltgf"
        settled.lab.pool.options = {"fairness_window_s": 86_400}
        settled.lab.pool.save(update_fields=["policy", "options"])
        assert 'id="deficits"' not in settled.page("operator", settled.url("history/"))


class TestChartGpuType:
    @pytest.fixture
    def mixed(self, committed_db: str) -> Stage:
        assert committed_db
        return mixed_stage(rounds=2)

    def charts(self, there: Stage, query: str) -> dict[str, Any]:
        answer = there.get("operator", there.url(f"history/{query}"))
        assert answer.status_code == 200
        return {chart.key: chart for chart in answer.context["charts"]}

    def test_is_selected_by_query(self, mixed: Stage) -> None:
        every, one = self.charts(mixed, ""), self.charts(mixed, "?gpu_type=k80")
        assert list(every) == ["chart-use", "chart-rho"]
        assert list(one) == ["chart-use", "chart-quota", "chart-rho"]
        assert every["chart-use"].text.startswith("Of 8 GPUs.")
        assert one["chart-use"].text.startswith("Of 4 k80.")
        assert one["chart-use"].heads[1] == "k80 GPUs in use by alpha"
        assert one["chart-use"].file == f"use-{mixed.pool}-k80"
        held = Counter[str]()
        for row in last_round(mixed).shares:
            if row["gpu_type"] == "k80":
                held[str(row["tenant"])] += row["own"] + row["borrowed"]
        uses = [list(series.values)[-1] for series in one["chart-use"].series]
        assert sum(uses) == sum(held.values()) > 0
        assert sorted(uses) == sorted(held.values())
        assert [series.values[-1] for series in one["chart-quota"].series] == [2, 1, 1]

    def test_is_offered_as_links(self, mixed: Stage) -> None:
        page = mixed.page("owner", mixed.url("history/?gpu_type=v100"))
        nav = re.search(r'<nav class="choices".*?</nav>', page, re.DOTALL)
        assert nav is not None
        links = re.findall(r'href="([^"]+)"\s*(aria-current="true")?\s*>([^<]+)<', nav[0])
        here = mixed.url("history/")
        assert sorted(links) == [
            (here, "", "All types"),
            (f"{here}?gpu_type=k80", "", "k80"),
            (f"{here}?gpu_type=v100", 'aria-current="true"', "v100"),
        ]
        # The open page refreshes itself with its GPU type.
        assert f'hx-get="{here}?gpu_type=v100"' in page

    @pytest.mark.parametrize("wrong", ["h100", "K80", "k80,v100", "x" * 300])
    def test_unknown_type_returns_404(self, mixed: Stage, wrong: str) -> None:
        assert mixed.get("owner", mixed.url(f"history/?gpu_type={wrong}")).status_code == 404

    def test_needs_no_extra_queries(self, mixed: Stage) -> None:
        reads = [
            mixed.reads("operator", mixed.url(f"history/{query}"))
            for query in ("", "?gpu_type=k80")
        ]
        assert reads[0] == reads[1]

    def test_offers_no_choice_with_one_type(self, there: Stage) -> None:
        page = there.page("owner", there.url("history/?gpu_type=v100"))
        assert 'class="choices"' not in page
        assert list(self.charts(there, "?gpu_type=v100")) == list(self.charts(there, ""))

    def test_does_not_affect_daily_deficit(self, mixed: Stage) -> None:
        pages = [
            mixed.get("operator", mixed.url(f"history/{query}")) for query in ("", "?gpu_type=k80")
        ]
        rows = [[(row.badge.name, row.short) for row in page.context["deficits"]] for page in pages]
        assert rows[0] == rows[1]


class TestPoolPage:
    def test_heading_counts_used_and_idle_gpus(self, there: Stage) -> None:
        words = headline(there.page("owner", there.url()))
        assert words == "6 of 8 GPUs are in use. 2 are idle (2 held back for promised starts)."

    def test_names_tenants_but_not_their_jobs(self, there: Stage) -> None:
        page = there.page("owner", there.url())
        assert "beta" in page
        assert "alpha-4" in page
        assert "beta-1" not in page

    def test_shows_all_jobs_to_operator(self, there: Stage) -> None:
        assert "beta-1" in there.page("operator", there.url())

    def test_replaces_other_tenants_with_pseudonyms(self, there: Stage) -> None:
        there.see("pseudonyms")
        page = there.page("owner", there.url())
        assert "alpha" in page
        assert "beta" not in page
        assert "gamma" not in page
        assert "tenant 2" in page
        assert "beta" in there.page("operator", there.url())

    def test_shows_own_rows_and_totals_if_others_are_hidden(self, there: Stage) -> None:
        there.see("own")
        page = there.page("owner", there.url())
        assert "beta" not in page
        assert "tenant 2" not in page
        assert "other tenants" in page

    def test_charts_name_tenants_whose_nodes_are_gone(self, there: Stage) -> None:
        kind = there.lab.add_type("p100", nodes=1, gpus=4, quotas={})
        joined_by_delta(there, kind)
        there.lab.round(after_s=10)
        Node.objects.filter(gpu_type=kind).delete()
        page = there.page("operator", there.url("history/"))
        heads = re.findall(r">(GPUs in use by [^<]+)</th>", page)
        assert heads == [f"GPUs in use by {name}" for name in ("alpha", "beta", "gamma", "delta")]

    def test_works_after_all_nodes_were_removed(
        self, there: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The pool's summary counts 0 GPUs. Earlier versions stored null."""
        nodes = Node.objects.filter(pool=there.lab.pool)
        LeaseSlot.objects.update(holding=False, planned=False)
        gone = list(nodes.values_list("pk", flat=True))
        nodes.update(pool=None)
        there.lab.round(after_s=900)
        assert last_round(there).summary["gpus"] == 0
        there.page("operator", there.url())
        Node.objects.filter(pk__in=gone).update(pool=there.lab.pool)
        monkeypatch.setattr("scheduling.engine.apply._gpus_of_nodes", lambda _: None)
        there.lab.round(after_s=10)
        assert last_round(there).summary["gpus"] is None
        there.page("operator", there.url())

    def test_omits_rho_chart_if_no_rho_is_visible(self, there: Stage) -> None:
        """The stranger's tenant joins without demand, and other tenants' demand is hidden."""
        there.see("own")
        joined_by_delta(there, there.lab.gpu_type)
        there.lab.round(after_s=10)
        page = there.page("stranger", there.url("history/"))
        assert 'id="chart-use"' in page
        assert 'id="chart-rho"' not in page
        assert 'id="chart-rho"' in there.page("owner", there.url("history/"))

    def test_marks_draining_and_drained_nodes(self, there: Stage) -> None:
        Node.objects.filter(pool=there.lab.pool, name="n0001").update(state=Node.State.DRAINED)
        page = there.page("owner", there.url())
        assert "Draining" in page  # a lease of beta is still on the node
        assert "unavailable" in page
        Node.objects.filter(pool=there.lab.pool, name="n0000").update(state=Node.State.DRAINED)
        LeaseSlot.objects.update(holding=False)
        assert "Draining" not in there.page("owner", there.url())
        assert there.page("owner", there.url()).count("Drained") == 2

    def test_explains_queued_jobs_while_gpus_are_idle(self, there: Stage) -> None:
        # Alpha borrows one GPU in addition to its four, and beta uses one of its four, so gamma's
        # eight do not fit.
        page = there.page("owner", there.url())
        last = last_round(there)
        section = page.split('id="idle-why"')[1].split("</section>")[0]
        counts = [int(text) for text in re.findall(r'class="k">(\d+)<', section)]
        assert sum(counts) == last.summary["waiting"] == 1
        assert "start promised" in section
        assert f"/rounds/{last.number}/" in section

    @pytest.mark.parametrize("visibility", ["full", "pseudonyms", "own"])
    def test_owner_of_unlent_gpus_follows_visibility(self, there: Stage, visibility: str) -> None:
        there.see(visibility)
        beta = Quota.objects.filter(tenant=there.tenant("beta"))
        beta.update(mode="RESERVE")
        there.lab.submit("gamma", 2, 100)
        there.lab.round(after_s=10)
        section = there.page("owner", there.url()).split('id="idle-why"')[1].split("</section>")[0]
        assert "quota not lent" in section
        whose = {"full": "beta: 3", "pseudonyms": "tenant 2: 3", "own": "other tenants: 3"}
        assert f"Idle and not lent: {whose[visibility]}" in section
        assert ("beta" in section) == (visibility == "full")

    def test_omits_explanation_without_idle_gpus_or_queue(self, there: Stage) -> None:
        Job.objects.filter(state=Job.State.PENDING).update(state=Job.State.CANCELLED)
        there.lab.round(after_s=10)
        assert 'id="idle-why"' not in there.page("owner", there.url())

    def test_query_count_does_not_grow_with_nodes(self, there: Stage) -> None:
        counts = []
        for extra in (0, 30):
            Node.objects.bulk_create(
                [
                    Node(pool=there.lab.pool, name=f"x{i}", gpu_type=there.lab.gpu_type, gpus=8)
                    for i in range(extra)
                ]
            )
            counts.append(there.reads("owner", there.url()))
        # Four of them are for promises (two), deadlines, and executors that do not answer.
        assert counts == [22, 22]

    def test_draws_a_thousand_nodes_small(self, there: Stage) -> None:
        Node.objects.bulk_create(
            [
                Node(pool=there.lab.pool, name=f"x{i}", gpu_type=there.lab.gpu_type, gpus=8)
                for i in range(1000)
            ]
        )
        page = there.page("owner", there.url())
        assert "nodes small" in page
        assert len(page) < 2_500_000


def joined_by_delta(there: Stage, gpu_type: GpuType) -> None:
    """Give the stranger's tenant quota in the pool from now on."""
    Quota.objects.create(
        tenant=Tenant.objects.get(slug="delta"),
        pool=there.lab.pool,
        gpu_type=gpu_type,
        gpus=1,
        valid_from=there.lab.at,
    )


class TestPoolSums:
    @pytest.mark.parametrize("visibility", ["full", "pseudonyms", "own"])
    def test_add_up_for_every_viewer(self, there: Stage, visibility: str) -> None:
        there.see(visibility)
        Node.objects.filter(pool=there.lab.pool, name="n0001").update(state=Node.State.LOST)
        for who in ("owner", "neighbour", "operator"):
            view = pool_overview(there.lab.pool.pk, read_visibility(there.lab.pool.pk, access(who)))
            (kind,) = view.types
            assert kind.own + kind.borrowed == kind.used == sum(c.uses for c in kind.claims)
            assert kind.used + kind.idle + kind.blocked == kind.gpus == 8
            assert kind.unassigned is not None
            assert kind.out is not None
            assert kind.quota + kind.unassigned + kind.out == kind.gpus
            assert sum(h.borrowed for n in kind.nodes for h in n.holds) == kind.borrowed

    def test_count_granted_gpus_of_waiting_lease_once(self, committed_db: str) -> None:
        """A gang is granted 5 free GPUs and 3 that a lease of the same tenant still holds."""
        assert committed_db
        place = town()
        place.submit(3)
        place.play(1)
        old = Lease.objects.get()
        gang = Lease.objects.get(pk=old.pk)
        gang.pk, gang.job, gang.state = None, place.submit(8), Lease.State.WAITING
        gang.gpus, gang.own, gang.borrowed, gang.started_at = 8, 4, 4, None
        gang.save()
        for node in Node.objects.filter(pool=place.cluster.pool):
            LeaseSlot.objects.bulk_create(
                LeaseSlot(lease=gang, node=node, slot=slot, planned=True)
                for slot in range(node.gpus)
            )
        page = place.owner.get(f"/pools/{place.cluster.pool.name}/")
        (part,) = page.context["parts"]
        assert (page.context["used"], page.context["idle"]) == (8, 0)
        assert part.text.endswith(": 8 of 8 in use")
        assert page.context["idle_reasons"] == []
        assert [len(h.slots) for n in part.use.nodes for h in n.holds if h.gpus == 3] == [3]
        assert sum(len(h.slots) for n in part.use.nodes for h in n.holds if h.gpus == 8) == 5
        assert part.use.own + part.use.borrowed == 8
        assert sum(h.borrowed for n in part.use.nodes for h in n.holds) == part.use.borrowed

    def test_are_available_without_a_decision(self, there: Stage) -> None:
        add_state(there.lab.pool, 10**6, [])
        (kind,) = pool_overview(
            there.lab.pool.pk, read_visibility(there.lab.pool.pk, access("owner"))
        ).types
        assert (kind.gpus, kind.unassigned, kind.out) == (8, None, None)

    def test_need_nine_queries(self, there: Stage, django_assert_num_queries: Any) -> None:
        visibility = read_visibility(there.lab.pool.pk, access("owner"))
        with django_assert_num_queries(9):
            pool_overview(there.lab.pool.pk, visibility)

    def test_contain_only_own_claims_if_pool_hides_others(self, there: Stage) -> None:
        there.see("own")
        view = pool_overview(there.lab.pool.pk, read_visibility(there.lab.pool.pk, access("owner")))
        names = [claim.tenant.name for claim in view.types[0].claims if claim.tenant]
        assert names == ["alpha"]


class TestPseudonym:
    def test_is_stable_when_another_tenant_joins(self, there: Stage) -> None:
        there.see("pseudonyms")
        before = {k: v.name for k, v in visibility_of(there).known.items()}
        tenant = Tenant.objects.create(slug="a0", name="a0", initials="A0")
        Quota.objects.create(
            tenant=tenant,
            pool=there.lab.pool,
            gpu_type=there.lab.gpu_type,
            gpus=1,
            valid_from=there.lab.at,
        )
        after = {k: v.name for k, v in visibility_of(there).known.items()}
        assert before == {k: after[k] for k in before}
        assert after[tenant.pk] == "tenant 4"


def visibility_of(there: Stage) -> Any:
    return read_visibility(there.lab.pool.pk, access("owner"))


class TestPriceBoard:
    def test_shows_current_price_with_formula(self, committed_db: str) -> None:
        there = settled_stage()
        page = there.page("owner", there.url("prices/"))
        assert "A borrowed GPU costs" in page
        assert "theta" in page

    def test_explains_missing_price(self, there: Stage) -> None:
        assert "No price has been posted yet." in there.page("owner", there.url("prices/"))


class TestDrainedNodeWithRunningLease:
    def test_shows_zero_idle_gpus_instead_of_negative(self, committed_db: str) -> None:
        assert committed_db
        place = town()
        place.submit(6)
        place.play(1)
        nodes = Node.objects.filter(pool=place.cluster.pool)
        nodes.filter(name="n0001").update(state="drained", effective_state="drained")
        place.play(1)
        summary = Round.objects.latest("number").summary
        assert summary["idle"] < 0
        page = place.owner.get(f"/pools/{place.cluster.pool.name}/").content.decode()
        assert "now: 0 idle" in page
        assert f"0 idle, {8 - 6} unavailable" in page
        listed = place.owner.get(f"/pools/{place.cluster.pool.name}/rounds/").content.decode()
        last = listed.split('id="round-2"')[1].split("</tr>")[0]
        assert '<td class="n">0</td> <td class="n lo">2</td>' in " ".join(last.split())
        one = place.owner.get(f"/pools/{place.cluster.pool.name}/rounds/2/").content.decode()
        assert "No GPU is idle." in one
        name = place.cluster.pool.name
        (newest, _) = place.owner.get(f"/api/v1/rounds?pool={name}").json()["results"]
        shown = place.owner.get(f"/api/v1/rounds/{name}/2").json()
        assert newest["summary"] == shown["summary"] == {**summary, "idle": 0}
        assert pool_so_far(place.cluster.pool.pk).idle == 0
