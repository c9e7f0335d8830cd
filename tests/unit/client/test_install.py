"""Test that the client installs without the library or an index, also in the oldest Python."""

import ast
import email
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, name_of, python_files, tree

CLIENT = ROOT / "client"
OLDEST = "3.9"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the sources, so that the tests neither use nor change the checkout."""
    target = tmp_path_factory.mktemp("client") / "client"
    shutil.copytree(CLIENT, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


@pytest.fixture(scope="module")
def wheels(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheels of the client and of the library."""
    folder = tmp_path_factory.mktemp("wheels")
    for project in (copy, ROOT / "core"):
        build = [sys.executable, "-m", "uv", "build", "--wheel", "--offline", "-q", "-o"]
        subprocess.run([*build, str(folder), str(project)], check=True, cwd=folder)
    return folder


def pip(environment: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "-q", "--python", environment / "bin" / "python", *words],
        # The environment has no package index and none of this machine's settings, so every
        # download fails.
        env={"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class TestInstallation:
    def test_works_without_package_index(self, copy: Path, tmp_path: Path) -> None:
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

    def test_wheel_from_source_archive_is_identical(self, copy: Path, tmp_path: Path) -> None:
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


class TestOldestPython:
    def test_supports_all_syntax_and_imports_used(self) -> None:
        for folder in ("src", "backend"):
            assert_known(CLIENT / folder)

    @pytest.mark.parametrize(
        "newer",
        ["import tomllib", "match 1:\n    case 1: pass", "from datetime import UTC"],
    )
    def test_check_detects_newer_features(self, newer: str, tmp_path: Path) -> None:
        (tmp_path / "newer.py").write_text(f"{newer}\n")
        with pytest.raises(AssertionError, match=r"Target versions not met:\s+3\.9"):
            assert_known(tmp_path)


def assert_known(folder: Path) -> None:
    """Check syntax and library calls. Ruff checks that annotations are never evaluated (FA102)."""
    vermin = [sys.executable, "-c", "from vermin import main; main()", "--no-config-file"]
    done = subprocess.run(
        [*vermin, f"--target={OLDEST}-", "--violations", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Analyzing" in done.stdout, done.stderr
    assert done.returncode == 0, done.stdout


class TestVerifyExtra:
    """Verification needs the library in the client's version. Other commands work without it."""

    def test_metadata_pins_same_version_of_library(self, wheels: Path) -> None:
        [path] = wheels.glob("evenshare-*.whl")
        with zipfile.ZipFile(path) as wheel:
            [name] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
            metadata = email.message_from_bytes(wheel.read(name))
        assert metadata.get_all("Provides-Extra") == ["sdk", "verify"]
        needed = f"evenshare-core[verify]=={metadata['Version']}; extra == 'verify'"
        assert metadata.get_all("Requires-Dist") == ["pandas>=2; extra == 'sdk'", needed]
        core = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())["project"]
        assert core["version"] == metadata["Version"]
        assert "verify" in core["optional-dependencies"]

    def test_is_suggested_until_all_packages_are_installed(
        self, wheels: Path, tmp_path: Path
    ) -> None:
        venv.create(tmp_path / "venv", with_pip=False)
        [client], [core] = wheels.glob("evenshare-*.whl"), wheels.glob("evenshare_core-*.whl")

        def verify() -> tuple[int, str]:
            done = subprocess.run(
                ["evenshare", "round", "verify", "--pool", "local"],
                env={
                    "PATH": f"{tmp_path / 'venv' / 'bin'}:/usr/bin:/bin",
                    "HOME": str(tmp_path),
                    "EVENSHARE_URL": "http://127.0.0.1:9",
                },
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            return done.returncode, done.stderr

        pip(tmp_path / "venv", "install", "--no-deps", f"{client}[verify]")
        code, text = verify()
        assert (code, "evenshare_core: pip install 'evenshare[verify]'" in text) == (2, True), text
        pip(tmp_path / "venv", "install", "--no-deps", str(core))
        code, text = verify()
        assert (code, "pip install 'evenshare[verify]'" in text) == (2, True), text
        # Copy the library's dependencies from this environment, but neither the client nor the
        # library.
        [packages] = (tmp_path / "venv").glob("lib/python*/site-packages")
        for name in (
            *("msgspec", "numpy", "highspy", "ortools"),
            *("cryptography", "cffi", "_cffi_backend"),
        ):
            for path in Path(sysconfig.get_path("purelib")).glob(f"{name}[.-]*"):
                (packages / path.name).symlink_to(path)
            path = Path(sysconfig.get_path("purelib")) / name
            if path.exists():
                (packages / name).symlink_to(path)
        code, text = verify()
        assert (code, "127.0.0.1:9 does not answer" in text) == (3, True), text


def test_client_imports_only_itself_and_standard_library() -> None:
    """The test lists modules that import more. Only `with_core` imports them."""
    names = (
        "verify_log", "verify_pins", "verify_rounds", "verify_statement", "verify_statement_rounds",
    )  # fmt: skip
    beside = {f"client/src/evenshare/cli/{name}.py" for name in names}
    for path in python_files("client/"):
        allowed = {"evenshare"}
        if name_of(path) in beside:
            allowed |= {"evenshare_core", "msgspec"}
        if name_of(path).startswith("client/src/evenshare/sdk/"):
            allowed |= {"pandas", "typing_extensions"}  # inside a function, and for types
        tops = {module.partition(".")[0] for module in absolute_imports(path)}
        assert tops - sys.stdlib_module_names <= allowed, path


def absolute_imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module or "")
    return names
