"""Test the demo pool `slurm`: created if a cluster was started, and active while users view it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from django.db.models import F
from django.test import Client, override_settings
from pytest_django import DjangoDbBlocker, Settings

from portal.demo.philly import seed_demo
from portal.demo.slurm.cluster import SlurmCluster
from portal.demo.slurm.config import NODES, PARTITION
from portal.demo.slurm_pool import (
    GPU_TYPES,
    JOBS,
    MOST_ACTIVE,
    NAME,
    SOURCE,
    SUBMIT_EVERY,
    WATCHED_FOR,
    submit_when_due,
)
from scheduling.engine.clock import wall_now
from scheduling.engine.executors.slurm.options import read_options
from scheduling.models import GpuType, Job, Node, Pool, PoolClock
from tenants.models import Quota
from tenants.scopes import site_scope
from tests.integration.test_slurm_nodes import sync
from tests.plugin import Services, database_like, pointed_to
from tests.stages import kept_database

CONF = "/somewhere/slurm.conf"


@pytest.fixture(scope="module")
def seeded(
    template_database: str, services: Services, django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:
    """Yield the name of a database with the demo after the start of a cluster."""
    with kept_database("slurm_pool", template_database, services) as name:
        with django_db_blocker.unblock(), pointed_to(name), override_settings(DEMO_SLURM_CONF=CONF):
            seed_demo()
        yield name


@pytest.fixture
def pool(
    seeded: str, services: Services, django_db_blocker: DjangoDbBlocker, settings: Settings
) -> Iterator[Pool]:
    settings.DEMO_SLURM_CONF = CONF
    with database_like(seeded, services, django_db_blocker):
        PoolClock.objects.update(anchor_wall=wall_now(), viewed_wall=wall_now())
        yield Pool.objects.get(name=NAME)


def jobs() -> list[Job]:
    with site_scope():
        return list(Job.objects.filter(pool__name=NAME).order_by("id"))


def make_time_pass() -> None:
    with site_scope():
        Job.objects.update(submitted_at=F("submitted_at") - SUBMIT_EVERY)


class TestWithoutCluster:
    @pytest.mark.django_db
    def test_creates_no_pool_and_no_tour_stop(self, client: Client) -> None:
        seed_demo()
        assert not Pool.objects.filter(name=NAME).exists()
        assert not submit_when_due()
        assert b"Run on a Slurm cluster" not in client.get("/").content

    def test_pool_of_earlier_start_stays_without_submissions(
        self, pool: Pool, client: Client, settings: Settings
    ) -> None:
        settings.DEMO_SLURM_CONF = ""
        assert not seed_demo()
        pool.refresh_from_db()
        assert pool.executor_options["conf"] == CONF
        assert not submit_when_due()
        assert b"Run on a Slurm cluster" not in client.get("/").content


class TestDemoPool:
    def test_has_nodes_and_gpus_of_cluster(self, pool: Pool) -> None:
        rows = Node.objects.filter(pool=pool).values_list("name", "gpu_type__name", "gpus")
        assert set(rows) == {(node.name, node.gpu_type, node.gpus) for node in NODES}

    def test_new_cluster_needs_no_sync(self, pool: Pool, slurm_cluster: SlurmCluster) -> None:
        assert slurm_cluster.partition == PARTITION
        pool.executor_options["conf"] = str(slurm_cluster.conf)
        pool.save()
        assert sync(pool, "--dry-run") == (["nothing to change"], [])

    def test_shares_all_gpus_of_each_type_as_quotas(self, pool: Pool) -> None:
        there: Counter[str] = Counter()
        for node in NODES:
            there[node.gpu_type] += node.gpus
        with site_scope():
            rows = Quota.objects.filter(pool=pool).values_list("gpu_type__name", "gpus")
            given: Counter[str] = Counter()
            for gpu_type, gpus in rows:
                given[gpu_type] += gpus
        assert given == there
        ranks = dict(GpuType.objects.values_list("name", "rank"))
        order = [one.name for one in GPU_TYPES]
        assert sorted(order, key=lambda name: ranks[name]) == order

    def test_options_are_readable_by_executor(self, pool: Pool) -> None:
        assert read_options(pool.executor_options, NAME).conf == CONF

    def test_finds_moved_cluster_at_next_start(self, pool: Pool, settings: Settings) -> None:
        settings.DEMO_SLURM_CONF = "/elsewhere/slurm.conf"
        pool.executor_options["qos"] = "high"
        pool.save()
        assert not seed_demo()
        pool.refresh_from_db()
        assert pool.executor_options["conf"] == "/elsewhere/slurm.conf"
        # An operator's settings are kept.
        assert pool.executor_options["qos"] == "high"

    def test_is_a_tour_stop(self, pool: Pool, client: Client) -> None:
        page = client.get("/").content.decode()
        assert "Run on a Slurm cluster" in page
        stop = f"/pools/{pool.name}/"
        assert client.post("/demo/operator/", {"next": stop}).headers["Location"] == stop
        assert client.get(stop).status_code == 200


class TestTeams:
    def test_submit_their_jobs_in_order(self, pool: Pool) -> None:
        assert submit_when_due()
        assert not submit_when_due(), "not so soon"
        make_time_pass()
        assert submit_when_due()
        first, second = jobs()
        assert (first.name, second.name) == (f"{JOBS[0].name}-1", f"{JOBS[1].name}-2")
        assert (first.source, first.gpus, first.gpu_types) == (SOURCE, 4, ["a100"])
        assert first.command == ["python", "examples/pretend.py", "--seconds", "45"]

    def test_limit_their_number_of_jobs(self, pool: Pool) -> None:
        for _ in range(MOST_ACTIVE):
            assert submit_when_due()
            make_time_pass()
        assert not submit_when_due()
        with site_scope():
            Job.objects.filter(id=jobs()[0].pk).update(state=Job.State.SUCCEEDED)
        assert submit_when_due()

    def test_submit_nothing_without_viewers(self, pool: Pool) -> None:
        clock = PoolClock.objects.filter(pool=pool)
        clock.update(viewed_wall=F("viewed_wall") - WATCHED_FOR)
        assert not submit_when_due()

    def test_request_only_gpus_of_cluster(self) -> None:
        sizes: Counter[str] = Counter()
        for node in NODES:
            sizes[node.gpu_type] += node.gpus
        for job in JOBS:
            assert all(job.gpus <= sizes[gpu_type] for gpu_type in job.gpu_types), job
        most = max(node.gpus for node in NODES)
        assert {1, 2, 4} < {job.gpus for job in JOBS}
        assert any(job.gpus > most for job in JOBS), "one is larger than a node"
