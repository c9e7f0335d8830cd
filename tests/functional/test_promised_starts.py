"""Test what people see of promised starts: on pages, over REST, on the GPU map and in metrics."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from portal.site.metrics import DatabaseCollector
from scheduling.models import Job, Lease, LeaseEvent, Node, Round
from scheduling.selectors.rounds.promised_starts import pinned_until
from scheduling.services.dry_run import dry_run_job
from tests.factories import BEGIN, cluster
from tests.functional.pool_stage import Stage, _people
from tests.functional.queue_stages import text
from tests.stages import staged

LEASE_S = 900
DUE = BEGIN + timedelta(seconds=LEASE_S)


def promised_stage() -> Stage:
    """Create a pool in which beta is owed a node: leases on it end, and a GPU is held back."""
    options = {"promises": True, "min_runtime_s": 60, "pays": False, "gangs_per_round": 0}
    quotas = {"alpha": 4, "beta": 8, "gamma": 4}
    lab = cluster(quotas, nodes=2, gpus=8, policy="evenshare", options=options, lease_s=LEASE_S)
    for tenant, gpus in (("alpha", 1), *[("alpha", 2)] * 4, ("gamma", 2)):
        lab.submit(tenant, gpus, 40_000)
    lab.round()
    lab.submit("beta", 8, 40_000)
    lab.round(after_s=10)
    lab.round(after_s=10)
    _people(lab)
    return Stage(lab)


there = staged(promised_stage)


def gang() -> Job:
    return Job.objects.filter(tenant__slug="beta").earliest("id")


def pinned_lease() -> Lease:
    """Return alpha's oldest lease, on the node that is promised to beta."""
    return Lease.objects.filter(tenant__slug="alpha").earliest("id")


def cancel_gang(there: Stage) -> None:
    Job.objects.filter(pk=gang().pk).update(cancel_asked_at=there.lab.at)
    there.lab.round(after_s=10)


def api(there: Stage, who: str, path: str) -> Any:
    answer = there.get(who, f"/api/v1/{path}")
    assert answer.status_code == 200
    return answer.json()


def counted(collector: DatabaseCollector) -> dict[str, float]:
    return {
        sample.labels["outcome"]: sample.value
        for family in collector.collect()
        for sample in family.samples
        if sample.name == "evenshare_promised_starts_total" and sample.labels["pool"] == "pool-1"
    }


class TestPromisedJob:
    def test_page_states_latest_start_on_pool_clock(self, there: Stage) -> None:
        page = text(there.get("neighbour", f"/jobs/{gang().uid}/"))
        assert re.search("Starts by 00:15:00 at the latest ?: GPUs are promised to it.", page)
        assert "start promised" in page
        assert "start estimate" not in page  # it would contradict the promise
        assert "It starts by 2030-01-01 00:15:00 UTC , pool time, at the latest: 8 GPUs" in page

    def test_rest_states_latest_start(self, there: Stage) -> None:
        job = api(there, "neighbour", f"jobs/{gang().uid}")
        assert (job["reason_code"], job["starts_by"]) == ("promised", "2030-01-01T00:15:00.000000Z")
        (listed,) = api(there, "neighbour", "jobs")["results"]
        assert listed["starts_by"] == job["starts_by"]
        why = api(there, "neighbour", f"jobs/{gang().uid}/why")
        assert why["words"].startswith(
            "It starts by 2030-01-01 00:15:00 UTC, pool time, at the latest"
        )
        assert why["numbers"]["held_back"] == 1

    def test_job_without_promise_has_no_latest_start(self, there: Stage) -> None:
        there.lab.submit("beta", 8, 40_000)
        there.lab.round(after_s=10)
        job = Job.objects.latest("id")
        assert job.reason_code not in ("", "promised")
        assert api(there, "neighbour", f"jobs/{job.uid}")["starts_by"] is None
        assert "at the latest" not in text(there.get("neighbour", f"/jobs/{job.uid}/"))

    def test_log_states_lost_node(self, there: Stage) -> None:
        Node.objects.filter(pk=pinned_lease().placement[0][0]).update(state="drained")
        there.lab.round(after_s=10)
        page = text(there.get("neighbour", f"/jobs/{gang().uid}/"))
        lost = "no longer holds, because a node of its place was lost"
        assert f"Promise ended: the start by 00:15:00 {lost}." in page
        (event,) = LeaseEvent.objects.filter(kind="promise_ended")
        assert (event.job_id, event.data["lost_node"]) == (gang().pk, True)

    def test_dry_run_states_latest_start(self, there: Stage) -> None:
        cancel_gang(there)
        spec = {"pool": there.pool, "gpus": 8}
        now = there.lab.now()
        answer = dry_run_job(tenant=there.tenant("beta"), spec=spec, now=lambda _: now)
        assert (answer.feasible, answer.reason_code) == (True, "promised")
        assert "It starts by 2030-01-01 00:15:00 UTC, pool time, at the latest" in answer.detail

    def test_started_job_has_no_latest_start(self, there: Stage) -> None:
        there.lab.round(after_s=LEASE_S)
        assert gang().state == "running"
        assert api(there, "neighbour", f"jobs/{gang().uid}")["starts_by"] is None


