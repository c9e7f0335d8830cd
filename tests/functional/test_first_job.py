"""Test the README's first job, from its command to its first settled hour, on all pages.

tests/functional/test_cli.py runs the process itself. Here its half minute is simulated, so that an
hour passes at once.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from billing.metering import meter_pool, settle_pool
from billing.models import MeterCursor
from evenshare_core.units import SECOND_US
from scheduling.engine.clock import wall_now
from scheduling.models import Job, Pool, PoolClock, VirtualWork
from tenants.models import User
from tests.architecture.sources import ROOT
from tests.factories import Cluster, cluster
from tests.functional.crawl import asked, looks
from tests.functional.test_cli import person
from tests.functional.visitors import signed_in

COMMAND = re.compile(r"^\.venv/bin/evenshare (job submit .*)$", re.MULTILINE)


@pytest.fixture
def lab(site: str) -> Cluster:
    """Create a small version of the demo's pool `local`: two slots for two tenants."""
    assert site
    lab = cluster({"rosa-lab": 1, "mara-lab": 1}, nodes=1, gpus=2, executor="local")
    Pool.objects.filter(pk=lab.pool.pk).update(name="local")
    lab.pool.refresh_from_db()
    return lab


def play(lab: Cluster, job: Job) -> None:
    """Run the job for half a minute, then the rounds of the next hours; settle them."""
    Pool.objects.filter(pk=lab.pool.pk).update(executor="virtual")
    VirtualWork.objects.create(job=job, duration_us=30 * SECOND_US)
    lab.at = job.submitted_at
    lab.rounds(3, every_s=60)
    job.refresh_from_db()
    assert job.state == "succeeded"
    lab.rounds(5, every_s=900)
    meter_pool(lab.pool.pk)
    settle_pool(lab.pool.pk)
    assert MeterCursor.objects.get().settled_until is not None
    lab.seal()
    PoolClock.objects.filter(pool=lab.pool).update(anchor_pool=lab.at, anchor_wall=wall_now())


class TestFirstJob:
    def test_every_page_and_command_works_after_settlement(
        self, lab: Cluster, site: str, tmp_path: Path
    ) -> None:
        rosa = person("rosa", lab.tenants["rosa-lab"], tmp_path, site)
        rosa.logs_in()
        found = COMMAND.search((ROOT / "README.md").read_text(encoding="utf-8"))
        assert found is not None
        job = Job.objects.get(uid=rosa.does(*shlex.split(found[1])).strip())
        assert job.command == ["python", "examples/train.py"]
        play(lab, job)
        assert "rosa-lab" in rosa.does("contribution", "--pool", "local")
        words = {
            "slug": "rosa-lab", "pool": "local", "job": str(job.uid), "round": "1",
            "node": "n0000", "gpu_type": "v100", "username": "rosa",
        }  # fmt: skip
        owner = signed_in(User.objects.get(username="rosa"))
        operator = signed_in(User.objects.create(username="otto", site_role="operator"))
        shown = {}
        for look in looks({"the first job": words}):
            # Operators see the pages that the job's tenant may not see.
            status = asked(owner, look.path).status_code
            shown[look.path] = asked(operator, look.path).status_code if status == 404 else status
        assert {path: status for path, status in shown.items() if status >= 500} == {}
        assert list(shown.values()).count(200) > 90
