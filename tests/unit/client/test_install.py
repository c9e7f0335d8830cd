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
OLDEST = "python3.9"


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
    def test_runs_the_command_and_the_runtime(self, tmp_path: Path) -> None:
        found = shutil.which(OLDEST)
        works = found and subprocess.run([found, "-V"], capture_output=True, check=False)
        if not works or works.returncode:
            pytest.skip(f"{OLDEST} is not installed")
        for words in (
            ["-m", "evenshare", "--help"],
            ["-c", "from evenshare import lease; lease.setup(directory='k'); lease.store({})"],
            ["-m", "evenshare.term", "--", "true"],
        ):
            subprocess.run(
                [OLDEST, *words], cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{CLIENT}/src"},
                check=True, capture_output=True,
            )  # fmt: skip


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