class TestPinnedLease:
    def test_page_states_when_it_ends_for_other_job(self, there: Stage) -> None:
        assert pinned_until(there.lab.pool.pk, pinned_lease().job_id) == DUE
        page = text(there.get("owner", f"/jobs/{pinned_lease().job.uid}/"))
        assert "Promised to another job at 00:15:00" in page

    def test_other_leases_do_not(self, there: Stage) -> None:
        other = Lease.objects.filter(tenant__slug="alpha").latest("id")
        page = text(there.get("owner", f"/jobs/{other.job.uid}/"))
        assert "Promised to another job" not in page

    def test_page_reads_no_promises_if_there_are_none(self, there: Stage) -> None:
        path = f"/jobs/{pinned_lease().job.uid}/"
        with_promise = there.reads("owner", path)
        cancel_gang(there)
        assert there.reads("owner", path) == with_promise - 1
        assert "Promised to another job" not in text(there.get("owner", path))


class TestMap:
    def page(self, there: Stage, who: str) -> str:
        return there.page(who, there.url())

    def test_shows_gpus_held_back_with_job_and_time(self, there: Stage) -> None:
        page = self.page(there, "neighbour")
        held = f"1 GPU held back for beta, {gang().name}, until 2030-01-01 00:15:00 UTC, pool time"
        assert f"<title>{held}</title>" in page
        assert any(one.endswith(held) for one in re.findall("<title>(n[^<]*)<", page))
        (nodes,) = re.findall('<ul class="nodes".*?</ul>', page)
        idle = re.findall('<path d="([^"]*)" class="idle"', nodes)
        assert (nodes.count('class="kept"'), "".join(idle).count("M")) == (1, 4)
        assert f'href="/jobs/{gang().uid}/"' in page
        assert ": held back for the promised start of a job." in " ".join(page.split())
        assert "5 idle (1 of them held back)" in page

    def test_names_no_job_of_other_tenants(self, there: Stage) -> None:
        there.see("full")
        page = self.page(there, "owner")
        assert "1 GPU held back for a job of beta, until" in page
        assert gang().name not in page
        assert str(gang().uid) not in page

    @pytest.mark.parametrize(
        ("visibility", "who"), [("pseudonyms", "tenant 2"), ("own", "another tenant")]
    )
    def test_names_no_hidden_tenant(self, there: Stage, visibility: str, who: str) -> None:
        there.see(visibility)
        page = self.page(there, "owner")
        assert f"1 GPU held back for a job of {who}, until" in page
        assert "beta" not in page

    def test_shows_none_on_nodes_that_take_no_leases(self, there: Stage) -> None:
        Node.objects.update(state="drained")
        assert "held back" not in self.page(there, "operator")

    def test_legend_has_no_entry_without_promises(self, there: Stage) -> None:
        cancel_gang(there)
        page = self.page(there, "operator")
        assert "held back" not in page
        assert 'class="kept"' not in page


class TestMetrics:
    def test_count_kept_promise(self, there: Stage) -> None:
        collector = DatabaseCollector()
        assert counted(collector) == {"made": 0, "kept": 0, "late": 0, "excused": 0}
        there.lab.round(after_s=LEASE_S - 20)
        assert counted(collector) == {"made": 0, "kept": 1, "late": 0, "excused": 0}
        first = Round.objects.filter(summary__has_key="promises").earliest("number")
        assert first.summary["promises"] == {"made": 1, "kept": 0, "late": 0, "excused": 0}

    def test_count_late_start(self, there: Stage) -> None:
        collector = DatabaseCollector()
        counted(collector)
        there.lab.round(after_s=LEASE_S + 300)
        assert counted(collector) == {"made": 0, "kept": 0, "late": 1, "excused": 0}

    def test_count_lost_node_as_excuse(self, there: Stage) -> None:
        collector = DatabaseCollector()
        counted(collector)
        Node.objects.filter(pk=pinned_lease().placement[0][0]).update(state="drained")
        there.lab.round(after_s=10)
        # The gang gets a new promise on the other node.
        assert counted(collector) == {"made": 1, "kept": 0, "late": 0, "excused": 1}

    def test_count_no_cancelled_job(self, there: Stage) -> None:
        collector = DatabaseCollector()
        counted(collector)
        cancel_gang(there)
        assert set(counted(collector).values()) == {0}

    def test_rounds_without_promises_store_no_counts(self, there: Stage) -> None:
        cancel_gang(there)
        there.lab.submit("alpha", 1, 100)
        there.lab.round(after_s=10)
        assert "promises" not in Round.objects.latest("number").summary
