"""Early ends of leases on pages and in REST, by viewer."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from evenshare_core.domain.reasons import PreemptionRule
from evenshare_core.policies import registry
from portal.charts.zones import viewed_in
from portal.common.clocks import Clocks
from portal.common.preemptions import numbers_note
from portal.site.metrics import DatabaseCollector
from scheduling.engine.clock import PoolNow
from scheduling.models import Job, Lease, Pool, Round, VirtualWork
from scheduling.selectors.jobs.reasons import preemption_text, rule_text
from tenants.answers import time_text
from tenants.models import Membership, User
from tests.factories import Cluster, cluster
from tests.functional.page_text import sentences
from tests.functional.pool_stage import Stage
from tests.functional.pool_stage import stage as pool_stage
from tests.integration.test_handover import SlowExecutor
from tests.stages import staged
from tests.toy_policy.preempting import POLICY

WHO = {"full": "beta", "pseudonyms": "tenant 2", "own": "another tenant"}

MADE_WAY = {"full": "alpha", "pseudonyms": "tenant 1", "own": "another tenant"}


@pytest.fixture(autouse=True)
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)


def played_pool() -> Stage:
    """Create a pool whose last round preempted a borrowing job of alpha for a job of beta."""
    made = pool_stage(policy="ltgf")  # its leases are not protected
    Pool.objects.filter(pk=made.lab.pool.pk).update(policy=POLICY.name)
    made.lab.pool.refresh_from_db()
    taker = made.lab.submit("beta", 3, 40_000)
    Job.objects.filter(pk=taker.pk).update(name="secret-of-beta")
    made.lab.round(after_s=50)
    assert Lease.objects.get(job=taker).state == "running"
    third = User.objects.create(username="third", password="!")
    Membership.objects.create(user=third, tenant=made.tenant("gamma"), role=Membership.Role.MEMBER)
    return made


there = staged(played_pool)


def loser() -> Job:
    return Lease.objects.get(end_reason="preempted").job


def section(page: str) -> str:
    """Return the text of the pool's table of preemptions, or "" without a table."""
    match = re.search(r'<section[^>]*id="preemptions">(.*?)</section>', page, re.DOTALL)
    return sentences(match[1]) if match else ""


def api(there: Stage, who: str, path: str) -> Any:
    answer = there.get(who, f"/api/v1/{path}")
    assert answer.status_code == 200, answer.content
    return answer.json()


