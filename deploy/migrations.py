"""Print the migrations that a backup has and this checkout lacks.

If there are any, the checkout is older than the backup.

`python -m deploy.migrations BACKUP/manifest.json`
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def unknown(manifest: Path) -> list[str]:
    """Return names such as `app.0001_initial`, without Django's own migrations."""
    expected: list[str] = json.loads(manifest.read_text())["migrations"]
    missing = []
    for name in expected:
        app, _, migration = name.partition(".")
        files = list((ROOT / app / "migrations").glob("0*.py"))
        # A squashed migration names the migrations that it replaces.
        known = any(
            file.stem == migration or f'"{migration}"' in file.read_text() for file in files
        )
        if files and not known:
            missing.append(name)
    return missing


if __name__ == "__main__":
    print(" ".join(unknown(Path(sys.argv[1]))))
