"""External packages with policies or executors, installed into a folder."""

from __future__ import annotations

from pathlib import Path

SMALLEST = Path(__file__).parent / "toy_policy" / "smallest.py"


def install_policy(
    folder: Path,
    package: str = "acme-policies",
    *,
    name: str = "smallest",
    code: str | None = None,
    attribute: str = "POLICY",
) -> None:
    """Install a distribution with one module and entry point, by default the toy policy."""
    module = package.replace("-", "_")
    (folder / f"{module}.py").write_text(SMALLEST.read_text() if code is None else code)
    _declare(folder, package, f"[evenshare.policies]\n{name} = {module}:{attribute}\n")


def install_executor(folder: Path, *, name: str, value: str, package: str = "acme-engine") -> None:
    """Install a distribution with one entry point, an executor in an importable module."""
    _declare(folder, package, f"[evenshare.executors]\n{name} = {value}\n")


def _declare(folder: Path, package: str, points: str) -> None:
    about = folder / f"{package.replace('-', '_')}-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(points)
