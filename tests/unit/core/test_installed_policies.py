"""Test policies of other packages: entry points list them, and a faulty one affects no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.ltgf_pool import pool
from evenshare_core.fairness.certificate import Property, Verdict
from evenshare_core.policies import registry
from evenshare_core.policies.base import certify_round, decide_round
from evenshare_core.policies.installed import BROUGHT_BY, GROUP, read_policies
from tests.outside_package import SMALLEST, install_policy

HERE = Path(__file__).resolve().parents[3]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Add a folder to the path as if its content were installed; forget its modules afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("acme_policies", "other_policies"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


class TestExternalPolicy:
    def test_decides_certifiable_round(
        self, installed: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install_policy(installed)
        policies, faults = read_policies(())
        assert faults == {}
        monkeypatch.setitem(registry.POLICIES, "smallest", policies["smallest"])
        snapshot = replace(
            pool(seed=3, nodes=4, tenants=3, pending=9, fill=0.3, expired=0.5),
            policy="smallest", policy_version="7", options={},
        )  # fmt: skip
        decision = decide_round(snapshot)
        assert decision.grants
        verdicts = {row.name: row.verdict for row in certify_round(snapshot, decision).findings}
        assert verdicts[Property.CAPACITY] == verdicts[Property.PARETO] == Verdict.HOLDS

    def test_cli_simulates_it_with_core_policies(self, tmp_path: Path) -> None:
        # A policy may import the modules that decide rounds, in any order.
        uses = "\nfrom evenshare_core.policies.base import decide_round\n"
        install_policy(tmp_path, code=SMALLEST.read_text() + uses)
        path = os.pathsep.join([str(tmp_path), str(HERE / "core" / "src")])
        drawn = ("simulate", "--synthetic", "60,3,2", "--nodes", "2", "--policy", "smallest,fifo")
        done = subprocess.run(
            [sys.executable, "-m", "evenshare_core.cli", *drawn, "--json"],
            check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        toy, fifo = json.loads(done.stdout)["results"]
        assert (toy["policy"], fifo["policy"]) == ("smallest", "fifo")
        assert toy["sha256"] != fifo["sha256"]


class TestFaultyPackage:
    @pytest.mark.parametrize(
        ("code", "name", "why"),
        [
            ("import nowhere_at_all", "smallest", "ModuleNotFoundError: No module named 'nowhere"),
            ("1 / 0", "smallest", "ZeroDivisionError: division by zero"),
            ("import sys\nsys.exit(3)", "smallest", "SystemExit: 3"),
            ("", "smallest", "AttributeError: module 'acme_policies' has no attribute 'POLICY'"),
            ("POLICY = 3", "smallest", "TypeError: acme_policies:POLICY is no Policy"),
            (None, "tiniest", "ValueError: acme_policies:POLICY is named 'smallest'"),
        ],
    )
    def test_fault_names_package_and_cause(
        self, installed: Path, code: str | None, name: str, why: str
    ) -> None:
        install_policy(installed, name=name, code=code)
        install_policy(
            installed, "other-policies", name="largest",
            code=SMALLEST.read_text().replace('name = "smallest"', 'name = "largest"'),
        )  # fmt: skip
        policies, faults = read_policies(())
        assert list(faults) == [name]
        wanted = f"policy '{name}' of acme-policies 1.2 does not load: {why}"
        assert faults[name].startswith(wanted)
        assert "largest" in policies

    def test_ignores_package_with_unreadable_entry_points(self, installed: Path) -> None:
        install_policy(installed)
        (installed / "broken-1.dist-info").mkdir()
        (installed / "broken-1.dist-info" / "METADATA").write_text("Name: broken\nVersion: 1\n")
        (installed / "broken-1.dist-info" / "entry_points.txt").write_text(
            "[console_scripts]\nno\n"
        )
        policies, faults = read_policies(())
        assert "smallest" in policies
        assert not faults

    def test_does_not_replace_core_policy(self, installed: Path) -> None:
        install_policy(installed)
        policies, faults = read_policies(["smallest"])
        assert "smallest" not in policies
        assert faults["smallest"] == (
            "policy 'smallest' of acme-policies 1.2 is skipped: the core has one of this name"
        )

    def test_skips_name_declared_by_two_packages(self, installed: Path) -> None:
        install_policy(installed)
        install_policy(installed, "other-policies")
        policies, faults = read_policies(())
        assert "smallest" not in policies
        assert faults["smallest"] == (
            "policy 'smallest' of acme-policies 1.2 and other-policies 1.2 is skipped:"
            " policy names must be unique"
        )

    def test_registry_error_shows_fault(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(registry.FAULTS, "smallest", "policy 'smallest' does not load: why")
        with pytest.raises(registry.UnknownPolicyError, match="does not load: why"):
            registry.policy("smallest")


class TestResearchPolicies:
    def test_providing_package_matches_its_entry_points(self) -> None:
        project = tomllib.loads((HERE / "research" / "pyproject.toml").read_text())["project"]
        declared = project["entry-points"][GROUP.name]
        assert dict.fromkeys(declared, project["name"]) == BROUGHT_BY

    def test_error_names_package_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(registry.POLICIES, "themis")
        with pytest.raises(registry.UnknownPolicyError) as raised:
            registry.policy("themis")
        assert str(raised.value) == (
            "policy 'themis' is not installed; the package evenshare-research brings it:"
            " pip install evenshare-research"
        )


class TestEnvironment:
    def test_all_installed_policies_load(self) -> None:
        assert registry.FAULTS == {}
        assert {entry.name for entry in entry_points(group=GROUP.name)} <= registry.POLICIES.keys()
