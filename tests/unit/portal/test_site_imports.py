"""Test that a site needs only the packages of `requirements/core.txt`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from tests.site_imports import locked

ROOT = Path(__file__).resolve().parents[3]
# Second implementations of the policies' programs, for tests and `make reproduce`, and the module
# of `make catalogs`.
FOR_DEVELOPERS = {
    "portal.site.catalogs": "babel",
    "evenshare_research.formulations.market_ortools": "pandas",
    "evenshare_core.formulations.oef_pyomo": "pyomo",
}
PRODUCTION = {
    "EVENSHARE_MODE": "production",
    "SECRET_KEY": "b3J8fQx1Zk7mT0aYvC5nR2wLpH9sUe4dGi6o-KXy",
    "ALLOWED_HOSTS": "gpu.invalid",
    "BEHIND_TLS_PROXY": "1",
    "DATABASE_URL": "postgres://app:word@/none",
    "REDIS_URL": "unix:///none",
}
MOST_MB = 500


class TestSite:
    def test_imports_only_locked_packages(self) -> None:
        environment = {**os.environ, **PRODUCTION, "DJANGO_SETTINGS_MODULE": "portal.site.settings"}
        done = subprocess.run(
            [sys.executable, "-m", "tests.site_imports"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        missing = json.loads(done.stdout)
        assert missing.items() <= FOR_DEVELOPERS.items()

    def test_environment_is_at_most_500_mb(self) -> None:
        sizes = {name: size_of(name) for name in locked()}
        assert sum(sizes.values()) <= MOST_MB * 10**6, sorted(
            sizes.items(), key=lambda row: -row[1]
        )


def size_of(name: str) -> int:
    """Return a package's size with compiled modules in bytes, or 0 if it is not installed."""
    try:
        listed = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return 0
    paths = {Path(one.locate()) for one in listed if "__pycache__" not in one.parts}
    compiled = {
        Path(importlib.util.cache_from_source(path)) for path in paths if path.suffix == ".py"
    }
    return sum(path.stat().st_size for path in paths | compiled if path.exists())
