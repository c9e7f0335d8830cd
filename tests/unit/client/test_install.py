"""The client alone: in an empty environment, without an index, in the oldest Python too."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, python_files

CLIENT = ROOT / "client"
OLDEST = "3.9"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources elsewhere: nothing of the checkout can lend a hand, or be written to."""
    target = tmp_path_factory.mktemp("client") / "client"
    shutil.copytree(CLIENT, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def pip(environment: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "-q", "--python", environment / "bin" / "python", *words],
        # No index and no settings of this machine: whatever is fetched is an error.
        env={"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class TestAnInstallation:
    def test_needs_no_index(self, copy: Path, tmp_path: Path) -> None:
        venv.create(tmp_path, with_pip=False)
        bare = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
        for how in (["--editable"], []):
            pip(tmp_path, "install", *how, str(copy))
            for command, words in (
                (["evenshare", "--help"], "job"),
                (["evenshare-term", "--help"], "SIGTERM"),
                (["python", "-c", "from evenshare import lease; print(lease.resume(17))"], "17"),
            ):
                assert words in subprocess.run(
                    command, env=bare, capture_output=True, text=True, check=True
                ).stdout  # fmt: skip
        pip(tmp_path, "uninstall", "-y", "evenshare")
        assert not list(tmp_path.glob("lib/python*/site-packages/*evenshare*"))

    def test_is_the_same_from_a_source_archive(self, copy: Path, tmp_path: Path) -> None:
        def build(folder: Path, into: Path) -> bytes:
            program = (
                "import sys; sys.path.insert(0, 'backend'); import wheel_backend as b\n"
                "b.build_sdist(sys.argv[1]); b.build_wheel(sys.argv[1])"
            )
            subprocess.run([sys.executable, "-c", program, into], cwd=folder, check=True)
            return (into / "evenshare-0.1.0-py3-none-any.whl").read_bytes()

        first = build(copy, tmp_path)
        with tarfile.open(tmp_path / "evenshare-0.1.0.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
        again = tmp_path / "again"
        again.mkdir()
        assert build(tmp_path / "evenshare-0.1.0", again) == first


class TestTheOldestPython:
    def test_knows_all_that_the_sources_use(self) -> None:
        for folder in ("src", "backend"):
            assert_known(CLIENT / folder)

    @pytest.mark.parametrize(
        "newer",
        ["import tomllib", "match 1:\n    case 1: pass", "from datetime import UTC"],
    )
    def test_would_not_know_what_is_newer(self, newer: str, tmp_path: Path) -> None:
        (tmp_path / "newer.py").write_text(f"{newer}\n")
        with pytest.raises(AssertionError, match=r"Target versions not met:\s+3\.9"):
            assert_known(tmp_path)


def assert_known(folder: Path) -> None:
    """By syntax and library calls; ruff holds that annotations are never evaluated (FA102)."""
    vermin = [sys.executable, "-c", "from vermin import main; main()", "--no-config-file"]
    done = subprocess.run(
        [*vermin, f"--target={OLDEST}-", "--violations", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Analyzing" in done.stdout, done.stderr
    assert done.returncode == 0, done.stdout


def test_the_client_imports_only_itself_and_the_standard_library() -> None:
    import ast

    from tests.architecture.sources import tree

    foreign = set()
    for path in python_files("client/"):
        for node in ast.walk(tree(path)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            foreign |= {name.split(".")[0] for name in names}
    assert foreign - sys.stdlib_module_names <= {"evenshare"}
