"""The folder of a migrated PostgreSQL cluster, cached between runs and copied by each process.

Migrations take seconds of a core and depend only on the code. The first process that needs a
database makes the folder, in `.pytest_cache`. All later processes, of this run or another, copy the
folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from portal.embedded.postgres import DATABASE, create_database
from tests.tools import drop_database

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".pytest_cache" / "evenshare"
# The imports of migrations, and the programs that run them.
SOURCES = ("portal", "scheduling", "tenants", "billing", "core/src")
LOCK = ROOT / "requirements" / "dev.txt"
MOST = 4


def kept_cluster() -> Path:
    """Return the folder of a cluster with migrated databases; make it if the code has changed."""
    folder = KEPT / _digest()
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _forget_oldest()
            subprocess.run(
                [sys.executable, "-m", "tests.kept", str(folder)],
                cwd=ROOT,
                check=True,
                env={**os.environ, "DJANGO_SETTINGS_MODULE": "portal.site.settings"},
            )
        os.utime(folder)
    return folder


def copy_cluster(target: Path) -> None:
    """Copy the cached cluster to a new folder."""
    shutil.copytree(kept_cluster(), target)


def _digest() -> str:
    programs = os.environ.get("EVENSHARE_POSTGRES_BIN", "")
    digest = hashlib.sha256(f"{sys.version} {os.geteuid()} {programs}".encode())
    found = (path for name in SOURCES for path in (ROOT / name).rglob("*"))
    sources = sorted(path for path in found if path.suffix in (".py", ".sql"))
    for path in (*sources, LOCK, Path(__file__)):
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _forget_oldest() -> None:
    """Remove old folders, but keep some, because checkouts of several branches may alternate."""
    folders = sorted(filter(Path.is_dir, KEPT.iterdir()), key=lambda path: path.stat().st_mtime)
    for folder in folders[: max(0, len(folders) + 1 - MOST)]:
        shutil.rmtree(folder, ignore_errors=True)


def main(target: Path) -> None:
    """Make a cluster in a temporary folder, and move it to `target` after its server has ended."""
    import django

    from tests import plugin  # sets the environment variables with the addresses that settings read

    django.setup()
    made = plugin.SERVICES
    made.start(migrated=False)
    try:
        plugin.make_template(made)
        with made.postgres.connect() as superuser:
            # `manage.py up` finds the database migrated.
            drop_database(superuser, DATABASE)
            create_database(superuser, DATABASE, template=plugin.TEMPLATE)
        made.end()
        fresh = target.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(made.postgres.cluster, fresh)
        fresh.rename(target)
    finally:
        made.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
