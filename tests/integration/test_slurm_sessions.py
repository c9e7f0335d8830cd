"""Test an interactive job on nodes of a real Slurm cluster, without a proxy in front of it."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.utils import timezone

from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.clock import read_clock
from scheduling.engine.executors.base import ReportState, token_job
from scheduling.models import Job, Lease, LeaseSlot
from scheduling.services.sessions import enter_session, find_target, open_session
from tenants.models import Membership, User
from tests.integration.session_world import ENVIRONMENT, SERVE, is_ready
from tests.integration.slurm_world import SlurmWorld, slurm_world
from tests.ports import free_port
from tests.tools import PATIENCE_S, eventually

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def world(tmp_path: Path, slurm_cluster: SlurmCluster, settings: Any) -> Iterator[SlurmWorld]:
    first = free_port()
    settings.SESSIONS_DOMAIN = "sessions.test"
    settings.SESSION_PORTS = range(first, min(first + 200, 65536))
    with slurm_world(tmp_path / "jobs", slurm_cluster) as made:
        yield made


def status(port: int, **headers: str) -> int:
    """Return the status of the server's page; Slurm's nodes are all on this machine."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", "/", headers=headers)
    return connection.getresponse().status


class TestGang:
    def test_serves_on_its_first_node_to_the_holder_of_a_link(self, world: SlurmWorld) -> None:
        ada = User.objects.create_user("ada", password="x" * 20)
        Membership.objects.create(user=ada, tenant=world.lab.tenants["a"], role="member")
        lease = world.run(
            *SERVE, gpus=(2, 1), session="shell", submitted_by=ada, environment=ENVIRONMENT
        )
        job = Job.objects.select_related("pool").get(pk=token_job(lease))
        Lease.objects.filter(job=job).update(
            state="running", started_at=read_clock(job.pool_id).pool_at
        )
        LeaseSlot.objects.filter(lease__job=job).update(holding=True)
        eventually(lambda: is_ready(job))
        url = urlsplit(open_session(job=job, user=ada, now=timezone.now()).url or "")
        [code] = parse_qs(url.query)["code"]
        token = enter_session(host=url.netloc, code=code, now=timezone.now())
        target = find_target(host=url.netloc, token=token or "")
        assert target is not None
        node, _, port = target.address.partition(":")
        assert node == LeaseSlot.objects.filter(lease__job=job).earliest("node_id").node.name
        assert status(int(port)) == 401
        assert status(int(port), Authorization=target.authorization) == 200
        world.stop(lease)
        assert world.ended(lease).state is ReportState.STOPPED
        assert not is_ready(job)
        assert find_target(host=url.netloc, token=token or "") is None
