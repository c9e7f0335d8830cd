"""Installs the shim in the shared folder of jobs, one copy per version.

Users that can enter the folder may read it; only the portal's user may change it, since jobs may
have other users. Nodes need no package of the portal, and a running job keeps its shim when the
portal is upgraded.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from scheduling.engine.executors.shim.files import make_private

PACKAGE = Path(__file__).parents[1] / "shim"
SCRIPT = "job.sh"
# This script is the same for all jobs: whatever differs is an argument, which no shell parses.
_SCRIPT_TEXT = '#!/bin/sh\nexec "$@"\n'


def install_shim(root: Path) -> Path:
    """Return the folder of the shim below `root`; copy it there if it is missing.

    Raises:
        OSError: it cannot be written.
    """
    place = root / "shims" / _digest()
    if not place.is_dir():
        make_private(root, place.parent)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
        shutil.copytree(PACKAGE, fresh / "shim", ignore=shutil.ignore_patterns("__pycache__"))
        (fresh / SCRIPT).write_text(_SCRIPT_TEXT, encoding="utf-8")
        for path in (fresh, *fresh.rglob("*")):
            path.chmod(0o755 if path.is_dir() or path.name == SCRIPT else 0o644)
        # Another process has put the same copy there meanwhile.
        with contextlib.suppress(OSError):
            fresh.rename(place)
        if fresh.is_dir():
            shutil.rmtree(fresh)
    return place / "shim"


@cache
def _digest() -> str:
    digest = hashlib.sha256(_SCRIPT_TEXT.encode())
    for path in sorted(PACKAGE.glob("*.py")):
        digest.update(os.fsencode(path.name) + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
