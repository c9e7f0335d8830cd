"""Test the example package: its policy is installed, run live, certified, simulated, verified."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from evenshare_core.domain.decision import Solve
from evenshare_core.fairness.certificate import Property, Verdict, read
from evenshare_core.policies import registry
from evenshare_core.policies.installed import read_policies
from scheduling.models import Lease, Round
from scheduling.selectors.rounds.stored import round_decision
from tenants.models import Membership, User
from tests.factories import Cluster, cluster
from tests.functional.test_cli import PASSWORD, Person

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "pyomo_policy"
NAME = "longest_waits"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the example into a separate folder, without a package index."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    words = ("install", "--no-deps", "--no-build-isolation", "--target", "site", "./source")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "-q", *words],
        env={"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull},
        cwd=folder, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture
def registered(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Register the policy as in a portal that started with the package on its path."""
    monkeypatch.syspath_prepend(str(package))
    policies, faults = read_policies(())
    assert NAME not in faults
    monkeypatch.setitem(registry.POLICIES, NAME, policies[NAME])
    yield package
    sys.modules.pop(NAME)


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Cluster:
    """Return a pool of 4 GPUs after two rounds, in which no other job fits next to the first."""
    request.getfixturevalue("registered")
    request.getfixturevalue("committed_db")
    lab = cluster({"a": 2, "b": 2}, nodes=1, policy=NAME, lease_s=20)
    for tenant, gpus in (("a", 3), ("b", 2), ("a", 2)):
        lab.submit(tenant, gpus, 600)
    lab.rounds(2, every_s=10)
    return lab


class TestExample:
    def test_model_has_at_most_80_lines(self) -> None:
        assert len((EXAMPLE / f"{NAME}.py").read_text().splitlines()) <= 80

    def test_is_simulated(self, package: Path) -> None:
        drawn = ("simulate", "--synthetic", "30,3,2", "--nodes", "2", "--policy", f"{NAME},fifo")
        path = os.pathsep.join([str(package), str(ROOT / "core" / "src")])
        done = subprocess.run(
            [sys.executable, "-m", "evenshare_core.cli", *drawn, "--json"],
            check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        example, fifo = json.loads(done.stdout)["results"]
        assert (example["policy"], example["jobs"]) == (NAME, 30)
        assert example["avg_jct_s"] < fifo["avg_jct_s"]


class TestLiveRound:
    def test_starts_jobs_of_the_program_with_a_certificate(self, lab: Cluster) -> None:
        assert list(Lease.objects.order_by("id").values_list("gpus", flat=True)) == [2, 2]
        for round_ in Round.objects.all():
            lines = {row.name: row.verdict for row in read(round_.certificate).findings}
            assert lines[Property.CAPACITY] == lines[Property.PARETO] == Verdict.HOLDS
        first = round_decision(Round.objects.get(number=1))
        assert first.solve == Solve("pyomo highs", "optimal", 4.0)
        out = StringIO()
        call_command("replay_round", "2", "--pool", lab.pool.name, stdout=out)
        assert "same" in out.getvalue()

    def test_is_verified_by_tenant_with_the_package(
        self, lab: Cluster, registered: Path, site: str, tmp_path: Path
    ) -> None:
        lab.seal()
        user = User.objects.create_user("ada", password=PASSWORD)
        Membership.objects.create(user=user, tenant=lab.tenants["a"])
        ada = Person("ada", tmp_path, site, packages=(*Person.packages, registered))
        ada.logs_in()
        shown = ada.json("round", "verify", "--pool", lab.pool.name, "--last", "2")
        assert shown["ok"] is True
        assert "decision" in shown["rounds"][-1]["recomputed"]
