"""Test the wheel of the installed library with only its own dependencies."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from msgspec.structs import replace

from benchmarks.ltgf_pool import pool
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes, sha256_hex
from evenshare_core.policies.base import decide_round
from tests.papers.test_sharing_properties import mixed

ROOT = Path(__file__).resolve().parents[3]
DRAWN = ("simulate", "--synthetic", "200,4,6", "--nodes", "6", "--policy", "ltgf,fifo")
PLAIN = pool(seed=3, nodes=6, tenants=3, pending=20, fill=0.5, expired=0.5)
MIXED = replace(mixed(3, nodes=6, tenants=3, pending=20, fill=0.5, expired=0.5), policy="oef")
SHARES = ("shares", "--policy", "oef", "--speedups", "[[1,2],[1,5]]", "--capacity", "[1,1]")
EQUAL_GAINS = (*SHARES, "--option", "environment=noncooperative", "--caps", "[1,null]")
# Without `site`, Python does not find the packages of the checkout and the environment. It can
# import only the standard library, the wheel and its dependencies.
ALONE = """
import sys
from importlib.machinery import PathFinder

wheel, packages, allowed, entry, *arguments = sys.argv[1:]
allowed = {*sys.stdlib_module_names, *allowed.split(",")}

class Installed:
    find_distributions = staticmethod(PathFinder.find_distributions)

    def find_spec(self, name, path=None, target=None):
        return PathFinder.find_spec(name, path) if name.partition(".")[0] in allowed else None

sys.meta_path[sys.meta_path.index(PathFinder)] = Installed()
sys.path += [wheel, packages]
module, _, function = entry.partition(":")
sys.exit(getattr(__import__(module, fromlist=[function]), function)(arguments))
"""

Elsewhere = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of the checkout, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    built = [sys.executable, "-m", "uv", "build", "--wheel", "--offline", "-q", "-o", str(folder)]
    subprocess.run([*built, str(ROOT / "core")], check=True, cwd=folder)
    [path] = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    """Run the wheel's command with only its dependencies."""
    project = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())["project"]
    needed = [text.partition(">")[0] for text in project["dependencies"]]
    [points] = wheel.glob("*.dist-info/entry_points.txt")
    entry = points.read_text().split("evenshare-core = ")[1].split()[0]
    folder = tmp_path_factory.mktemp("elsewhere")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                *(sys.executable, "-I", "-S", "-c", ALONE),
                *(str(wheel), sysconfig.get_path("purelib")),
                *(",".join(["evenshare_core", *needed]), entry, *arguments),
            ],
            cwd=folder, check=False, capture_output=True, text=True,
        )  # fmt: skip

    return run


def here(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


class TestWheel:
    def test_contains_only_library_files(self, wheel: Path) -> None:
        held = [path for path in wheel.rglob("*") if path.is_file()]
        assert {path.relative_to(wheel).parts[0].partition("-")[0] for path in held} == {
            "evenshare_core"
        }
        inside = [path for path in held if path.parent.name.partition(".")[2] != "dist-info"]
        odd = {path.name for path in inside if path.suffix != ".py"}
        assert odd <= {"py.typed", "LICENSE", "METADATA", "RECORD", "WHEEL", "entry_points.txt"}

    def test_simulation_matches_portal(self, elsewhere: Elsewhere) -> None:
        done = elsewhere(*DRAWN, "--json")
        assert done.returncode == 0, done.stderr
        prompt = [json.loads(text)["results"] for text in (done.stdout, here(*DRAWN, "--json"))]
        hashes = [[row["sha256"] for row in rows] for rows in prompt]
        assert hashes[0] == hashes[1]
        assert len(set(hashes[0])) == 2

    @pytest.mark.parametrize("snapshot", [PLAIN, MIXED], ids=["ltgf", "oef"])
    def test_decision_matches_portal(
        self, elsewhere: Elsewhere, tmp_path: Path, snapshot: Snapshot
    ) -> None:
        path = tmp_path / "snapshot.json"
        path.write_bytes(canonical_bytes(snapshot))
        done = elsewhere("decide", "--snapshot", str(path))
        assert done.returncode == 0, done.stderr
        assert done.stdout == here("decide", "--snapshot", str(path))
        sha256 = sha256_hex(canonical_bytes(decide_round(snapshot)))
        assert f"sha256: {sha256}\n" in done.stdout

    @pytest.mark.parametrize("arguments", [SHARES, EQUAL_GAINS], ids=["HiGHS", "OR-Tools"])
    def test_shares_match_portal(self, elsewhere: Elsewhere, arguments: tuple[str, ...]) -> None:
        assert elsewhere(*arguments, "--json").stdout == here(*arguments, "--json")

    def test_other_solver_requires_extra(self, elsewhere: Elsewhere, tmp_path: Path) -> None:
        path = tmp_path / "snapshot.json"
        path.write_bytes(canonical_bytes(MIXED))
        drawn = ("simulate", "--synthetic", "9,2,1", "--nodes", "1", "--policy", "oef")
        option = ("--option", "backend=pyomo")
        for arguments in (
            (*SHARES, *option),
            ("decide", "--snapshot", str(path), *option),
            (*drawn, "--option", "oef.backend=pyomo"),
        ):
            done = elsewhere(*arguments)
            assert done.returncode == 1
            assert "pip install 'evenshare-core[solvers]'" in done.stderr
            assert "'pyomo'" in done.stderr
            assert "Traceback" not in done.stderr

    def test_exits_with_2_for_invalid_command_line(self, elsewhere: Elsewhere) -> None:
        done = elsewhere("lottery")
        assert done.returncode == 2
        assert "invalid choice: 'lottery'" in done.stderr
