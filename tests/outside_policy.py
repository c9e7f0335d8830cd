"""External packages with policies, installed into a folder."""

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
    about = folder / f"{module}-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    points = f"[evenshare.policies]\n{name} = {module}:{attribute}\n"
    (about / "entry_points.txt").write_text(points)
