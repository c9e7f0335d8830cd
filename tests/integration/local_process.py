"""Launch local leases as a worker does, and then wait to be killed.

Usage: local_process.py ROOT TOKEN...; prints `launched` once the leases run.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import django

django.setup()

# Models need Django's set-up, so the import is here.
from django.conf import settings  # noqa: E402 - after django.setup()

from scheduling.engine.executors.base import Launch  # noqa: E402 - after django.setup()
from scheduling.engine.executors.local import LocalExecutor  # noqa: E402 - after django.setup()


def main(root: str, *tokens: str) -> None:
    settings.LOCAL_ROOT = root
    LocalExecutor().launch([Launch(token, int(token.split("-")[1]), 0) for token in tokens])
    print("launched", flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