class TestJobPage:
    @pytest.mark.parametrize("setting", WHO)
    def test_victim_shows_notice_rule_and_visible_beneficiary(
        self, there: Stage, setting: str
    ) -> None:
        there.see(setting)
        page = there.page("owner", f"/jobs/{loser().uid}/")
        assert (
            f"Preempted with 30 s notice: {WHO[setting]} was below its quota (guarantee). It"
            " exited immediately; it had held its GPUs for 1 min. It was queued again at once."
            " A simulated job loses no work"
        ) in sentences(page)
        assert "preempted (guarantee)" in page  # in the job's timeline
        assert "with notice, before its lease expired" in sentences(page)
        assert "secret-of-beta" not in page
        assert setting == "full" or ">beta<" not in page

    @pytest.mark.parametrize("setting", WHO)
    def test_beneficiary_shows_visible_victim_without_its_job(
        self, there: Stage, setting: str
    ) -> None:
        there.see(setting)
        winner, who = Job.objects.get(name="secret-of-beta"), MADE_WAY[setting]
        page = there.page("neighbour", f"/jobs/{winner.uid}/")
        assert (
            f"Made way for it: 4 v100 GPUs of {who}, whose job was preempted with 30 s notice. It"
            " exited immediately. Rule: guarantee"
        ) in sentences(page)
        assert loser().name not in page
        assert setting == "full" or ">alpha<" not in page
        assert ("Numbers compared by the rule" in page) == (setting != "own")
        (row,) = api(there, "neighbour", f"jobs/{winner.uid}/why")["made_way"]
        assert (row["gpus"], row["rule"], row["job"]) == (4, "guarantee", None)
        assert (row["tenant"] or {"name": "another tenant"})["name"] == who
        assert row["for_job"]["name"] == "secret-of-beta"
        assert api(there, "owner", f"jobs/{loser().uid}/why")["made_way"] == []

    def test_beneficiary_names_victim_job_to_operators(self, there: Stage) -> None:
        there.see("own")
        winner = Job.objects.get(name="secret-of-beta")
        page = sentences(there.page("operator", f"/jobs/{winner.uid}/"))
        assert f"Its job: {loser().name}." in page
        assert "Made way for it" not in there.page("operator", f"/jobs/{loser().uid}/")

    def test_running_job_shows_possible_preemption(self, there: Stage) -> None:
        held = Job.objects.filter(tenant=there.tenant("alpha"), state="running").earliest("id")
        page = sentences(there.page("owner", f"/jobs/{held.uid}/"))
        assert "unless it is preempted." in page
        assert "it may be preempted or moved earlier, with 30 s notice" in page
        assert "protected" not in page

    def test_shows_end_of_protection_from_preemption(self, there: Stage) -> None:
        Pool.objects.update(options={"min_runtime_s": 1200})
        there.lab.pool.refresh_from_db()
        there.lab.submit("beta", 1, 40_000)
        for job in Job.objects.filter(tenant=there.tenant("alpha"), state="running"):
            Job.objects.filter(pk=job.pk).update(cancel_asked_at=there.lab.at)
        there.lab.rounds(2, every_s=10)
        lease = Lease.objects.filter(protected_until__isnull=False).earliest("id")
        tenant = lease.job.tenant.slug
        who = {"alpha": "owner", "beta": "neighbour", "gamma": "third"}[tenant]
        page = sentences(there.page(who, f"/jobs/{lease.job.uid}/"))
        assert "protected from preemption until" in page
        shown = api_lease(there, who, lease.job)
        assert lease.protected_until is not None
        assert shown["protected_until"] == time_text(lease.protected_until)
        # The lease expires before this time. A round takes its GPUs only after both times.
        assert f"until {lease.protected_until:%H:%M} unless it is preempted" in page

    def test_stopping_job_shows_notice_and_its_outcome(
        self, committed_db: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert committed_db
        executor = SlowExecutor()
        monkeypatch.setattr("scheduling.engine.rounds.executor_for", lambda _: executor)
        made = pool_stage(policy="ltgf")  # its leases are not protected
        Pool.objects.update(policy=POLICY.name, grace_s=90)
        made.lab.pool.refresh_from_db()
        made.lab.submit("beta", 3, 40_000)
        made.lab.round(after_s=50)
        job = Job.objects.get(state="stopping")
        page = sentences(made.page("owner", f"/jobs/{job.uid}/"))
        assert "Preempted with 1 min 30 s notice: " in page
        assert "(guarantee). It is checkpointing and stopping." in page
        assert "stopping, within 1 min 30 s" in section(made.page("owner", made.url("history/")))
        # The job completes before it is stopped.
        VirtualWork.objects.filter(job=job).update(duration_us=65_000_000)
        made.lab.round(after_s=20)
        page = sentences(made.page("owner", f"/jobs/{job.uid}/"))
        assert "(guarantee). The job ended before it was stopped." in page
        assert "Finished. The job is done." in page
        assert "job ended first" in section(made.page("owner", made.url("history/")))


class TestCancelledBeneficiary:
    """The job waits for its GPUs, and the round's notice is not withdrawn."""

    @pytest.mark.parametrize("setting", WHO)
    def test_is_reported_as_unused_grant_if_visible(
        self, committed_db: str, monkeypatch: pytest.MonkeyPatch, setting: str
    ) -> None:
        assert committed_db
        executor = SlowExecutor()
        monkeypatch.setattr("scheduling.engine.rounds.executor_for", lambda _: executor)
        made = pool_stage(policy="ltgf")  # its leases are not protected
        made.see(setting)
        Pool.objects.update(policy=POLICY.name, grace_s=90)
        made.lab.pool.refresh_from_db()
        winner = made.lab.submit("beta", 3, 40_000)
        made.lab.round(after_s=50)
        victim = Job.objects.get(state="stopping")
        gave_up = "The beneficiary gave up its grant before it started; notices are not withdrawn."
        assert gave_up not in sentences(made.page("owner", f"/jobs/{victim.uid}/"))
        Job.objects.filter(pk=winner.pk).update(cancel_asked_at=made.lab.at)
        made.lab.round(after_s=20)
        page = sentences(made.page("owner", f"/jobs/{victim.uid}/"))
        # The fate of another tenant's job is shown if that tenant is visible.
        assert (gave_up in page) == (setting != "own")
        shown = section(made.page("owner", made.url("history/")))
        assert ("; the beneficiary gave up" in shown) == (setting != "own")
        row = api(made, "owner", f"jobs/{victim.uid}/why")["preempted"]
        assert row["unused"] == (setting != "own")


def api_lease(there: Stage, who: str, job: Job) -> Any:
    return api(there, who, f"jobs/{job.uid}")["lease"]


class TestMove:
    @pytest.fixture
    def lab(self, committed_db: str) -> Cluster:
        assert committed_db
        lab = cluster({"alpha": 8}, nodes=2, gpus=4, policy=POLICY.name)
        jobs = [lab.submit("alpha", gpus, 4000) for gpus in (3, 1, 3, 1)]
        lab.round()
        Job.objects.filter(pk__in=[jobs[0].pk, jobs[2].pk]).update(cancel_asked_at=lab.at)
        lab.round(after_s=10)
        lab.submit("alpha", 4, 4000)
        lab.round(after_s=10)
        return lab

    def test_is_reported_as_move_and_not_as_preemption(self, lab: Cluster) -> None:
        user = User.objects.create(username="ann", password="!")
        tenant = lab.tenants["alpha"]
        Membership.objects.create(user=user, tenant=tenant, role=Membership.Role.MEMBER)
        client = Client()
        client.force_login(user)
        moved = Lease.objects.get(end_reason="moved").job
        page = client.get(f"/jobs/{moved.uid}/")
        assert (page.context["spent"].moved, page.context["spent"].preempted) == (1, 0)
        shown = sentences(page.content.decode())
        assert (
            "Moved with 30 s notice: it made room on its node for a job of alpha"
            " (defragmentation). It exited immediately; it had held its GPUs for 20 s. The same"
            " round placed it on "
        ) in shown
        pool = client.get(f"/pools/{lab.pool.name}/history/").content.decode()
        assert "1 lease ended early, with notice: 1 moved" in section(pool)
        assert "moved immediately" in section(pool)


class TestPoolPage:
    @pytest.mark.parametrize("setting", WHO)
    def test_lists_rule_victim_and_visible_beneficiary(self, there: Stage, setting: str) -> None:
        there.see(setting)
        shown = section(there.page("owner", there.url("history/")))
        assert "1 lease ended early, with notice: 1 preempted" in shown
        assert "guarantee" in shown
        assert loser().name in shown
        assert "secret-of-beta" not in shown
        assert ("tenant 2" in shown) == (setting == "pseudonyms")
        assert ("other tenants" in shown) == (setting == "own")
        # The numbers of the rule are shown if both tenants are visible.
        assert ("Numbers compared by the rule" in shown) == (setting != "own")

    def test_shows_beneficiary_only_its_own_job(self, there: Stage) -> None:
        there.see("own")
        shown = section(there.page("neighbour", there.url("history/")))
        assert "secret-of-beta" in shown
        assert loser().name not in shown
        assert "alpha" not in shown

    def test_third_tenant_view_follows_visibility_of_pool(self, there: Stage) -> None:
        there.see("own")
        assert section(there.page("third", there.url("history/"))) == ""
        there.see("pseudonyms")
        shown = section(there.page("third", there.url("history/")))
        assert "tenant 1" in shown
        assert "tenant 2" in shown
        assert "secret-of-beta" not in shown
        assert loser().name not in shown

    def test_shows_all_names_to_operators(self, there: Stage) -> None:
        there.see("own")
        shown = section(there.page("operator", there.url("history/")))
        assert "secret-of-beta" in shown
        assert loser().name in shown

    def test_omits_section_without_early_ends(self, committed_db: str) -> None:
        assert committed_db
        made = pool_stage(policy="ltgf")  # its leases are not protected
        assert section(made.page("owner", made.url("history/"))) == ""


class TestRoundPage:
    @pytest.mark.parametrize("setting", WHO)
    def test_marks_lease_end_with_notice(self, there: Stage, setting: str) -> None:
        there.see(setting)
        number = Round.objects.latest("number").number
        page = there.page("owner", there.url(f"rounds/{number}/"))
        shown = sentences(page)
        assert f"Preempted with notice: {WHO[setting]} was below its quota (guarantee)" in shown
        assert "With notice, before the end of their terms." in shown
        assert "Leases end when they are due, or with notice after their minimum runtime" in shown
        assert "1 other lease got notice before" in shown
        assert "secret-of-beta" not in page
        decision = api(there, "owner", f"rounds/{there.pool}/{number}")["decision"]
        (row,) = decision["preemptions"]
        assert (row["rule"], row["moved"], row["gpus"]) == ("guarantee", False, 4)
        assert row["words"] == f"{WHO[setting]} was below its quota (guarantee)"
        assert row["for_job"] is None
        assert (row["numbers"] == {}) == (setting == "own")


class TestApi:
    def test_lists_preemptions_by_visibility_of_caller(self, there: Stage) -> None:
        there.see("full")
        page = api(there, "owner", f"pools/{there.pool}/preemptions?limit=1")
        (row,) = page["results"]
        assert page["next"] is None
        lease = Lease.objects.get(end_reason="preempted")
        assert lease.ended_at is not None
        at = time_text(lease.ended_at)
        assert row == {
            "at": at, "round": 3, "rule": "guarantee", "moved": False, "gpus": 4,
            "words": "beta was below its quota (guarantee)", "gpu_type": "v100",
            "tenant": {"name": "alpha", "slug": "alpha", "you": True},
            "job": {"id": str(lease.job.uid), "name": lease.job.name},
            "for_tenant": {"name": "beta", "slug": None, "you": False}, "for_job": None,
            "numbers": {"held": 1, "quota": 4}, "notice_s": 30, "released_at": at,
            "unused": False,
        }  # fmt: skip
        there.see("own")
        assert api(there, "third", f"pools/{there.pool}/preemptions")["results"] == []
        (row,) = api(there, "neighbour", f"pools/{there.pool}/preemptions")["results"]
        assert (row["tenant"], row["job"], row["numbers"]) == (None, None, {})
        assert row["for_job"]["name"] == "secret-of-beta"

    def test_continues_from_cursor(self, there: Stage) -> None:
        Job.objects.filter(name="secret-of-beta").update(cancel_asked_at=there.lab.at)
        there.lab.round(after_s=10)
        there.lab.round(after_s=10)
        there.lab.submit("beta", 3, 40_000)
        there.lab.round(after_s=10)
        path = f"pools/{there.pool}/preemptions?limit=1"
        first = api(there, "owner", path)
        second = api(there, "owner", f"{path}&cursor={first['next']}")
        rounds = [page["results"][0]["round"] for page in (first, second)]
        assert rounds == sorted(rounds, reverse=True)
        assert len(set(rounds)) == 2
        assert second["next"] is None

    def test_job_reason_includes_its_preemption(self, there: Stage) -> None:
        answer = api(there, "owner", f"jobs/{loser().uid}/why")
        assert answer["reason_code"] == "lease_turn"
        assert answer["preempted"]["words"].endswith("was below its quota (guarantee)")
        other = Job.objects.filter(tenant=there.tenant("alpha"), state="running").earliest("id")
        assert api(there, "owner", f"jobs/{other.uid}/why")["preempted"] is None


class TestMetrics:
    def test_count_preemptions_by_rule_from_zero(self, there: Stage) -> None:
        collector = DatabaseCollector()
        assert set(counted(collector).values()) == {0.0}
        Job.objects.filter(name="secret-of-beta").update(cancel_asked_at=there.lab.at)
        there.lab.rounds(2, every_s=10)
        there.lab.submit("beta", 3, 40_000)
        there.lab.round(after_s=10)
        assert counted(collector) == {
            "guarantee": 1.0, "pays": 0.0, "defragment": 0.0, "gang": 0.0, "promise": 0.0,
        }  # fmt: skip


def counted(collector: DatabaseCollector) -> dict[str, float]:
    return {
        sample.labels["rule"]: sample.value
        for family in collector.collect()
        for sample in family.samples
        if sample.name == "evenshare_preemptions_total" and sample.labels["pool"] == "pool-1"
    }


class TestRules:
    @pytest.mark.parametrize("rule", list(PreemptionRule))
    def test_every_rule_has_text(self, rule: PreemptionRule) -> None:
        text = preemption_text(rule.value, "north")
        assert text.endswith(f"({rule_text(rule.value)})")
        assert "north" in text
        assert "another tenant" in preemption_text(rule.value, "")

    def test_unknown_rule_shows_its_code(self) -> None:
        assert preemption_text("old_rule", "north") == "for a job of north (old rule)"

    def test_show_numbers_with_units(self) -> None:
        at = datetime(2030, 1, 2, tzinfo=UTC)
        note = numbers_note(
            "pays",
            {"gain_gpu_us": 7_200_000_000, "ran_us": 90_000_000, "price_micro": 1_500_000,
             "held": 3, "rho": 0.5, "since_us": 1_893_456_000_000_000, "limit": None},
            Clocks(PoolNow(wall=at, pool_at=at, scale=60, paused=False)),
        )  # fmt: skip
        assert note is not None
        assert {line.label: line.value for line in note.line_items} == {
            "gain, GPU-h": "2.0", "ran": "1 min 30 s", "price, credits": "1.5000", "held": "3",
            "rho": "0.50", "since": "2030-01-01 00:00:00 UTC", "limit": "none",
        }  # fmt: skip
        here = Clocks(PoolNow(wall=at, pool_at=at, scale=1, paused=False))
        with viewed_in(ZoneInfo("Europe/Berlin")):
            note = numbers_note("pays", {"since_us": 1_893_456_000_000_000}, here)
        assert note is not None
        assert note.line_items[0].value == "2030-01-01 01:00:00"
        assert numbers_note("pays", {}, here) is None
