"""The program of `check_slurm --run` on a node: it reads a file and writes another one.

It runs with the node's Python and without the portal's packages (`trial`).
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from pathlib import Path


def main(folder: Path) -> None:
    """Copy the content of the file `asked` into the answer file."""
    answer = {
        "said": (folder / "asked").read_text(),
        "at": time.time(),
        "python": platform.python_version(),
        "node": os.environ.get("SLURMD_NODENAME", ""),
        "uid": os.getuid(),
    }
    # The portal reads the answer through the file's group permission.
    os.umask(0o027)
    fresh = folder / ".answer"
    fresh.write_text(json.dumps(answer))
    fresh.rename(folder / "answer")
    # Wait until the portal cancels the job. Before it does, it tries to extend the time limit.
    time.sleep(60)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
