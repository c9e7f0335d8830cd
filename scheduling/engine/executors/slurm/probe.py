"""What the trial of `check_slurm --run` runs on a node: read a file, write another beside it.

Runs on nodes, by their Python and without the portal's packages (`trial`).
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from pathlib import Path


def main(folder: Path) -> None:
    """Answer what lies in `asked`."""
    answer = {
        "said": (folder / "asked").read_text(),
        "at": time.time(),
        "python": platform.python_version(),
        "node": os.environ.get("SLURMD_NODENAME", ""),
        "uid": os.getuid(),
    }
    # The portal reads it as one of the group.
    os.umask(0o027)
    fresh = folder / ".answer"
    fresh.write_text(json.dumps(answer))
    fresh.rename(folder / "answer")
    # Until it is cancelled: the portal prolongs it meanwhile.
    time.sleep(60)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
