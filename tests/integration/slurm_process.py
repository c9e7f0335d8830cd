"""Run a round with job folders below ROOT, and fail at a named point.

Usage: slurm_process.py ROOT POOL INSTANT POINT:(kill|stop) HOLD_S; see round_process.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

# This import sets up Django, so it comes first.
from tests.integration import round_process

if __name__ == "__main__":
    from django.conf import settings

    settings.LOCAL_ROOT = sys.argv[1]
    round_process.main(*sys.argv[2:])
