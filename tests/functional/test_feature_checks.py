"""Test each check of docs/features.md that takes more than one part of the site.

A class is a feature; its docstring has the feature's number and check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.test import Client

from evenshare_core.domain.reasons import Reason
from evenshare_core.policies import registry
from scheduling.models import Job, Lease, LeaseEvent, LeaseTerm, Node, Pool
from tenants.models import Membership, Quota, User
from tests.architecture.sources import ROOT
from tests.functional import test_operator
from tests.functional.access_table import TABLE
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.matrix_stage import Stage
from tests.functional.page_text import words
from tests.functional.pool_stage import stage as pool_stage
from tests.functional.visitors import Town, town, visitor
from tests.stages import staged
from tests.toy_policy.preempting import POLICY

NO_ROOM = {Reason.NO_FREE_GPUS, Reason.FRAGMENTED, Reason.LEASE_TURN, Reason.PROMISED}


there = staged(town)


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, f"{path}: {answer.status_code}"
    return str(answer.content.decode())


@pytest.mark.usefixtures("committed_db")
class TestDeadlineJob:
    """7.

    Within one round it is accepted with a planned lease, or refused with the binding constraint.
    """

    def test_receives_plan_or_binding_constraint_within_one_round(self) -> None:
        made = api_stage()
        Pool.objects.update(policy="unisched")
        made.cluster.round()
        asked = (
            {"deadline": "2h", "estimate_s": 600},
            {"deadline": "10m", "estimate_s": 36_000},
        )
        jobs = [made.post("jobs", made.spec(**fields)).json() for fields in asked]
        made.cluster.round(after_s=10)
        shown = [made.get(f"jobs/{job['id']}").json()["deadline_answer"] for job in jobs]
        assert [one["standing"] for one in shown] == ["planned", "refused"]
        plan = shown[0]["answer"]["leases"]
        assert plan
        assert shown[0]["answer"]["by"] == shown[0]["by"] >= max(map(str, plan[-1].values()))
        assert shown[1]["answer"]["limit"] == "length"
        client = Client()
        client.force_login(made.people["ada"])
        assert "before its deadline" in words(page(client, f"/jobs/{jobs[0]['id']}/"))
        assert "Deadline refused: it takes longer" in words(page(client, f"/jobs/{jobs[1]['id']}/"))


@pytest.mark.usefixtures("committed_db")
class TestPendingReason:
    """8.

    A reason of a published enum, with its numbers and a next step; the numbers equal those of the
    round. Never "no resources" while the tenant's limit binds.
    """

    def full(self, limit: int | None) -> tuple[ApiStage, Job]:
        """Create a full pool in which a job of aa waits; aa may borrow `limit` GPUs."""
        made = api_stage()
        Quota.objects.filter(tenant=made.cluster.tenants["aa"]).update(borrow_limit=limit)
        for tenant, gpus in (("aa", 3), ("bb", 4), ("bb", 1)):
            made.cluster.submit(tenant, gpus, 40_000)
        made.cluster.round()
        job = made.cluster.submit("aa", 2, 60)
        made.cluster.round(after_s=10)
        return made, job

    @pytest.mark.parametrize(("limit", "right"), [(0, {Reason.QUOTA_LIMIT}), (None, NO_ROOM)])
    def test_matches_binding_limit_and_numbers_of_round(
        self, limit: int | None, right: set[Reason]
    ) -> None:
        made, job = self.full(limit)
        stated = made.get(f"jobs/{job.uid}/why").json()
        assert Reason(stated["reason_code"]) in right
        assert stated["numbers"]
        assert stated["next_step"]
        round_ = made.get(f"rounds/{made.pool}/{stated['round']}").json()
        found = [skip for skip in round_["decision"]["skips"] if skip["jobs"]]
        assert [skip["reason_code"] for skip in found] == [stated["reason_code"]]
        assert [row["numbers"] for row in found[0]["tenants"]] == [stated["numbers"]]
        reader = Client()
        reader.force_login(made.people["ada"])
        paths = (f"/jobs/{job.uid}/", f"/pools/{made.pool}/rounds/{stated['round']}/")
        # A time is an element, so its end is a space.
        shown, decided = (words(page(reader, path)).replace(" ,", ",") for path in paths)
        assert stated["words"] in shown
        assert stated["next_step"] in shown
        assert stated["words"] in decided
        assert {reason.value for reason in Reason} - published() == set()


def published() -> set[str]:
    """Return all texts in backticks in the documents."""
    texts = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    return {name for text in texts for name in re.findall(r"`(\w+)`", text)}


@pytest.mark.usefixtures("committed_db")
class TestGpuMap:
    """15. GPU map with an equivalent table; state not only by colour; counts equal the API's."""

    def test_text_and_table_match_api_counts(self) -> None:
        made = pool_stage()
        Node.objects.filter(pool=made.lab.pool, name="n0001").update(state="drained")
        shown = made.page("operator", made.url())
        (kind,) = made.get("operator", f"/api/v1/pools/{made.pool}").json()["types"]
        table = dict(rows(shown))
        assert table["Pool"][1:] == [kind["own"], kind["borrowed"], kind["gpus"]]
        assert table["idle"][-1] == kind["idle"]
        assert table["unavailable"][-1] == kind["blocked"] == 2
        uses = [row[3] for name, row in table.items() if name in made.lab.tenants]
        assert sum(filter(None, uses)) == kind["used"] > 0
        # The text of each node agrees with its colours and with the API.
        said = dict(re.findall(r"<title>(n\d+): ([^<]*)<", shown))
        assert set(said) == {node["name"] for node in kind["nodes"]}
        for node in kind["nodes"]:
            held = sum(int(count) for count in re.findall(r"(\d+) GPU", said[node["name"]]))
            rest = node["gpus"] - held
            assert held == node["held"]
            state = "idle" if node["state"] == "up" else node["state"]
            assert rest == 0 or f"{rest} {state}" in said[node["name"]]
        assert 'fill="url(#p-blk)"' in shown or "drained" in said["n0001"]


