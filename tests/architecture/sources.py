"""List the tracked and the new files of the checkout for the architecture tests."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APPS = ("portal", "scheduling", "tenants", "billing")
PACKAGES = (*APPS, "core", "client", "research", "benchmarks")
CORE = "core/src/evenshare_core"
# These packages are as pure as the core.
RESEARCH = "research/src/evenshare_research"
BASELINES = (f"{RESEARCH}/policies", f"{RESEARCH}/formulations", f"{RESEARCH}/market")


@cache
def files() -> tuple[Path, ...]:
    """Return the files that git would commit, without ignored files."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = (ROOT / name for name in sorted(set(listed.split("\0"))) if name)
    return tuple(path for path in paths if path.is_file())


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(*prefixes: str) -> list[Path]:
    return [
        path
        for path in files()
        if path.suffix == ".py" and (not prefixes or name_of(path).startswith(prefixes))
    ]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