def rows(shown: str) -> Iterator[tuple[str, list[int | None]]]:
    """Return heading and numbers of the rows of the map's table; a dash is no number."""
    (table,) = re.findall(r'id="t-claims">(.*?)</table>', shown, re.DOTALL)
    for row in re.findall(r"<tr[^>]*>(.*?)</tr>", table, re.DOTALL):
        cells = [words(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        name = cells[0].split()[-1] if cells[0] else ""
        numbers = [int(cell) if cell.isdigit() else None for cell in cells[1:5]]
        yield name, numbers


class TestQuotas:
    """17. Nominal quota, borrow/lend limits, mode; a RESERVE tenant's idle GPUs are never lent."""

    def save(self, there: Town, **cells: str) -> None:
        """Change north's cells in the operator's grid, request the preview, and save."""
        grid = test_operator.TestQuotaGrid()
        _, save = grid.previewed(there, grid.draft(there, **cells))
        assert there.operator.post(grid.path(there), save).status_code == 302

    def held(self, there: Town, tenant: str) -> int:
        leases = Lease.objects.filter(tenant__slug=tenant).exclude(state=Lease.State.ENDED)
        return sum(leases.values_list("gpus", flat=True))

    def test_idle_gpus_of_reserve_tenant_are_never_lent(self, there: Town) -> None:
        for _ in range(8):
            there.submit(tenant="south", duration_s=40_000)
        self.save(there, gpus="4", mode="RESERVE")
        for _ in range(5):
            there.play(1)
            assert self.held(there, "south") == 4
        waits = Job.objects.filter(tenant__slug="south", state="pending")
        assert set(waits.values_list("reason_code", flat=True)) == {Reason.RESERVED_QUOTA}
        # North lends one of its four GPUs, and may borrow none.
        self.save(there, gpus="4", mode="LEND_AND_BORROW", lend="1", borrow="0")
        there.play(3)
        assert self.held(there, "south") == 5
        for _ in range(5):
            there.submit(duration_s=40_000)
        there.play(3)
        assert (self.held(there, "north"), self.held(there, "south")) == (3, 5)
        Job.objects.filter(tenant__slug="south").update(cancel_asked_at=there.cluster.at)
        there.play(3)
        assert self.held(there, "north") == 4


class TestMinimumRuntimeAndNotice:
    """20. No lease ends before its protected end; the notice event precedes the stop.

    For real processes: tests/integration/test_local_executor_rounds.py, `TestPreemptedJob`.
    """

    def test_hold_for_an_hour_of_alternating_tenants(
        self, there: Town, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)
        Pool.objects.filter(pk=there.cluster.pool.pk).update(
            policy=POLICY.name, options={"min_runtime_s": 150}, lease_s=100
        )
        there.cluster.pool.refresh_from_db()
        for turn in range(30):
            there.submit(1 + turn % 3, duration_s=400, tenant=("north", "south")[turn // 3 % 2])
            there.play(1, every_s=60)
        early = 0
        for lease in Lease.objects.filter(state="ended").exclude(end_reason="finished"):
            notice, end = lease.events.filter(kind__in=("stop_asked", "ended")).order_by("number")
            assert (notice.kind, end.kind) == ("stop_asked", "ended")
            assert lease.protected_until is not None
            assert lease.started_at is not None
            assert lease.protected_until == lease.started_at + timedelta(seconds=150)
            assert lease.protected_until <= notice.at <= end.at
            early += lease.end_reason == "preempted"
        assert early > 2
        notices = LeaseEvent.objects.filter(data__has_key="rule").count()
        shown = words(page(there.operator, f"/pools/{there.cluster.pool.name}/history/"))
        text = "leases ended early" if notices <= 12 else "leases that ended early"
        assert f"{min(notices, 12)} {text}, with notice" in shown


class TestDrainAndMaintenance:
    """22. Drain and maintenance windows: no new lease overlaps one; a banner shows its end."""

    def test_nodes_receive_no_lease_and_banner_shows_end(self, there: Town) -> None:
        pool = there.cluster.pool
        there.submit(duration_s=40_000)
        there.play(1)
        begins, ends = there.cluster.at + timedelta(seconds=600), there.cluster.at + timedelta(1)
        window = {
            "do": "window",
            "nodes": ["n0001"],
            "starts_at": f"{begins:%Y-%m-%d %H:%M:%S}",
            "ends_at": f"{ends:%Y-%m-%d %H:%M:%S}",
            "reason": "new fans",
        }
        nodes = f"/operate/pools/{pool.name}/nodes/"
        assert there.operator.post(nodes, window).status_code == 302
        planned = there.cluster.at
        for _ in range(12):
            there.submit(duration_s=100)
            there.play(1, every_s=100)
        terms = LeaseTerm.objects.filter(starts_at__gt=planned)
        there_then = terms.filter(lease__slots__node__name="n0001", expires_at__gt=begins)
        assert terms.exists()
        assert not there_then.filter(starts_at__lt=ends).exists()
        for who in (there.operator, there.owner):
            banner = words(page(who, f"/pools/{pool.name}/"))
            assert "n0001 is in maintenance until" in banner
            assert f"{ends:%Y-%m-%d %H:%M}" in banner
        drained = there.cluster.at
        assert (
            there.operator.post(
                nodes, {"do": "drain", "node": "n0000", "reason": "fan"}
            ).status_code
            == 302
        )
        there.submit(duration_s=100)
        there.play(12, every_s=100)
        assert not LeaseTerm.objects.filter(starts_at__gt=drained).exists()
        assert "n0000 takes no new lease" in words(page(there.owner, f"/pools/{pool.name}/"))


class TestRoles:
    """31. Tenant viewer, member, manager; finance, operator, auditor.

    Another tenant's id is 404 in UI and API, for every route in the schema.
    """

    def test_follow_access_matrix_and_hide_other_tenants(self, matrix: Stage) -> None:
        closed = [
            (address, route, method)
            for address, route in TABLE.items()
            for method, row in route.methods.items()
            if row.outsider == 404 and row.owner != 404
        ]
        assert len(closed) > 20
        for row, role in enumerate(Membership.Role):
            Membership.objects.filter(user__username="olga").update(role=role)
            for address, route, method in closed[row :: len(Membership.Role)]:
                status = matrix.ask("outsider", method, address, route).status_code
                assert status == 404, f"{role}: {method} /{address}: {status}"
        self.compare(matrix)

    def compare(self, made: Stage) -> None:
        """Compare the rights of each role of the tenant and of the site."""
        tenant = made.lab.tenants["canary-lab"]
        console = f"/operate/pools/{made.lab.pool.name}/settings/"
        site = User.SiteRole
        for office, act in ((site.FINANCE, 403), (site.AUDITOR, 403), (site.OPERATOR, 302)):
            client = visitor(f"{office}-person", site_role=office)
            assert client.get(console).status_code == 200
            assert client.post(console, {"do": "pause"}).status_code == act
        for role in Membership.Role:
            client = visitor(f"{role}-person", tenant, role)
            assert client.get(console).status_code == 404
            assert client.get(f"/t/{tenant.slug}/").status_code == 200
            submit = client.get(f"/t/{tenant.slug}/jobs/new/").status_code
            assert submit == (403 if role == Membership.Role.VIEWER else 200)
